"""Tally: figures of some requests, in tokens. Every place that counts requests adds these up."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Tally:
    """Sums over requests. Two sums and never a ratio: ratios cannot be added.

    The reported figures are of whole prompts as the engine counts, and only of reports that say both what the prompt
    was and what was cached; the others are of blocks.

    Args:
        requests: aligned, or taken as sent.
        changed: in another order than the retriever's.
        block_tokens: of their blocks.
        predicted: believed cached in the order chosen.
        retrieved: believed cached in the retriever's order.
        dedup: of blocks that a conversation had before, and that a hint replaces.
        reports: usage reports that say what was cached.
        reported_prompt: prompt tokens of these.
        reported_cached: cached tokens of these.
        reported_predicted: what had been expected of these, with what stands before the blocks where that is known;
            against ``reported_cached`` it is the calibration.
        not_reported: usage reports that do not say what was cached.
    """

    requests: int = 0
    changed: int = 0
    block_tokens: int = 0
    predicted: int = 0
    retrieved: int = 0
    dedup: int = 0
    reports: int = 0
    reported_prompt: int = 0
    reported_cached: int = 0
    reported_predicted: int = 0
    not_reported: int = 0

    def add(self, other: Tally) -> None:
        """Add another to this one."""
        if other.requests:
            self.requests += other.requests
            self.changed += other.changed
            self.block_tokens += other.block_tokens
            self.predicted += other.predicted
            self.retrieved += other.retrieved
            self.dedup += other.dedup
        if other.reports or other.not_reported:
            self.reports += other.reports
            self.reported_prompt += other.reported_prompt
            self.reported_cached += other.reported_cached
            self.reported_predicted += other.reported_predicted
            self.not_reported += other.not_reported


@dataclass(frozen=True, slots=True)
class Shares:
    """What a tally amounts to; None: nothing to divide by.

    Args:
        predicted: of the blocks' tokens, believed cached.
        retrieved: the same, had the retriever's order been kept.
        reported: of the reported prompts' tokens, cached as the engine says.
        calibration: reported over predicted cached tokens, of the requests that were reported.
        changed: of the requests, in another order than the retriever's.
        dedup: of the blocks' tokens, replaced by hints.
    """

    predicted: float | None
    retrieved: float | None
    reported: float | None
    calibration: float | None
    changed: float | None
    dedup: float | None

    @classmethod
    def of(cls, tally: Tally) -> Shares:
        """Those of a tally.

        >>> Shares.of(Tally(requests=2, changed=1, block_tokens=100, predicted=40)).predicted
        0.4
        """
        return cls(
            predicted=_share(tally.predicted, tally.block_tokens),
            retrieved=_share(tally.retrieved, tally.block_tokens),
            reported=_share(tally.reported_cached, tally.reported_prompt),
            calibration=_share(tally.reported_cached, tally.reported_predicted),
            changed=_share(tally.changed, tally.requests),
            dedup=_share(tally.dedup, tally.block_tokens),
        )


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None
