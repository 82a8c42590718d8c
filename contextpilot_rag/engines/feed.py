"""Feed: the messages of one engine's rank, in order and each once, whatever the way to here drops, doubles or delays.

A message has a number, one more than the one before it; an engine that starts anew begins with 0. What is missing can
be asked for again (a replay). A replay is always asked from the last message that we have: that it is there, and the
same, shows that it is still the same life of the engine, which no number alone can show. Where what is missing cannot
be had, all that was told before is of no use any more (`Lost`), and telling begins anew.

Nothing here is sent or received, and no clock is read: whoever does that says what came and when, and is told what to
do.
"""

from __future__ import annotations

from dataclasses import dataclass

from .kv import Batch
from .marks import later, mark, weight
from .steps import Action, Ask, FeedCounts, InStep, Lost, Pass, Unanswered

PATIENCE = 10.0
PAUSE = 30.0
"""Seconds without replays after one that was not answered."""
CHECK = 30.0
"""Seconds without a message after which a replay tells whether there is one that did not arrive."""
SOON = 1.0
"""Seconds after connecting for the first such check: until a subscription has arrived, all that is sent is missed."""
HELD = 4096
HELD_TOKENS = 1_000_000
"""And names of KV blocks; about 40 MB."""
RECENT = 1024
_TRIES = 3
_OLD = 16  # old messages in a row that are not known


@dataclass(slots=True)
class _Replay:
    """One that was asked for."""

    number: int
    since: float  # the last time that something of it came
    last: int | None  # what we had when it was asked for
    same: bool  # that it is the same life of the engine: shown, or nothing to show


class Feed:
    """See above. Not thread-safe. Every method but `check` that is told something returns what is to be done.

    Args:
        replay: there is somebody to ask for replays.
        patience: seconds to wait for an answer.
    """

    def __init__(self, *, replay: bool, patience: float = PATIENCE) -> None:
        self.counts = FeedCounts()
        self.last: int | None = None  # the last message passed on; -1: the engine has sent none yet; None: not known
        self.in_step = False  # connected, and nothing missing since the start or the last `Lost`
        self.complete = False  # since the engine's very first message
        self._replays, self._patience = replay, patience
        self._connected = False
        self._sure = False  # that it is the life of the engine that `last` belongs to
        self._fresh = True  # nothing was told yet
        self._told = False  # something was passed on since the start or the last `Lost`
        self._at: float | None = None  # of the last one
        self._epoch: str | None = None
        self._recent: dict[int, int | None] = {}  # number: what it was, for the last ones
        self._held: dict[int, Batch | None] = {}  # arrived, but something before them is missing
        self._weight = 0
        self._old_ones = (0, -1)  # unknown old messages that followed each other, and the number of the last
        self._no_doubt = 0.0  # until then
        self._heard = -1  # the highest number that arrived and was not passed on
        self._asked: _Replay | None = None
        self._asks = 0
        self._tries = 0  # replays in a row that brought nothing forward
        self._not_before = 0.0
        self._next_check = 0.0
        self._out: list[Action] = []

    def connected(self, now: float) -> list[Action]:
        """The engine's messages arrive from now on."""
        self._connected, self._next_check = True, now + SOON
        self._not_before = 0.0  # it may be another engine, that answers
        if not self._fresh and (self.last is None or not self._replays):
            self._lose("the connection broke, and nobody can be asked for what was missed")
            self.last = None
        self._sure = not self._replays
        if self._replays:
            self._ask(now)
        return self._done(now)

    def disconnected(self, now: float) -> list[Action]:
        """They do not. What we have stays true until we are connected again, if somebody can be asked then."""
        self._connected, self._sure, self._asked = False, False, None
        self._drop_held()
        if not self._replays and not self._fresh:
            self._lose("the connection broke, and nobody can be asked for what was missed")
            self.last = None
        return self._done(now)

    def live(self, now: float, number: int, batch: Batch | None) -> list[Action]:
        """A message came.

        Args:
            now: seconds of a clock that never runs backwards.
            number: the message's.
            batch: what it says; None: that was not understood.
        """
        if self.last is None or number > self.last:
            self._next_check = now + CHECK
        earlier = self._earlier(batch)
        if batch is not None and None not in (batch.epoch, self._epoch) and batch.epoch != self._epoch:
            self._restart(now, "the engine says so", number, batch)
        elif self.last is None and self._asked is None:
            self._begin(number)
            self._pass(number, batch)
        elif self.last is None:
            self._hold(number, batch)
        elif number <= self.last:
            self._old(now, number, batch, earlier=earlier)
        elif earlier and (self._asked is not None or self._can_ask(now)):
            # Of an earlier life, or the engine's clock was put back. A replay shows which, and brings it if so.
            self._next_check = now + SOON
            if self._asked is None:
                self._ask(now)
        elif earlier:
            self._restart(now, "the engine's clock went back", number, batch)
        elif self._sure and number == self.last + 1:
            self._pass(number, batch)
            self._drain()
        else:
            self._hold(number, batch)
            self._need(now, number)
        return self._done(now)

    def replayed(self, now: float, ask: int, number: int, batch: Batch | None) -> list[Action]:
        """A message of a replay came.

        Args:
            now: as for `live`.
            ask: which replay's, as `Ask.ask`.
            number: as for `live`.
            batch: as for `live`.
        """
        asked = self._asked
        if asked is None or asked.number != ask:
            return []
        asked.since = now
        if self.last is None:
            self._begin(number)
        last = number - 1 if self.last is None else self.last
        if number <= last:
            its, known = mark(batch), self._recent.get(number)
            if number in self._recent and None not in (known, its) and known != its:
                self._restart(now, "another message has the number of one that we have", None, None)
            elif number in self._recent:
                asked.same = self._sure = True
                self._drain()
            return self._done(now)
        if not asked.same:  # it begins behind the last one that we have
            self._lose("what was missed is not kept there any more")
            self._begin(number)
            asked.same, last = True, number - 1
        if number == last + 1:
            self._sure = True
            self._pass(number, batch)
            self._drain()
        else:
            self._hold(number, batch, instead=True)
        return self._done(now)

    def replay_over(self, now: float, ask: int) -> list[Action]:
        """A replay is at its end.

        Args:
            now: as for `live`.
            ask: which, as `Ask.ask`.
        """
        asked = self._asked
        if asked is None or asked.number != ask:
            return []
        self._asked, self._not_before = None, 0.0
        if self.last is None and 0 in self._held:
            self._begin(0)
        if self.last is None and not self._held:
            self.last, self.complete = -1, True
        elif not asked.same:
            self._restart(now, "the last message that we have is not known there", None, None)
            return self._done(now)
        self._sure = True
        self._drain()
        if self._missing:
            self._try_again(now, asked, "what was missed is not kept there")
        return self._done(now)

    def tick(self, now: float) -> list[Action]:
        """Time passed."""
        asked = self._asked
        if asked is not None and now - asked.since >= self._patience:
            self._asked = None
            if asked.last != self.last:  # it brought something, and broke off
                self._try_again(now, asked, "replays break off")
            else:
                self._not_before = now + PAUSE
                self._out.append(Unanswered(asked.number))
                if self._missing or not self._sure:
                    self._give_up("a replay was not answered")
        elif asked is None and now >= self._next_check and self._can_ask(now):
            self._ask(now)
        return self._done(now)

    def check(self, now: float) -> list[Action]:
        """Ask now whether there is a message that did not arrive."""
        if self._asked is None and self._connected and self._replays:
            self._ask(now)
        return self._done(now)

    @property
    def asking(self) -> int | None:
        """The replay that is waited for."""
        return None if self._asked is None else self._asked.number

    @property
    def _missing(self) -> bool:
        return bool(self._held) or self._heard > (-1 if self.last is None else self.last)

    def _can_ask(self, now: float) -> bool:
        return self._replays and self._connected and now >= self._not_before

    def _ask(self, now: float) -> None:
        self._asks += 1
        self.counts.replays += 1
        self._next_check = now + CHECK
        self._asked = _Replay(self._asks, now, self.last, same=self.last in (None, -1))
        self._out.append(Ask(self._asks, max(self.last or 0, 0)))

    def _need(self, now: float, number: int) -> None:
        """What is missing before a message, or what it belongs to, has to be found out."""
        self._heard = max(self._heard, number)
        if self._asked is not None:
            return
        self.counts.gaps += 1
        if self._can_ask(now):
            self._ask(now)
        else:
            self._give_up("messages were missed, and nobody can be asked for them")

    def _try_again(self, now: float, asked: _Replay, why: str) -> None:
        self._tries = 0 if asked.last != self.last else self._tries + 1
        if self._tries < _TRIES and self._can_ask(now):
            self._ask(now)
        else:
            self._not_before = now + PAUSE
            self._give_up(why)

    def _give_up(self, why: str) -> None:
        self._tries = 0
        self._lose(why)
        self._jump()

    def _old(self, now: float, number: int, batch: Batch | None, *, earlier: bool) -> None:
        """A message with a number that was passed: it came twice or late, or the engine started anew."""
        its, known = mark(batch), self._recent.get(number)
        timed = batch is not None and batch.at is not None and self._at is not None
        same = number in self._recent and (known == its or None in (known, its))
        if same or (timed and (earlier or batch is None or batch.at == self._at)):
            self.counts.duplicates += 1
            if not same:
                self._doubt(now, number, batch)
        elif timed or number in self._recent or not (self._asked is not None or self._can_ask(now)):
            self._restart(now, "its numbers begin anew", number, batch)
        else:
            self.counts.duplicates += 1
            if self._asked is None:
                self._ask(now)

    def _doubt(self, now: float, number: int, batch: Batch | None) -> None:
        """A message is old, and not known. If many are, what was taken for the last message may never have been one."""
        count, before = self._old_ones
        self._old_ones = (count + 1 if number == before + 1 else 1), number
        if self._old_ones[0] < _OLD or self._asked is not None or now < self._no_doubt:
            return
        self._old_ones = 0, -1
        if self._replays and self._connected:
            self._no_doubt = now + PAUSE
            self._ask(now)
        else:
            self._restart(now, "its numbers begin anew", number, batch)

    def _restart(self, now: float, why: str, number: int | None, batch: Batch | None) -> None:
        self.counts.restarts += 1
        self._lose(f"the engine started anew: {why}")
        self._drop_held()
        self._asked, self._tries = None, 0
        self.last, self._epoch = None, None
        self._recent.clear()
        if number is not None:
            self._hold(number, batch)
        if self._can_ask(now):
            self._ask(now)
        else:
            self._jump()

    def _lose(self, why: str) -> None:
        self.complete = self._told = False
        self._at = None
        if not self._fresh:
            self.counts.lost += 1
            self.in_step = False
            self._out.append(Lost(why))

    def _begin(self, number: int) -> None:
        """Take a message for the first one."""
        self.last, self._sure, self.complete = number - 1, True, number == 0
        self._recent.clear()
        for one in [one for one in self._held if one < number]:
            self._take(one)

    def _jump(self) -> None:
        """Go on with the newest messages that follow each other without a gap."""
        numbers = sorted(self._held)
        if not numbers:
            self.last, self._heard, self._sure = None, -1, True
            self._recent.clear()
            return
        start = numbers[-1]
        while start - 1 in self._held:
            start -= 1
        self._begin(start)
        self._heard = -1
        self._drain()

    def _hold(self, number: int, batch: Batch | None, *, instead: bool = False) -> None:
        known = self._held.get(number)
        if number in self._held and not instead:
            self.counts.duplicates += 1
            if not later(batch, known):
                return
        self._take(number)
        more = weight(batch)
        self._heard = max(self._heard, number)
        if len(self._held) >= HELD or self._weight + more > HELD_TOKENS:
            return  # that it was there is remembered: there will be another replay
        self._held[number] = batch
        self._weight += more

    def _drop_held(self) -> None:
        self._held.clear()
        self._weight, self._heard = 0, -1

    def _drain(self) -> None:
        if not self._sure or self.last is None:
            return
        while self.last + 1 in self._held:
            batch = self._held[self.last + 1]
            if self._earlier(batch):  # left over from an earlier life: a replay brings what belongs here
                self._take(self.last + 1)
                return
            self._pass(self.last + 1, batch)

    def _earlier(self, batch: Batch | None) -> bool:
        return self._at is not None and batch is not None and batch.at is not None and batch.at < self._at

    def _take(self, number: int) -> None:
        if number in self._held:
            self._weight -= weight(self._held.pop(number))

    def _pass(self, number: int, batch: Batch | None) -> None:
        self.last, self._tries = number, 0
        self._take(number)
        self._recent[number] = mark(batch)
        if len(self._recent) > RECENT:
            del self._recent[next(iter(self._recent))]
        if batch is None:  # whatever it removed is not known: nothing that was told before can be relied on
            if self._told:
                self._lose("a message was not understood")
            return
        self._fresh, self._told = False, True
        self._at = self._at if batch.at is None else batch.at
        self._epoch = self._epoch if batch.epoch is None else batch.epoch
        self.counts.passed += 1
        self._out.append(Pass(number, batch))

    def _done(self, now: float) -> list[Action]:
        if self._connected and self._sure and self._asked is None and self._missing:
            self._need(now, self._heard)
        in_step = self._connected and self._sure and not self._missing
        in_step = in_step and (self.in_step or self._asked is None)  # a replay under way tells what was, not what is
        if in_step and not self.in_step:
            self._fresh = False
            self._out.append(InStep(self.complete))
        self.in_step = in_step
        out, self._out = self._out, []
        return out
