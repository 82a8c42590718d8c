"""BM25 results as contexts: rank-bm25's score arrays, or anything shaped like them, and what bm25s returns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import RetrievalError
from ..types import Block, Context
from .results import checked_blocks, checked_k, extra, numbers, ranked
from .words import words

if TYPE_CHECKING:
    from numpy.typing import ArrayLike


def from_bm25(scores: ArrayLike, blocks: Sequence[Block], k: int = 10, question: str = "") -> Context:
    """The k blocks with the highest scores above zero.

    rank-bm25 gives one score a document, zero where no word of the question occurs; such fillers are dropped, so that
    fewer than k blocks may come back.

    Args:
        scores: shape (number of blocks,).
        blocks: the corpus in indexing order.
        k: how many to keep at most.
        question: kept on the context.

    Raises:
        RetrievalError: the number of scores is not the number of blocks, or k is below 1.

    >>> corpus = [Block("tea", id="a"), Block("coffee", id="b"), Block("milk", id="c")]
    >>> [block.id for block in from_bm25([0.0, 2.5, 1.0], corpus)]
    ['b', 'c']
    """
    checked_k(k)
    row = numbers(scores, "scores")
    if row.shape != (len(blocks),):
        raise RetrievalError(f"expected one score for each of {len(blocks)} blocks, got an array of shape {row.shape}")
    positive = np.flatnonzero(row > 0)  # also drops NaN
    if len(positive) > k:
        # everything that ties with the k-th best stays in, so that the tie is broken by id and not by position
        threshold = np.partition(row[positive], len(positive) - k)[len(positive) - k]
        positive = positive[row[positive] >= threshold]
    return ranked(((int(position), float(row[position])) for position in positive), blocks, k, question)


def from_bm25s(
    results: Any,  # noqa: ANN401  bm25s.Results, or any pair like it
    blocks: Sequence[Block],
    k: int | None = None,
    question: str = "",
    row: int = 0,
) -> Context:
    """What ``bm25s.BM25().retrieve(...)`` found for one question.

    bm25s fills up to k with documents that score zero; those are dropped.

    Args:
        results: ``(documents, scores)``, each of shape (questions, k); documents are positions in ``blocks``, as
            ``retrieve`` returns them without a ``corpus``.
        blocks: the corpus in indexing order.
        k: how many to keep at most; None: all.
        question: kept on the context.
        row: which of the questions.

    Raises:
        RetrievalError: other shapes, documents that are no positions, or a position outside the corpus.

    >>> corpus = [Block("tea", id="a"), Block("coffee", id="b"), Block("milk", id="c")]
    >>> [block.id for block in from_bm25s(([[1, 2, 0]], [[2.5, 1.0, 0.0]]), corpus)]
    ['b', 'c']
    """
    try:
        documents, scores = results
    except (TypeError, ValueError):
        raise RetrievalError("expected (documents, scores), as bm25s returns them") from None
    positions, points = numbers(documents, "documents"), numbers(scores, "scores")
    if positions.ndim != 2 or positions.shape != points.shape:
        raise RetrievalError(
            f"expected documents and scores of shape (questions, k), got {positions.shape} and {points.shape}"
        )
    if not np.isfinite(positions).all() or not np.array_equal(positions, np.floor(positions)):
        raise RetrievalError("documents must be positions: call retrieve without a corpus")
    if not 0 <= row < len(positions):
        raise RetrievalError(f"there is no row {row} in results for {len(positions)} questions")
    hits = [
        (int(position), float(score))
        for position, score in zip(positions[row], points[row], strict=True)
        if score > 0  # also drops NaN
    ]
    return ranked(hits, blocks, max(1, len(hits)) if k is None else k, question)


class BM25Retriever:
    """BM25 over blocks, by rank-bm25 (extra ``retrieval``).

    Args:
        blocks: the corpus.
        tokenize: text to words; used for blocks and questions.

    Raises:
        RetrievalError: the corpus is empty, or holds no word at all.

    >>> corpus = [Block("tea is hot", id="a"), Block("coffee is black", id="b"), Block("milk is white", id="c")]
    >>> [block.id for block in BM25Retriever(corpus).retrieve("black coffee")]
    ['b']
    """

    def __init__(self, blocks: Sequence[Block], tokenize: Callable[[str], list[str]] = words) -> None:
        BM25Okapi = extra("rank_bm25").BM25Okapi  # noqa: N806  a class
        self._blocks = checked_blocks(blocks)
        self._tokenize = tokenize
        corpus = [tokenize(block.text) for block in self._blocks]
        if not any(corpus):
            raise RetrievalError(f"none of the {len(self._blocks)} blocks holds a word to search for")
        self._bm25: Any = BM25Okapi(corpus)

    def retrieve(self, question: str, k: int = 10) -> Context:
        """The k best blocks for a question, fewer where fewer share a word with it."""
        return from_bm25(self._bm25.get_scores(self._tokenize(question)), self._blocks, k, question)
