"""Latent semantic analysis: TF-IDF vectors reduced by a truncated SVD. An embedding that needs no download.

Source: Deerwester et al., "Indexing by latent semantic analysis", 1990.
"""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import RetrievalError
from .words import words

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from scipy.sparse import csr_matrix


class LsaEmbedding:
    """An embedding fitted to a corpus.

    Args:
        texts: the corpus.
        dimensions: of the vectors; fewer where the corpus is small.
        tokenize: text to words.

    Raises:
        RetrievalError: fewer than two texts, fewer than two different words, or dimensions below 1.

    >>> embed = LsaEmbedding(["hot tea", "black coffee", "hot milk"], dimensions=2)
    >>> embed(["tea and milk"]).shape
    (1, 2)
    """

    def __init__(
        self, texts: Sequence[str], dimensions: int = 128, tokenize: Callable[[str], list[str]] = words
    ) -> None:
        from scipy.sparse.linalg import svds

        self._tokenize = tokenize
        bags = [Counter(tokenize(text)) for text in texts]
        frequency = Counter(word for bag in bags for word in bag)
        self._column = {word: column for column, word in enumerate(frequency)}
        smallest = min(len(texts), len(self._column))
        if dimensions < 1:
            raise RetrievalError(f"an embedding needs at least one dimension, not {dimensions}")
        if smallest < 2:
            raise RetrievalError(f"cannot embed {len(texts)} texts with {len(self._column)} different words")
        documents = np.fromiter(frequency.values(), dtype=float)
        self._idf = np.log((1 + len(texts)) / (1 + documents)) + 1
        # PROPACK with a fixed start and seed gives equal vectors in every run, also where singular values repeat
        # (ARPACK does not). The seed's name is new in SciPy 1.15.
        seed: dict[str, Any] = {"rng" if "rng" in inspect.signature(svds).parameters else "random_state": 0}
        rank = min(dimensions, smallest - 1)
        _, _, basis = svds(self._weighted(bags), k=rank, v0=np.ones(smallest), solver="propack", **seed)
        self._basis: NDArray[np.float64] = basis.T

    def __call__(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Vectors of texts, shape (number of texts, dimensions), not normalised."""
        bags = [Counter(self._tokenize(text)) for text in texts]
        return np.asarray(self._weighted(bags) @ self._basis, dtype=np.float32)

    def _weighted(self, bags: Sequence[Counter[str]]) -> csr_matrix:
        """TF-IDF rows of unit length; words outside the corpus are passed over."""
        from scipy.sparse import csr_matrix

        rows: list[int] = []
        columns: list[int] = []
        counts: list[float] = []
        for row, bag in enumerate(bags):
            for word, count in bag.items():
                column = self._column.get(word)
                if column is not None:
                    rows.append(row)
                    columns.append(column)
                    counts.append(1 + np.log(count))
        row_of, column_of = np.asarray(rows, dtype=np.intp), np.asarray(columns, dtype=np.intp)
        weights = np.asarray(counts) * self._idf[column_of]
        lengths = np.sqrt(np.bincount(row_of, weights**2, minlength=len(bags)))
        return csr_matrix((weights / lengths[row_of], (row_of, column_of)), shape=(len(bags), len(self._column)))
