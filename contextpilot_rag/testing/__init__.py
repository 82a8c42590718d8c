"""For tests, yours and ours: `FakeEngine`, a prefix cache with an OpenAI face. It has no model and says so.

>>> from openai import OpenAI
>>> with FakeEngine() as engine:
...     client = OpenAI(base_url=engine.base_url, api_key="none")
...     for question in ("What is a slice?", "What is a step?"):
...         messages = [{"role": "user", "content": "Slices count from zero. " * 50 + question}]
...         _ = client.chat.completions.create(model="none", messages=messages)
...     client.close()
>>> [request.cached_tokens > 0 for request in engine.requests]
[False, True]
"""

from __future__ import annotations

from .answers import Answer
from .fake import FakeEngine
from .paged import PagedPrefixCache
from .received import ReceivedRequest
from .wire import EventOptions

__all__ = ["Answer", "EventOptions", "FakeEngine", "PagedPrefixCache", "ReceivedRequest"]
