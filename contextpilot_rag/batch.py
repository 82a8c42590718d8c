"""Plan: a whole batch of requests, each with its order, in the order of sending."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

from .errors import MissingPackage
from .types import Alignment

if TYPE_CHECKING:
    import pandas

_BEST_BLOCKS = 3  # how many of the best blocks the displacement is about
AlignmentT_co = TypeVar("AlignmentT_co", bound=Alignment, covariant=True)


@dataclass(frozen=True, slots=True)
class Plan(Generic[AlignmentT_co]):
    """A whole batch: an alignment for each request, in the order of sending. Iterates over the alignments.

    Args:
        alignments: each carries its request, with the request's own key.
        sources: for each of them, the position of the one that computes the prefix it is predicted to find cached; -1
            where none of this plan has to.
        ceiling_tokens: cached tokens that no plan of this batch can pass; None if it was not asked for.
        complete: False if the time was up before everything was tried.
    """

    alignments: tuple[AlignmentT_co, ...]
    sources: tuple[int, ...]
    ceiling_tokens: int | None = None
    complete: bool = True

    def __iter__(self) -> Iterator[AlignmentT_co]:
        return iter(self.alignments)

    def __len__(self) -> int:
        return len(self.alignments)

    def __getitem__(self, position: int) -> AlignmentT_co:
        return self.alignments[position]

    def __repr__(self) -> str:
        return f"<Plan: {len(self)} requests, {self.hit_ratio:.1%} of {self.tokens} tokens predicted to be cached>"

    @property
    def tokens(self) -> int:
        """Tokens of all blocks."""
        return sum(alignment.request.tokens for alignment in self)

    @property
    def predicted_cached_tokens(self) -> int:
        """Of these, those that the engine is predicted to find in its cache."""
        return sum(alignment.predicted_cached_tokens for alignment in self)

    @property
    def retrieved_cached_tokens(self) -> int:
        """What it would find if all were sent as retrieved, one after another, and nothing were evicted."""
        return sum(alignment.retrieved_cached_tokens for alignment in self)

    @property
    def hit_ratio(self) -> float:
        """Predicted cached tokens over tokens."""
        return _share(self.predicted_cached_tokens, self.tokens)

    @property
    def ceiling(self) -> float | None:
        """The hit ratio that no plan of this batch can pass; None if it was not asked for."""
        return None if self.ceiling_tokens is None else _share(self.ceiling_tokens, self.tokens)

    @property
    def changed(self) -> int:
        """Requests whose order is not the retriever's."""
        return sum(alignment.changed for alignment in self)

    @property
    def displacement(self) -> float:
        """How many places each of a request's three best blocks moved, on average."""
        moved = [
            abs(rank - place) for alignment in self for place, rank in enumerate(alignment.order) if rank < _BEST_BLOCKS
        ]
        return _share(sum(moved), len(moved))

    def explain(self) -> str:
        """What the plan does, in a few lines.

        >>> print(Plan((), ()).explain())
        0 requests, 0 tokens of blocks
        as retrieved   0.0 % of the tokens found in the cache
        as planned     0.0 %, 0.0 % of the prefill saved
        another order for 0 of 0 requests; the three best blocks move 0.0 places
        """
        before = _share(self.retrieved_cached_tokens, self.tokens)
        saved = _share(self.predicted_cached_tokens - self.retrieved_cached_tokens, self.tokens * (1 - before))
        lines = [
            f"{len(self):,} requests, {self.tokens:,} tokens of blocks",
            f"as retrieved {before:>6.1%} of the tokens found in the cache".replace("%", " %"),
            f"as planned   {self.hit_ratio:>6.1%}, {saved:.1%} of the prefill saved".replace("%", " %"),
            (
                f"another order for {self.changed:,} of {len(self):,} requests; "
                f"the three best blocks move {self.displacement:.1f} places"
            ),
        ]
        if self.ceiling is not None:
            lines.append(f"no plan can pass {self.ceiling:.1%}".replace("%", " %"))
        if not self.complete:
            lines.append("the time was up: this is the best plan found by then")
        return "\n".join(lines)

    def to_dataframe(self) -> pandas.DataFrame:
        """One row for each request, in the order of sending.

        Raises:
            MissingPackage: pandas is not installed.
        """
        try:
            import pandas
        except ModuleNotFoundError as error:
            raise MissingPackage.of(error, "to_dataframe needs", "pandas") from error
        return pandas.DataFrame(
            {
                "key": [alignment.request.key for alignment in self],
                "blocks": [len(alignment.order) for alignment in self],
                "tokens": [alignment.request.tokens for alignment in self],
                "predicted_cached_tokens": [alignment.predicted_cached_tokens for alignment in self],
                "retrieved_cached_tokens": [alignment.retrieved_cached_tokens for alignment in self],
                "source": [None if source < 0 else self[source].request.key for source in self.sources],
                "rule": [str(alignment.rule) for alignment in self],
                "order": [alignment.order for alignment in self],
            }
        )


def _share(part: float, whole: float) -> float:
    return part / whole if whole > 0 else 0.0
