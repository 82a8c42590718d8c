"""Counts: what the proxy did. Counting is a few additions; `exposition` makes text of it when asked.

Nothing here grows with what clients send, and no tenant is named.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from typing import Any

from ..service.metrics import Histogram
from ..types import Usage
from .words import Report

OTHER = "other"
_SECONDS = (0.0005, 0.001, 0.002, 0.003, 0.005, 0.0075, 0.012, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
_NAMES = 100  # of outcomes and of reasons; further ones go under "other"


class Counts:
    """Counts since the process began. Not thread-safe: the event loop owns it.

    Args:
        clock: seconds that never run backwards.

    Attributes:
        requests: by API (or "other") and what became of them.
        responses: by API and class of status.
        seconds: until a request was forwarded, of those in a format that is known.
        failures: what failed inside, by reason; the requests passed as they were.
        blocks: in groups that were recognised.
        orders_changed: requests whose blocks stand in another order than they came in.
        replaced: parts of prompts that location hints stand for.
        left_out: characters that were not sent because of them.
        predicted: tokens of blocks that were believed cached.
        reported_prompt: prompt tokens of answers that say what was cached.
        reported_cached: of these, cached.
        not_reported: answers with usage that does not say what was cached.
        streams: requests that are being answered now.
        tell: is told of each request.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self.started = clock()
        self.requests: Counter[tuple[str, str]] = Counter()
        self.responses: Counter[tuple[str, str]] = Counter()
        self.seconds = Histogram(_SECONDS)
        self.failures: Counter[str] = Counter()
        self.blocks = 0
        self.orders_changed = 0
        self.replaced = 0
        self.left_out = 0
        self.predicted = 0
        self.reported_prompt = 0
        self.reported_cached = 0
        self.not_reported = 0
        self.streams = 0
        self.tell: Callable[[], None] | None = None

    def took(self, api: str, status: int, seconds: float, outcome: str) -> None:
        """A request was forwarded, or refused.

        Args:
            api: its format; "other": none that is known.
            status: of the answer.
            seconds: of ours, until it was forwarded.
            outcome: what became of it, in a word.
        """
        if self.tell is not None:
            self.tell()
        _count(self.requests, (api, outcome), (api, OTHER))
        _count(self.responses, (api, f"{status // 100}xx"), (api, OTHER))
        if api != OTHER:
            self.seconds.add(seconds)

    def done(self, report: Report) -> None:
        """Something was done to a request, or looked for."""
        self.blocks += report.blocks
        self.orders_changed += report.changed
        self.replaced += report.replaced
        self.left_out += report.left_out
        self.predicted += report.predicted_cached_tokens

    def observed(self, usage: Usage | None) -> None:
        """An answer said what it took."""
        if usage is None:
            return
        if usage.cached_tokens is None or usage.prompt_tokens is None:
            self.not_reported += 1
            return
        self.reported_prompt += usage.prompt_tokens
        self.reported_cached += usage.cached_tokens

    def failed(self, reason: str) -> None:
        """Something failed inside."""
        _count(self.failures, reason, OTHER)


def _count(counter: Counter[Any], name: object, otherwise: object) -> None:
    if name not in counter and len(counter) >= _NAMES:
        name = otherwise
    counter[name] += 1
