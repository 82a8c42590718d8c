"""Tail policies: the order of the blocks behind the cached prefix.

The tail costs the same tokens now in any order; what it decides is how much later requests can share. A policy is one
small class without state. To add one, write it here and name it in `POLICIES`; `adaptive` compares it with the others
on real traffic where it also stands in `CANDIDATES`.

Which candidates stand there was decided on recorded traffic: `BestLast` and `Popular` never won anything worth having,
`Conditional` without its prior only with small caches; they are kept as baselines.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from ..types import BlockRef
from .history import History

# Blocks looked at in all steps for one request together: as many as 140 blocks need. What is shared is shared at the
# front, so what is left of a longer one is sorted once: a request of a thousand blocks would hold up all others.
_MOST_LOOKED_AT = 10_000


class TailPolicy(Protocol):
    """Puts the blocks behind the prefix into an order."""

    def arrange(
        self, blocks: Sequence[BlockRef], prefix: Sequence[int], rest: Sequence[int], history: History
    ) -> Sequence[int]:
        """The order of the rest.

        Args:
            blocks: the request's blocks, best first.
            prefix: positions in ``blocks`` of those that are placed already, in prompt order.
            rest: all other positions, ascending.
            history: recent requests of the namespace.

        Returns:
            A permutation of ``rest``.
        """
        ...


class Retrieved:
    """The retriever's order.

    >>> Retrieved().arrange([BlockRef("a", 1), BlockRef("b", 1)], [], [0, 1], History())
    [0, 1]
    """

    def arrange(
        self,
        blocks: Sequence[BlockRef],  # noqa: ARG002
        prefix: Sequence[int],  # noqa: ARG002
        rest: Sequence[int],
        history: History,  # noqa: ARG002
    ) -> Sequence[int]:
        """The rest as it is."""
        return rest


class BestLast:
    """The retriever's order turned round, so that the best block of the tail stands next to the question.

    >>> BestLast().arrange([BlockRef("a", 1), BlockRef("b", 1)], [], [0, 1], History())
    [1, 0]
    """

    def arrange(
        self,
        blocks: Sequence[BlockRef],  # noqa: ARG002
        prefix: Sequence[int],  # noqa: ARG002
        rest: Sequence[int],
        history: History,  # noqa: ARG002
    ) -> Sequence[int]:
        """The rest, worst first."""
        return rest[::-1]


class Popular:
    """First what most recent requests contained, weighed by tokens.

    >>> history = History()
    >>> history.add("b")
    >>> Popular().arrange([BlockRef("a", 1), BlockRef("b", 1)], [], [0, 1], history)
    [1, 0]
    """

    def arrange(
        self,
        blocks: Sequence[BlockRef],
        prefix: Sequence[int],  # noqa: ARG002
        rest: Sequence[int],
        history: History,
    ) -> Sequence[int]:
        """By count x tokens; of equals the better rank first."""
        return sorted(rest, key=lambda rank: -history.count(blocks[rank].key) * blocks[rank].tokens)


class Conditional:
    """Next comes the block with the most expected tokens among the requests that contain all blocks placed so far.

    A block's expectation is ``(count + (prior + share * requests) * nearness) * tokens``: ``requests`` is how many
    recent requests contain every block placed so far, ``count`` how many of these contain this one too, and
    ``nearness`` falls from 1 for the retriever's best block to nearly 0 for its last. The second term stands for what
    counting cannot know: among equally frequent blocks, the next like question most probably finds again what stood
    high here. It matters most where few recent requests are alike, it makes one policy good on traffic of both kinds,
    and it leaves the best blocks nearer to the front than counts alone do.

    Counting under the condition of what is placed is the greedy choice of a prefix tree's next edge (as Liu et al.,
    "Optimizing LLM Queries in Relational Data Analytics Workloads", MLSys 2025, choose it for whole batches); the
    second term is additive smoothing with the retriever's ranking as the prior.

    Args:
        prior: weight of the retriever's order, in requests. 0: counts alone decide.
        share: further weight of the retriever's order, as a share of the requests in question.

    >>> history = History()
    >>> for request in ("ab", "ab", "ac", "c", "c", "c"):
    ...     history.add(request)
    >>> blocks = [BlockRef("c", 100), BlockRef("a", 100), BlockRef("b", 100)]
    >>> Conditional().arrange(blocks, [1], [0, 2], history)  # c is more frequent, but not with a
    [2, 0]
    """

    __slots__ = ("prior", "share")

    def __init__(self, prior: float = 0.0, share: float = 0.0) -> None:
        self.prior = prior
        self.share = share

    def arrange(
        self, blocks: Sequence[BlockRef], prefix: Sequence[int], rest: Sequence[int], history: History
    ) -> Sequence[int]:
        """By expected tokens, one after the other, in a long rest as many as there is time for; then all that are left.

        Of equals the better rank comes first.
        """
        alike = history.everyone
        for rank in prefix:
            alike &= history.bits(blocks[rank].key)
        size = len(blocks)
        waiting = [(history.bits(blocks[rank].key), 1 - rank / size, blocks[rank].tokens, rank) for rank in rest]
        order: list[int] = []
        left = _MOST_LOOKED_AT - len(waiting)
        while alike and len(waiting) > 1 and left >= 0:
            weight = self.prior + self.share * alike.bit_count()
            best, most = waiting[0], -1.0
            for candidate in waiting:
                contained, nearness, tokens, _ = candidate
                expected = ((alike & contained).bit_count() + weight * nearness) * tokens
                if expected > most:
                    best, most = candidate, expected
            order.append(best[3])
            waiting.remove(best)
            left -= len(waiting)
            alike &= best[0]
        if alike:
            weight = self.prior + self.share * alike.bit_count()
            waiting.sort(key=lambda one: -((alike & one[0]).bit_count() + weight * one[1]) * one[2])
        elif self.prior:  # nobody else had these: only the prior is left
            waiting.sort(key=lambda candidate: -candidate[1] * candidate[2])
        order.extend(candidate[3] for candidate in waiting)
        return order


POLICIES: Mapping[str, TailPolicy] = {
    "retrieved": Retrieved(),
    "best_last": BestLast(),
    "popular": Popular(),
    "conditional": Conditional(),
    "blended": Conditional(prior=2, share=0.2),
}
"""All policies by name. "blended" is the best single one on nearly all recorded traffic."""

CANDIDATES = ("retrieved", "blended")
"""What `adaptive` chooses among, in order of preference. The first goes out until another has shown a gain over it."""

CANDIDATES_OF_SMALL_CACHES = (*CANDIDATES, "conditional")
"""The same where the cache is limited: what will be asked next matters less there than what many will ask."""
