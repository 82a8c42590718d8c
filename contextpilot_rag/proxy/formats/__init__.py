"""The formats of requests, each as the same words: messages with texts."""
