"""Breaker: a service that fails again and again is left alone for a while, so that failing open costs nothing."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from dataclasses import dataclass

FAILURES = 5
PAUSE = 0.5
PAUSE_MOST = 30.0


@dataclass(frozen=True, slots=True)
class Leave:
    """That somebody may ask now.

    Args:
        round: which of the breaker's rounds it belongs to; what comes of an earlier one no longer matters.
        probe: whether the service is tried again, by this one alone.
    """

    round: int
    probe: bool


class Breaker:
    """Closed: all may ask. Open: nobody may, for a pause. After it one may, and decides. Thread-safe.

    Args:
        clock: seconds that never run backwards.
        failures: so many in a row open it.
        pause: seconds it stays open the first time; each time that it is of no use, twice as long.
        most: seconds it stays open at most.
        jitter: a number from 0 to 1, so that many processes do not come back at once: half of a pause depends on it.

    >>> now = [0.0]
    >>> breaker = Breaker(lambda: now[0], failures=1, pause=1.0, jitter=lambda: 1.0)
    >>> breaker.failed(breaker.ask())
    >>> breaker.ask(), breaker.wait
    (None, 1.0)
    >>> now[0] = 1.0
    >>> breaker.ask(), breaker.ask()
    (Leave(round=1, probe=True), None)
    """

    def __init__(
        self,
        clock: Callable[[], float],
        *,
        failures: int = FAILURES,
        pause: float = PAUSE,
        most: float = PAUSE_MOST,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self._clock = clock
        self._most_failures = failures
        self._first_pause = pause
        self._most = most
        self._jitter = jitter
        self._lock = threading.Lock()
        self._failures = 0
        self._pause = pause
        self._until: float | None = None  # not None: open, or half open from then on
        self._round = 0
        self._probing = False

    @property
    def is_open(self) -> bool:
        """Whether the service is left alone, or tried by one."""
        return self._until is not None

    @property
    def wait(self) -> float:
        """Seconds until somebody may ask; 0: now, or as soon as the one who tries it knows."""
        until = self._until
        return 0.0 if until is None else max(0.0, until - self._clock())

    def ask(self) -> Leave | None:
        """Leave to ask, which has to be answered by one of the methods below; or None."""
        with self._lock:
            if self._until is None:
                return Leave(self._round, probe=False)
            if self._probing or self._clock() < self._until:
                return None
            self._probing = True
            return Leave(self._round, probe=True)

    def succeeded(self, leave: Leave) -> None:
        """The service answered."""
        if not leave.probe and not self._failures:
            return
        with self._lock:
            if leave.round != self._round:
                return
            self._failures = 0
            if leave.probe:
                self._round += 1
                self._pause = self._first_pause
                self._until = None
                self._probing = False

    def failed(self, leave: Leave) -> None:
        """It did not, or with nothing that could be used."""
        with self._lock:
            if leave.round != self._round:
                return
            self._failures += 1
            if leave.probe or self._failures >= self._most_failures:
                pause = self._pause * (0.5 + 0.5 * self._jitter())
                self._pause = min(self._most, self._pause * 2)
                self._open(pause)

    def asked_for_rest(self, leave: Leave, seconds: float) -> None:
        """It asked to be left alone for a while."""
        with self._lock:
            if leave.round == self._round:
                self._open(min(self._most, max(0.0, seconds)))

    def given_up(self, leave: Leave) -> None:
        """Whoever asked went away before there was an answer: nothing was learnt."""
        if leave.probe:
            with self._lock:
                if leave.round == self._round:
                    self._probing = False

    def _open(self, pause: float) -> None:
        self._round += 1
        self._failures = 0
        self._until = self._clock() + pause
        self._probing = False
