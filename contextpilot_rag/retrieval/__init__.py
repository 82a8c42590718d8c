"""Retrievers: raw results to contexts."""
