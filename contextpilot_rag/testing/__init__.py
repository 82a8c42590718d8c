"""For tests, yours and ours: `FakeEngine`, a prefix cache with an OpenAI face. It has no model and says so.

with FakeEngine(block_size=32) as engine:
client = openai.OpenAI(base_url=engine.base_url, api_key="none")
...
assert engine.requests[-1].cached_tokens > 0
"""

from __future__ import annotations

from .chat import Answer
from .fake import FakeEngine, ReceivedRequest
from .paged import PagedPrefixCache

__all__ = ["Answer", "FakeEngine", "PagedPrefixCache", "ReceivedRequest"]
