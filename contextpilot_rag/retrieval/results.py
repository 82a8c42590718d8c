"""What every retriever's raw result goes through: fillers out, ties broken by id, the best first."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import MissingPackage, RetrievalError
from ..types import Block, Context, short

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray


def extra(name: str) -> Any:  # noqa: ANN401  a module without types
    """A module that is not installed with the core.

    Raises:
        MissingPackage: it is not there; the message says what to install.
    """
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise MissingPackage.of(error, "this needs", "contextpilot-rag[retrieval]") from error


def checked_k(k: int) -> int:
    """A number of blocks to keep.

    Raises:
        RetrievalError: no int, or below 1.
    """
    if type(k) is not int or k < 1:
        raise RetrievalError(f"k must be an int of at least 1, not {short(k)}")
    return k


def checked_blocks(blocks: Sequence[Block]) -> tuple[Block, ...]:
    """A corpus to search.

    Raises:
        RetrievalError: there is none, or it holds something that is no `Block`.
    """
    corpus = tuple(blocks)
    for place, block in enumerate(corpus):
        if not isinstance(block, Block):
            raise RetrievalError(f"block {place} of the corpus must be a Block, not {type(block).__name__}")
    if not corpus:
        raise RetrievalError("there are no blocks to search")
    return corpus


def numbers(values: ArrayLike, what: str) -> NDArray[np.float64]:
    """An array of numbers.

    Raises:
        RetrievalError: something in it is none.
    """
    try:
        array = np.asarray(values)
        if array.dtype.kind in "SU":  # digits, too: ids that look like positions are not
            raise TypeError(f"not {array.dtype.type.__name__}")  # noqa: TRY301
        return array.astype(float)
    except (TypeError, ValueError, OverflowError) as error:
        raise RetrievalError(f"{what} must be numbers: {error}") from None


def ranked(hits: Iterable[tuple[int, float]], blocks: Sequence[Block], k: int, question: str = "") -> Context:
    """The k best hits as a context, by falling score, ties by the block's id so that every run gives the same order.

    A position that comes twice counts once, with its better score.

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
    checked_k(k)
    best: dict[int, float] = {}
    for position, score in hits:
        if not 0 <= position < len(blocks):
            raise RetrievalError(f"the retriever returned position {position}, but there are {len(blocks)} blocks")
        best[position] = max(score, best.get(position, score))
    found = sorted((-score, str(blocks[position].id), position) for position, score in best.items())
    return Context(tuple(replace(blocks[place], score=-score) for score, _, place in found[:k]), question)
