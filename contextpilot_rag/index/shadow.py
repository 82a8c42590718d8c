"""Which tail policy suits this traffic: a shadow tree for each, and the choice of the one that would have hit most.

A shadow is a prefix tree that lives as if its policy had ordered every request it has seen, under the same capacity as
the engine's cache. No engine stands behind it; it only counts the tokens that would have been cached. One such set
belongs to one namespace, so traffic of one kind never decides for another.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Protocol

from msgspec import Meta, Struct

from ..types import BlockRef
from .history import History
from .placement import PlacementRule, fit, remaining
from .tail import CANDIDATES, POLICIES, TailPolicy
from .tree import PrefixTree

SHADOW_BLOCKS = 50_000

PACE = 1_000
"""Entries that a tree drops at once: some milliseconds' work, for which requests of the namespace wait."""

# The first requests are all shown to the shadows, so that the choice comes early. After that a burst in each cycle is
# enough; it is unbroken because neighbours in time share the most.
EARLY = 1_024
CYCLE = 512
BURST = 64

# Hysteresis. The retriever's order is left for the first candidate, in order of preference, that has found half a block
# of fifteen more than it: a gain is shown, and little time is lost. After that, another policy takes over only when it
# leads by this share of what the present one would have hit and by this many average prompts besides. Old requests
# count for less and less.
FIRST_LEAD_PROMPTS = 0.03
LEAD_PROMPTS = 0.5
LEAD_SHARE = 0.02
HALF_LIFE = 300  # requests shown


Amount = Annotated[float, Meta(ge=0, lt=2**80)]


class Standing(Struct, array_like=True, forbid_unknown_fields=True, tag="standing"):
    """How the policies compare, for a state that is saved: counts in units of the newest request.

    Args:
        following: the policy that was followed.
        switches: how often it changed.
        asked: requests so far.
        seen: those that were shown to the shadows.
        sent: their tokens.
        hits: tokens that each policy would have found cached.
    """

    following: str
    switches: Annotated[int, Meta(ge=0)]
    asked: Annotated[int, Meta(ge=0)]
    seen: Amount
    sent: Amount
    hits: dict[str, Amount]


class Tail(Protocol):
    """Tails of one namespace: arranges them and learns from what was asked. Not thread-safe: its owner holds a lock."""

    def arrange(self, blocks: Sequence[BlockRef], prefix: Sequence[int], rest: Sequence[int]) -> Sequence[int]:
        """The order of the rest, as `TailPolicy.arrange`."""
        ...

    def learn(self, blocks: Sequence[BlockRef], rule: PlacementRule | None = None) -> None:
        """Take a request into account; ``rule`` says which placements its budget allows."""
        ...

    @property
    def history(self) -> History:
        """The recent requests."""
        ...

    @property
    def entries(self) -> int:
        """Entries kept for it in memory."""
        ...

    def resize(self, capacity_tokens: int | None) -> None:
        """Imagine a cache of another size from now on."""
        ...

    def standing(self) -> Standing | None:
        """How its policies compare; None: it has but one."""
        ...

    def resume(self, standing: Standing) -> None:
        """Go on from there, as far as the same policies are compared here."""
        ...


class FixedTail:
    """One policy for all requests, and the history that it looks at.

    >>> tail = FixedTail(POLICIES["popular"], History())
    >>> a, b = BlockRef("a", 1), BlockRef("b", 1)
    >>> tail.learn([b])
    >>> tail.arrange([a, b], [], [0, 1])
    [1, 0]
    """

    def __init__(self, policy: TailPolicy, history: History) -> None:
        self._policy = policy
        self.history = history

    def arrange(self, blocks: Sequence[BlockRef], prefix: Sequence[int], rest: Sequence[int]) -> Sequence[int]:
        """By the policy."""
        return self._policy.arrange(blocks, prefix, rest, self.history)

    def learn(self, blocks: Sequence[BlockRef], rule: PlacementRule | None = None) -> None:  # noqa: ARG002
        """Remember the request."""
        self.history.add(block.key for block in blocks)

    @property
    def entries(self) -> int:
        """Of the history."""
        return self.history.entries

    def resize(self, capacity_tokens: int | None) -> None:
        """It imagines none."""

    def standing(self) -> Standing | None:
        """It has but one policy."""
        return None

    def resume(self, standing: Standing) -> None:
        """There is nothing to go on from."""


class _Shadow:
    __slots__ = ("hits", "policy", "tree")

    def __init__(self, policy: TailPolicy, tree: PrefixTree) -> None:
        self.policy = policy
        self.tree = tree
        self.hits = 0.0  # tokens, in units that grow with time: see AdaptiveTail.learn


class AdaptiveTail:
    """Follows the policy that would have hit most on recent traffic.

    Starts with the first candidate, the retriever's order, and leaves it only for one that has shown a gain.

    Args:
        history: recent requests of the namespace.
        candidates: names of the policies compared.
        capacity_tokens: what the engine's cache holds.
        max_blocks: entries kept for each shadow.

    >>> tail = AdaptiveTail(History())
    >>> tail.following
    'retrieved'
    """

    def __init__(
        self,
        history: History,
        candidates: Sequence[str] = CANDIDATES,
        capacity_tokens: int | None = None,
        max_blocks: int = SHADOW_BLOCKS,
    ) -> None:
        self.history = history
        self._shadows = {
            name: _Shadow(POLICIES[name], PrefixTree(capacity_tokens, max_blocks, PACE)) for name in candidates
        }
        self.following = candidates[0]
        self.switches = 0
        self._asked = 0
        self._unit = 1.0
        self._sent = 0.0  # tokens, in the same units as the hits
        self._seen = 0.0  # requests, likewise

    def arrange(self, blocks: Sequence[BlockRef], prefix: Sequence[int], rest: Sequence[int]) -> Sequence[int]:
        """By the policy that is followed now."""
        return self._shadows[self.following].policy.arrange(blocks, prefix, rest, self.history)

    def learn(self, blocks: Sequence[BlockRef], rule: PlacementRule | None = None) -> None:
        """Show the request to the shadows, if it is in the sample, and remember it."""
        if self._asked < EARLY or self._asked % CYCLE < BURST:
            # Instead of shrinking all counts with each request, let the unit of new ones grow.
            self._unit *= 2 ** (1 / HALF_LIFE)
            self._seen += self._unit
            self._sent += self._unit * sum(block.tokens for block in blocks)
            for shadow in self._shadows.values():
                shadow.hits += self._unit * self._imagine(shadow, blocks, rule)
            self._choose()
            if self._unit > 2**64:
                self._rescale()
        self._asked += 1
        self.history.add([block.key for block in blocks])

    @property
    def blocks(self) -> int:
        """Entries in all shadow trees."""
        return sum(shadow.tree.blocks for shadow in self._shadows.values())

    @property
    def entries(self) -> int:
        """Of the shadow trees and the history."""
        return self.blocks + self.history.entries

    def resize(self, capacity_tokens: int | None) -> None:
        """Give the shadows another capacity; evict what no longer fits."""
        for shadow in self._shadows.values():
            if shadow.tree.capacity_tokens != capacity_tokens:
                shadow.tree.resize(capacity_tokens)

    def standing(self) -> Standing:
        """How the policies compare now."""
        hits = {name: shadow.hits / self._unit for name, shadow in self._shadows.items()}
        seen, sent = self._seen / self._unit, self._sent / self._unit
        return Standing(self.following, self.switches, self._asked, seen, sent, hits)

    def resume(self, standing: Standing) -> None:
        """Go on from there; the shadows themselves begin empty, all alike. With other candidates, all begins anew."""
        if standing.hits.keys() != self._shadows.keys() or standing.following not in self._shadows:
            return
        self.following, self.switches, self._asked = standing.following, standing.switches, standing.asked
        self._unit, self._seen, self._sent = 1.0, standing.seen, standing.sent
        for name, shadow in self._shadows.items():
            shadow.hits = standing.hits[name]

    def _imagine(self, shadow: _Shadow, blocks: Sequence[BlockRef], rule: PlacementRule | None) -> int:
        """What this policy would have found cached, and its picture of the cache afterwards."""
        prefix = shadow.tree.heaviest_prefix(blocks, rule)
        rest = remaining(len(blocks), prefix.ranks)
        order = fit(prefix.ranks, shadow.policy.arrange(blocks, prefix.ranks, rest, self.history), rule)
        shadow.tree.insert([blocks[rank] for rank in order])
        return prefix.tokens

    def _choose(self) -> None:
        mine = self._shadows[self.following].hits
        prompt = self._unit * self._sent / self._seen
        if not self.switches:
            # In order of preference, not by size: so early, sizes are mostly luck.
            bar = mine + FIRST_LEAD_PROMPTS * prompt
            best = next((name for name, shadow in self._shadows.items() if shadow.hits > bar), self.following)
        else:
            bar = mine + LEAD_SHARE * mine + LEAD_PROMPTS * prompt
            best = max(self._shadows, key=lambda name: self._shadows[name].hits)
            if self._shadows[best].hits <= bar:
                return
        self.switches += best != self.following
        self.following = best

    def _rescale(self) -> None:
        for shadow in self._shadows.values():
            shadow.hits /= self._unit
        self._sent /= self._unit
        self._seen /= self._unit
        self._unit = 1.0
