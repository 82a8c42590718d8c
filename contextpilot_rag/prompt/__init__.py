"""Prompts: bytes that stay stable up to the last shared block, and the hints after it."""
