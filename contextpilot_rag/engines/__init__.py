"""LLM engines: where they are, how they are sent to, and what they report."""
