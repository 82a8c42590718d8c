"""LangChain retrievers, compressors and agents whose prompts an LLM engine's prefix cache can reuse.

`ContextPilotMiddleware` needs ``pip install 'langchain-contextpilot[agents]'`` and is imported when it is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from contextpilot_rag.errors import MissingPackage

from .callbacks import ContextPilotCallbackHandler
from .compressors import ContextPilotCompressor
from .formatting import engine_of, format_docs, order_hint
from .retrievers import ContextPilotRetriever
from .turns import sources

if TYPE_CHECKING:
    from .middleware import ContextPilotMiddleware

__all__ = [
    "ContextPilotCallbackHandler",
    "ContextPilotCompressor",
    "ContextPilotMiddleware",
    "ContextPilotRetriever",
    "engine_of",
    "format_docs",
    "order_hint",
    "sources",
]


def __getattr__(name: str) -> object:
    if name != "ContextPilotMiddleware":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        from .middleware import ContextPilotMiddleware
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] not in {"langchain", "langgraph"}:
            raise
        raise MissingPackage.of(error, "ContextPilotMiddleware needs", "langchain-contextpilot[agents]") from error
    return ContextPilotMiddleware
