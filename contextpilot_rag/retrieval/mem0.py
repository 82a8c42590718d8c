"""Mem0 search results as contexts."""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Real
from typing import Any

from ..errors import RetrievalError
from ..identity import block_key
from ..types import Block, Context, short
from .results import checked_k


def from_mem0(results: object, k: int | None = None, question: str = "") -> Context:
    """What ``memory.search(...)`` or ``memory.get_all(...)`` returned, as a context.

    A memory that is updated keeps its id, so a block's id is ``(id, hash)``: an updated memory is another block. Scores
    and dates are no part of the text.

    Args:
        results: ``{"results": [...]}``, or the list in it.
        k: how many to keep at most; None: all.
        question: kept on the context.

    Raises:
        RetrievalError: something else, or an item without ``id`` or ``memory``; the message says which.

    >>> found = {"results": [{"id": "m1", "memory": "Likes tea.", "hash": "5f", "score": 0.7, "created_at": "today"}]}
    >>> from_mem0(found).blocks
    (Block(text='Likes tea.', id=('m1', '5f'), tokens=None, score=0.7),)
    """
    if k is not None:
        checked_k(k)
    items: Any = results.get("results") if isinstance(results, Mapping) else results
    if not isinstance(items, list | tuple):
        raise RetrievalError(f"expected what a Mem0 search returns, {{'results': [...]}}, not {short(results)}")
    return Context(tuple(_block(item, rank) for rank, item in enumerate(items[:k])), question)


def _block(item: object, rank: int) -> Block:
    if not isinstance(item, Mapping):
        raise RetrievalError(f"result {rank} must be a mapping, not {type(item).__name__}")
    name, text = item.get("id"), item.get("memory")
    if not isinstance(name, str) or not isinstance(text, str):
        raise RetrievalError(f"result {rank} needs an id and a memory, both str")
    version = item.get("hash")
    return Block(
        text,
        id=(name, version if isinstance(version, str) else block_key(text).hex()),
        score=_score(item.get("score")),
    )


def _score(value: object) -> float | None:
    try:
        return float(value) if isinstance(value, Real) else None
    except OverflowError:
        return None
