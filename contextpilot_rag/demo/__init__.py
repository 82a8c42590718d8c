"""The demo: real documents, real retrieval, a real engine, with and without ContextPilot."""
