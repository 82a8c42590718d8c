"""Response modes: which of them can profit from a shared prefix, and a synthesizer for each."""

from __future__ import annotations

import warnings
from typing import Any

from llama_index.core.base.base_query_engine import BaseQueryEngine
from llama_index.core.response_synthesizers import (
    Accumulate,
    BaseSynthesizer,
    CompactAndRefine,
    Generation,
    Refine,
    ResponseMode,
    SimpleSummarize,
)
from llama_index.core.response_synthesizers import get_response_synthesizer as _stock_synthesizer
from llama_index.core.response_synthesizers.compact_and_accumulate import CompactAndAccumulate

from .synthesizer import ContextPilotSynthesizer

_WHY = {
    ResponseMode.REFINE: "it sends one node a call, and each call begins with the question or the last answer",
    ResponseMode.ACCUMULATE: "it sends one node a call, so there is no order of nodes",
    ResponseMode.COMPACT_ACCUMULATE: "it asks once for each part of the context; if all fits one, use compact",
    ResponseMode.SIMPLE_SUMMARIZE: "it sends the nodes as a Python list, whose quotes change with what is in them",
    ResponseMode.GENERATION: "it sends no nodes",
}


class CannotProfitWarning(UserWarning):
    """A response mode in which little or nothing of a prompt can be found in the engine's cache."""


def check_response_mode(used: ResponseMode | str | BaseSynthesizer | BaseQueryEngine, *, stacklevel: int = 2) -> bool:
    """Warn of a response mode that cannot profit from arranged nodes.

    "compact" and "tree_summarize" can, as long as all nodes fit one prompt. "no_text" and "context_only" ask no model.

    Args:
        used: a response mode, a synthesizer, or a query engine that has one.
        stacklevel: whose line the warning names, as `warnings.warn` takes it.

    Returns:
        Whether it can profit.

    >>> check_response_mode("compact")
    True
    """
    mode = _mode_of(used)
    if mode not in _WHY:
        return True
    warnings.warn(
        f"response mode {mode.value!r} cannot profit from contextpilot: {_WHY[mode]}; use 'compact' or "
        "'tree_summarize'",
        CannotProfitWarning,
        stacklevel=stacklevel,
    )
    return False


def get_response_synthesizer(
    response_mode: ResponseMode | str = ResponseMode.COMPACT,
    **options: Any,  # noqa: ANN401
) -> BaseSynthesizer:
    """As the framework's own function; for "compact" it is a `ContextPilotSynthesizer`, and it warns where it has to.

    Args:
        response_mode: "compact", "tree_summarize", ...
        **options: as the framework's function takes them.

    Raises:
        ValueError: there is no such mode.
    """
    mode = ResponseMode(response_mode)
    check_response_mode(mode, stacklevel=3)
    if mode is not ResponseMode.COMPACT:
        return _stock_synthesizer(response_mode=mode, **options)
    unused = {"summary_template", "simple_template", "chat_summary_template", "use_async"}
    return ContextPilotSynthesizer(**{name: value for name, value in options.items() if name not in unused})


def _mode_of(used: object) -> ResponseMode | None:
    """The mode of what is used; None for one of somebody's own."""
    if isinstance(used, str):
        return ResponseMode(used)
    synthesizer = getattr(used, "_response_synthesizer", used)
    kinds: list[tuple[type, ResponseMode]] = [
        (CompactAndRefine, ResponseMode.COMPACT),
        (Refine, ResponseMode.REFINE),
        (CompactAndAccumulate, ResponseMode.COMPACT_ACCUMULATE),
        (Accumulate, ResponseMode.ACCUMULATE),
        (SimpleSummarize, ResponseMode.SIMPLE_SUMMARIZE),
        (Generation, ResponseMode.GENERATION),
    ]
    return next((mode for kind, mode in kinds if isinstance(synthesizer, kind)), None)
