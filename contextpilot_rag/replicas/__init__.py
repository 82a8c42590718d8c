"""Replicas: indexes in several processes, which converge by a log in Valkey or Redis."""
