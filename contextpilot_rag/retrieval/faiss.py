"""FAISS results as contexts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np

from ..errors import RetrievalError
from ..types import Block, Context
from .results import checked_blocks, checked_k, extra, numbers, ranked

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

Embed = Callable[[Sequence[str]], "NDArray[np.float32]"]
Metric = Literal["inner_product", "l2"]


def from_faiss(
    distances: ArrayLike,
    positions: ArrayLike,
    blocks: Sequence[Block],
    k: int | None = None,
    question: str = "",
    metric: Metric = "inner_product",
) -> Context:
    """One row of ``index.search(x, k)`` as a context.

    FAISS pads with position -1 when the index holds fewer than k vectors; the padding is dropped, as are inner
    products of zero and less (nothing in common) and what is not finite. Ties are broken by id: FAISS's own order of
    ties depends on k.

    Args:
        distances: shape (k,): inner products, or squared distances for ``metric="l2"``.
        positions: shape (k,): positions in ``blocks``.
        blocks: the corpus in indexing order.
        k: how many to keep at most; None: all.
        question: kept on the context.
        metric: the index's metric. Scores of "l2" are the negated distances, so that more is better.

    Raises:
        RetrievalError: the shapes differ, a position lies outside the corpus, k is below 1, or no such metric.

    >>> corpus = [Block("tea", id="a"), Block("coffee", id="b")]
    >>> [block.id for block in from_faiss([0.9, 0.2, -3.4e38], [1, 0, -1], corpus)]
    ['b', 'a']
    """
    if metric not in get_args(Metric):
        raise RetrievalError(f"metric must be one of {', '.join(map(repr, get_args(Metric)))}, not {metric!r}")
    row, ids = numbers(distances, "distances"), numbers(positions, "positions")
    if not np.isfinite(ids).all() or not np.array_equal(ids, np.floor(ids)):
        raise RetrievalError("positions must be whole numbers")
    if row.ndim != 1 or row.shape != ids.shape:
        raise RetrievalError(f"expected one row of distances and positions, got shapes {row.shape} and {ids.shape}")
    scores = -row if metric == "l2" else row
    kept = (ids >= 0) & np.isfinite(scores)
    if metric == "inner_product":
        kept &= scores > 0
    hits = [(int(position), float(score)) for position, score in zip(ids[kept], scores[kept], strict=True)]
    return ranked(hits, blocks, max(1, len(hits)) if k is None else k, question)


class FaissRetriever:
    """Inner-product search over embedded blocks, by FAISS (extra ``retrieval``).

    Args:
        blocks: the corpus.
        embed: texts to vectors, shape (number of texts, dimensions); normalised here, so that the score is the cosine.

    Raises:
        RetrievalError: the corpus is empty, or the vectors' shape does not fit it.

    >>> corpus = [Block("tea", id="a"), Block("coffee", id="b")]
    >>> length = lambda texts: np.array([[len(text), 1.0] for text in texts], dtype=np.float32)
    >>> FaissRetriever(corpus, length).retrieve("café", k=1).blocks[0].id
    'a'
    """

    def __init__(self, blocks: Sequence[Block], embed: Embed) -> None:
        faiss = extra("faiss")
        self._blocks = checked_blocks(blocks)
        self._embed = embed
        vectors = self._vectors([block.text for block in self._blocks])
        self._index: Any = faiss.IndexFlatIP(vectors.shape[1])
        self._index.add(vectors)

    def retrieve(self, question: str, k: int = 10) -> Context:
        """The k blocks nearest to a question; those at a right angle or further are left out."""
        # A few more than k, so that a tie at the edge is broken by id rather than by FAISS.
        vector = self._vectors([question])
        if vector.shape[1] != self._index.d:
            raise RetrievalError(
                f"embed gave {vector.shape[1]} dimensions for the question, {self._index.d} for the blocks"
            )
        distances, positions = self._index.search(vector, min(2 * checked_k(k), len(self._blocks)))
        return from_faiss(distances[0], positions[0], self._blocks, k, question)

    def _vectors(self, texts: Sequence[str]) -> NDArray[np.float32]:
        vectors = np.ascontiguousarray(numbers(self._embed(texts), "vectors"), dtype=np.float32)
        if vectors.ndim != 2 or len(vectors) != len(texts):
            raise RetrievalError(f"embed gave an array of shape {vectors.shape} for {len(texts)} texts")
        norms = np.linalg.norm(vectors, axis=1, keepdims=True)
        normalised: NDArray[np.float32] = np.divide(vectors, norms, out=np.zeros_like(vectors), where=norms > 0)
        return normalised
