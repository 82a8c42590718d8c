"""The OpenAI-compatible proxy: requests of clients that only let one set a base URL, aligned on their way."""
