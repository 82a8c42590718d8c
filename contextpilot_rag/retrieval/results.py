"""What every retriever's raw result goes through: fillers out, ties broken by id, the best first."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from ..errors import RetrievalError
from ..types import Block, Context


def extra(name: str) -> Any:  # noqa: ANN401  a module without types
    """A module that is not installed with the core.

    Raises:
        RetrievalError: it is not there; the message says what to install.
    """
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise RetrievalError(f"this needs {error.name}: pip install 'contextpilot-rag[retrieval]'") from error


def ranked(hits: Iterable[tuple[int, float]], blocks: Sequence[Block], k: int, question: str = "") -> Context:
    """The k best hits as a context, by falling score, ties by the block's id so that every run gives the same order.

    Args:
        hits: (position in ``blocks``, score) pairs; more is better.
        blocks: the corpus, in the order in which the retriever indexed it.
        k: how many to keep at most.
        question: kept on the context.

    Raises:
        RetrievalError: k is no positive int, or a position lies outside the corpus.

    >>> ranked([(1, 0.5), (0, 0.5)], [Block("x", id="a"), Block("y", id="b")], k=1).blocks[0].id
    'a'
    """
    if k < 1:
        raise RetrievalError(f"k must be at least 1, not {k}")
    found: list[tuple[float, str, int]] = []
    for position, score in hits:
        if not 0 <= position < len(blocks):
            raise RetrievalError(f"the retriever returned position {position}, but there are {len(blocks)} blocks")
        found.append((-score, str(blocks[position].id), position))
    found.sort()
    return Context(tuple(replace(blocks[place], score=-score) for score, _, place in found[:k]), question)
