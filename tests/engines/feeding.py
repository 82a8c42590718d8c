"""What a feed says is to be done, remembered; and batches to give it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from contextpilot_rag.engines.feed import Feed
from contextpilot_rag.engines.kv import Batch, Removed
from contextpilot_rag.engines.steps import Ask, InStep, Lost, Pass, Unanswered


def batch(number, life=0, at=True, epoch=None):
    return Batch((Removed((life * 1_000_000 + number,)),), at=life * 10_000.0 + number if at else None, epoch=epoch)


@dataclass
class Heard:
    """What a feed said is to be done."""

    told: list[Any] = field(default_factory=list)  # (number, batch) since the last Lost
    lost: list[str] = field(default_factory=list)
    asks: list[tuple[int, int]] = field(default_factory=list)
    in_step: list[bool] = field(default_factory=list)
    unanswered: int = 0

    def __call__(self, actions):
        for action in actions:
            if isinstance(action, Pass):
                self.told.append((action.number, action.batch))
            elif isinstance(action, Lost):
                self.lost.append(action.why)
                self.told = []
            elif isinstance(action, Ask):
                self.asks.append((action.ask, action.start))
            elif isinstance(action, Unanswered):
                self.unanswered += 1
            else:
                assert isinstance(action, InStep)
                self.in_step.append(action.complete)

    @property
    def numbers(self):
        return [number for number, _ in self.told]


def answer(feed, heard, batches, now=0.0, most=100):
    """Answer all that was asked, from what an engine keeps."""
    while heard.asks and most:
        most -= 1
        ask, start = heard.asks.pop(0)
        for number, one in batches:
            if number >= start:
                heard(feed.replayed(now, ask, number, one))
        heard(feed.replay_over(now, ask))


def following(numbers=range(3), replay=True, **more):
    """A feed that has passed on these."""
    feed, heard = Feed(replay=replay), Heard()
    heard(feed.connected(0.0))
    answer(feed, heard, [])
    for number in numbers:
        heard(feed.live(0.0, number, batch(number, **more)))
    assert heard.numbers == list(numbers)
    return feed, heard
