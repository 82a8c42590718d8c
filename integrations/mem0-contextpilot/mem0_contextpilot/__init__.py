"""mem0-contextpilot: Mem0 memories in prompts whose prefix an LLM engine has cached, and none of them lost.

>>> class Notes:  # instead of mem0.Memory, which needs an embedder
...     def search(self, query, *, filters):
...         return {"results": [{"id": "m1", "memory": "Likes tea."}]}
>>> memory = ContextPilotMemory(Notes())
>>> context = memory.context("What to drink?", user_id="alice", conversation="kitchen")
>>> [message["role"] for message in context.messages()], sorted(context.extra_body)
(['user'], ['cache_salt'])
"""

from __future__ import annotations

from .async_memory import AsyncContextPilotMemory
from .context import MemoryContext
from .memory import ContextPilotMemory
from .reranker import ContextPilotReranker
from .results import AlignedResults, order_hint

__version__ = "1.0.0"

__all__ = [
    "AlignedResults",
    "AsyncContextPilotMemory",
    "ContextPilotMemory",
    "ContextPilotReranker",
    "MemoryContext",
    "__version__",
    "order_hint",
]
