"""How much of an arm's prompts a prefix cache finds: predicted for the whole traffic, and as the engine reported it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from ..identity import block_key
from ..index.tree import PrefixTree
from ..tokens import CountTokens, TokenCounter, Tokenizer
from ..types import BlockRef
from .making import made
from .prompting import SYSTEM
from .words import Arm, Case, Prompted, Question

_CUTS = re.compile(r"\n\n|\n(?=</documents>)")  # a block is the same block, whether another one follows or none


@dataclass(frozen=True, slots=True)
class Share:
    """What a cache finds of an arm's prompts, in tokens.

    Args:
        sent: of all prompts.
        cached: of these, found in the cache.
    """

    sent: int
    cached: int

    @property
    def ratio(self) -> float:
        """Tokens found over tokens sent."""
        return self.cached / self.sent if self.sent else 0.0

    @property
    def computed(self) -> int:
        """What is left to compute. Arms may add to their prompts, or leave out: this is what they are chosen by."""
        return self.sent - self.cached


def shares(
    questions: Sequence[Question],
    arms: Iterable[Arm],
    *,
    system: str = SYSTEM,
    tokenizer: Tokenizer | CountTokens | None = None,
    capacity_tokens: int | None = None,
) -> dict[str, Share]:
    """For each arm, by name, what a cache would find of all traffic, of whole prompts.

    Args:
        questions: in the order of the traffic; whether they are asked does not matter.
        arms: which.
        system: the system prompt.
        tokenizer: counts tokens; None: estimates.
        capacity_tokens: the cache's size; None: it never evicts.
    """
    counter = TokenCounter(tokenizer)
    traffic = [replace(question, asked=True) for question in questions]
    found = {}
    for arm, prompts in made(traffic, arms, system=system, tokenizer=tokenizer):
        cache = PrefixTree(capacity_tokens)
        sent = cached = 0
        for _, prompt in prompts:
            parts = _parts(prompt, counter)
            sent += sum(part.tokens for part in parts)
            cached += cache.cached_tokens(parts)[1]
            cache.insert(parts)
        found[arm.name] = Share(sent, cached)
    return found


def _parts(prompt: Prompted, counter: TokenCounter) -> list[BlockRef]:
    """A prompt, cut where blocks end; each part goes by its place, too, so that none comes twice."""
    texts = [part for message in prompt.messages for part in _CUTS.split(str(message["content"]))]
    keys = [block_key(text) for text in texts]
    return [BlockRef((place, key), counter.count(texts[place], key)) for place, key in enumerate(keys)]


def reported(cases: Sequence[Case]) -> dict[str, float]:
    """The cached share that the engine reported, by arm, of the prompts that were asked for this arm first.

    Arms of one layout share the engine's cache, so only the first of each layout is told. It is a floor: what is equal
    to another arm's prompt was asked there, and of the traffic only a sample is asked.
    """
    first: dict[str, str] = {}
    asked: set[str] = set()
    found: dict[str, list[int]] = {}
    for case in cases:
        name, outcome = case.arm.name, case.outcome
        own = first.setdefault(case.arm.layout, name) == name and outcome.key not in asked
        asked.add(outcome.key)
        if own and outcome.cached_tokens is not None:
            sums = found.setdefault(name, [0, 0])
            sums[0] += outcome.cached_tokens
            sums[1] += outcome.prompt_tokens
    return {name: cached / max(1, sent) for name, (cached, sent) in found.items()}
