"""The shared context index over HTTP: ``contextpilot-rag serve``."""
