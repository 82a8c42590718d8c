"""What the tests of the FakeEngine share."""

from __future__ import annotations

import http.client
import json

ENGLISH = (
    "A slice of a list is a new list that holds the chosen items; its bounds may be left out, and then they are the "
    "ends of the list. A negative index counts from the end, so that the last item has the index minus one. "
)
MESSAGES = [
    {"role": "system", "content": "Answer from the documents."},
    {"role": "user", "content": ENGLISH * 4 + "What is a slice?"},
]


class Clock:
    """Sleeps in no time and remembers for how long."""

    def __init__(self):
        self.slept = []

    async def __call__(self, seconds):
        self.slept.append(seconds)


def cached(completion):
    return completion.usage.prompt_tokens_details.cached_tokens


def post(engine, body, path="/v1/chat/completions", method="POST"):
    """Raw bytes over HTTP: (status, parsed answer or None)."""
    connection = http.client.HTTPConnection("127.0.0.1", int(engine.base_url.rsplit(":", 1)[1][:-3]), timeout=30)
    try:
        connection.request(method, path, body)
        response = connection.getresponse()
        answer = response.read()
        return response.status, json.loads(answer) if answer else None
    finally:
        connection.close()


def chat_body(**fields):
    """A chat request as bytes."""
    return json.dumps({"messages": MESSAGES, **fields}).encode()


def user(text):
    """A chat request of one message."""
    return {"messages": [{"role": "user", "content": text}]}
