"""Which of several engines a request goes to: where it costs least, and never always to the same. Pure.

A request costs what has to be prefilled there before it, and what of its own is not cached there. An engine that was
given much more than its share lately is passed over, as by consistent hashing with bounded loads (Mirrokni, Thorup and
Zadimoghaddam, SODA 2018); weighing what is cached against the load was described by Preble (Srivatsa et al., ICLR
2025). One that has just joined is warmed gradually: what is not cached anywhere goes there first, but no more than its
share.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

BOUND = 1.25
"""What an engine may have been given lately, in shares of the mean."""
SLACK = 4
"""And so many requests more: of a few, one engine has always more than its share."""
UNCACHED = 3
"""What a token that has to be computed costs, in tokens that wait there before: a copy of what is cached elsewhere also
takes time and room from later requests, so a request leaves its prefix only for a queue that much shorter."""
BALANCE = 0.5
"""What an engine that was given twice the mean costs more, in prompts; and one that was given nothing less."""
RAMP_REQUESTS = 32
"""For so many requests an engine that joined counts as joining, and is given no more than its share."""
RAMP_START = 0.5
"""Of its share, at the beginning."""


@dataclass(frozen=True, slots=True)
class Joining:
    """How an engine that has just joined was warmed so far.

    Args:
        requests: that went there since.
        given: tokens to prefill that went there since.
        fair: what each engine was given since, in tokens, on average.
    """

    requests: int
    given: float
    fair: float


@dataclass(frozen=True, slots=True)
class Standing:
    """How an engine stands.

    Args:
        queue: tokens that it has to prefill before a request that comes now.
        recent: tokens to prefill that went there lately; long ago counts less.
        joining: None: it is there as long as the others.
    """

    queue: float = 0
    recent: float = 0
    joining: Joining | None = None


def welcoming(standings: Sequence[Standing], size: float) -> list[int]:
    """The places of those engines that were not given too much lately; all, if that is true of none.

    Args:
        standings: of each engine.
        size: of a request, in tokens.

    >>> welcoming([Standing(recent=9_000), Standing(recent=1_000)], 500), welcoming([Standing(recent=9_000)], 500)
    ([1], [0])
    """
    if not standings:
        return []
    mean = sum(standing.recent for standing in standings) / len(standings)
    slack = SLACK * size
    places = [
        place
        for place, standing in enumerate(standings)
        if standing.recent <= BOUND * mean + slack and _ramped(standing.joining, slack)
    ]
    return places or list(range(len(standings)))


def choose(
    standings: Sequence[Standing], tokens: int, uncached: Callable[[int], float], usual: float = 0
) -> tuple[int, float]:
    """The engine where a request costs least: its place, and what of the request is not cached there.

    Of equal ones, the one that was given less lately; then the first.

    Args:
        standings: of each engine; at least one.
        tokens: of the request.
        uncached: tokens of the request that are not cached at a place. Not asked where no answer could win.
        usual: tokens to prefill of other requests.

    >>> asked = [200, 1_000].__getitem__
    >>> choose([Standing(queue=900), Standing()], 1_000, asked), choose([Standing(3_000), Standing()], 1_000, asked)
    ((0, 200), (1, 1000))
    """
    mean = sum(standing.recent for standing in standings) / len(standings)
    size = max(tokens, usual)
    before = {}
    for place in welcoming(standings, size):
        skew = min(1.0, (standings[place].recent - mean) / (mean + SLACK * size or 1))
        before[place] = standings[place].queue + BALANCE * tokens * skew
    first, *others = sorted(before, key=lambda place: (before[place], place))
    own = uncached(first)
    best = (before[first] + UNCACHED * own, standings[first].recent, first)
    for place in others:
        if before[place] > best[0]:
            break  # here and further on, even a request that is cached as a whole would cost more
        missing = uncached(place)
        found = (before[place] + UNCACHED * missing, standings[place].recent, place)
        if found < best:
            best, own = found, missing
    return best[2], own


def _ramped(joining: Joining | None, slack: float) -> bool:
    if joining is None or joining.requests >= RAMP_REQUESTS:
        return True
    level = RAMP_START + (1 - RAMP_START) * joining.requests / RAMP_REQUESTS
    return joining.given <= level * joining.fair + slack
