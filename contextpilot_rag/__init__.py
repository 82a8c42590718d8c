"""contextpilot-rag: puts retrieved blocks into an order that an LLM engine's prefix cache can reuse, and loses none.

>>> from contextpilot_rag import ContextPilot
>>> pilot = ContextPilot()
>>> alignment = pilot.align([("doc-1", "Slices count from zero.")], "Where do slices start?")
>>> alignment.messages(system="Answer from the documents.")[0]
{'role': 'system', 'content': 'Answer from the documents.'}
"""

from __future__ import annotations

from . import errors
from ._version import __version__
from .async_pilot import AsyncContextPilot
from .batch import Plan
from .conversation import Conversation, TurnPrompt
from .dedup.messages import deduplicate
from .engines.engine import Engine
from .expand import expand
from .index.local import ContextIndex, LocalIndex
from .pilot import ContextPilot
from .prompt.prompt import AlignedPrompt
from .remote.index import RemoteIndex
from .results import RunReport, RunResult
from .settings import Settings
from .types import Alignment, Block, BlockRef, Context, IndexStats, Namespace, OrderBudget, Request, Rule, Usage

__all__ = [
    "AlignedPrompt",
    "Alignment",
    "AsyncContextPilot",
    "Block",
    "BlockRef",
    "Context",
    "ContextIndex",
    "ContextPilot",
    "Conversation",
    "Engine",
    "IndexStats",
    "LocalIndex",
    "Namespace",
    "OrderBudget",
    "Plan",
    "RemoteIndex",
    "Request",
    "Rule",
    "RunReport",
    "RunResult",
    "Settings",
    "TurnPrompt",
    "Usage",
    "__version__",
    "deduplicate",
    "errors",
    "expand",
]
