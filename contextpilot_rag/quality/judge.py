"""Judge: whether answers to aligned requests are worse than those to requests sent as retrieved.

Only requests that alignment would reorder say anything of it. Of these a share goes out as retrieved, chosen by a hash
of the request, so that nothing but chance tells them from the others: the control.

What is decided holds with ratings that come one at a time, are looked at after each, and go on for ever. Ratings are
gathered in epochs. Each has bounds of its own (`effect`), and so much of the chance of an error that all epochs
together, however many, have `ERROR`. An epoch ends when it has decided something, or is full; then the old ratings are
gone, so that a new model is judged by its own answers.

While alignment is off, as many requests are aligned, for trial, as are the control. From then on the namespace is
judged by these two alone, also when alignment is back: then a rating that comes late, of a request that was sent before
alignment was turned off or on, is like any other.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Literal

from ..forking import after_fork, was_held
from ..types import Arm, Namespace
from .effect import Effect

ERROR = 0.05  # the chance that alignment is ever turned off where answers are no worse than allowed
EPOCH = 20_000  # ratings
_BITS = 17  # of an epoch's memory for requests that were rated: 16 KiB

Role = Literal["aligned", "control", "off"]


@dataclass(frozen=True, slots=True)
class Rated:
    """What was said of the answers to one half of the requests, in the present epoch.

    Args:
        count: ratings.
        mean: of them; None: there are none.
    """

    count: int = 0
    mean: float | None = None

    def plus(self, score: float) -> Rated:
        """With one rating more."""
        count = self.count + 1
        return Rated(count, score if self.mean is None else self.mean + (score - self.mean) / count)


@dataclass(frozen=True, slots=True)
class Quality:
    """How a namespace's answers were rated, and what follows.

    Args:
        off: alignment is turned off.
        aligned: of requests that were reordered.
        control: of requests that would have been, and were sent as retrieved.
        lower: what alignment does to the mean rating is not below this; sure enough, at every look.
        upper: nor above this.
        epoch: which it is, from 1.
        turned_off: how often alignment was.
    """

    off: bool = False
    aligned: Rated = Rated()
    control: Rated = Rated()
    lower: float = -1.0
    upper: float = 1.0
    epoch: int = 1
    turned_off: int = 0


@dataclass(slots=True)
class _Space:
    """What is known of a namespace; the effect, the arms' ratings and the requests seen are of the present epoch."""

    share: float
    off: bool = False
    epoch: int = 0
    turned_off: int = 0
    effect: Effect = field(init=False)
    arms: dict[Arm, Rated] = field(init=False)
    seen: bytearray = field(init=False)

    def __post_init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """The next epoch. The k-th has 1 / (k (k + 1)) of the chance of an error: all of them together have it once."""
        self.epoch += 1
        self.effect = Effect(ERROR / (self.epoch * (self.epoch + 1)), 0.5 if self.turned_off else self.share)
        self.arms = {"aligned": Rated(), "control": Rated()}
        self.seen = bytearray(1 << _BITS >> 3)

    def is_compared(self, name: int) -> bool:
        """Whether a request is one of those that the namespace is judged by."""
        return not self.turned_off or _share(name) < 2 * self.share

    def is_new(self, name: int) -> bool:
        """Whether a request was not rated yet in this epoch. Now and then a new one is taken for an old one."""
        at, bit = (name >> 3) % len(self.seen), 1 << (name & 7)
        new = not self.seen[at] & bit
        self.seen[at] |= bit
        return new


class Judge:
    """Judges alignment by ratings. Pure: no clock, no input or output. Thread-safe; bounded in namespaces.

    Args:
        drop: how much lower than the control's the mean rating of aligned requests may be.
        control: share of the requests that are the control; as many again are the trial while alignment is off.
        most: namespaces that are known; the one used longest ago goes, and is aligned again.

    >>> judge, acme = Judge(drop=0.0, control=0.1, most=100), Namespace("acme")
    >>> judge.role(acme, 2**60), judge.role(acme, 2**63)
    ('control', 'aligned')
    >>> for name in range(1_000):
    ...     _ = judge.rate(acme, "control", 2 * name, 0.9), judge.rate(acme, "aligned", 2 * name + 1, 0.2)
    >>> judge.role(acme, 2**60), judge.role(acme, 2**63)
    ('control', 'off')
    """

    def __init__(self, drop: float, control: float, most: int) -> None:
        self._drop = drop
        self._control = control
        self._most = most
        self._spaces: OrderedDict[Namespace, _Space] = OrderedDict()
        self._lock = threading.Lock()
        after_fork(self, Judge._renew)

    def role(self, namespace: Namespace, name: int) -> Role:
        """What is to become of a request.

        Args:
            namespace: whose.
            name: 64 bits that stand for the request, as good as random.

        Returns:
            "aligned", "control": as retrieved, to be compared with; "off": as retrieved, since alignment is turned off.
        """
        share = _share(name)
        if share < self._control:
            return "control"
        with self._lock:
            space = self._spaces.get(namespace)
            if space is None or not space.off or share < 2 * self._control:
                return "aligned"
            self._spaces.move_to_end(namespace)
            return "off"

    def is_off(self, namespace: Namespace) -> bool:
        """Whether alignment is turned off."""
        with self._lock:
            space = self._spaces.get(namespace)
            return space is not None and space.off

    def rate(self, namespace: Namespace, arm: Arm, name: int, score: float) -> Quality | None:
        """Take in how good an answer was. Equal requests count once in an epoch: many of one would be no sample.

        Args:
            namespace: whose.
            arm: what became of the request.
            name: as for `role`.
            score: from 0 to 1.

        Returns:
            Where this turned alignment off or on, what decided it; else None.
        """
        with self._lock:
            space = self._spaces.get(namespace)
            if space is None:
                space = self._spaces[namespace] = _Space(self._control)
                if len(self._spaces) > self._most:
                    self._spaces.popitem(last=False)
            self._spaces.move_to_end(namespace)
            if not (space.is_compared(name) and space.is_new(name)):
                return None
            space.arms[arm] = space.arms[arm].plus(score)
            space.effect.add(arm, score)
            if space.effect.lower > -self._drop if space.off else space.effect.upper < -self._drop:
                space.off = not space.off
                space.turned_off += space.off
                decided = _quality(space)
                space.begin()
                return decided
            if sum(rated.count for rated in space.arms.values()) >= EPOCH:
                space.begin()
            return None

    def quality(self, namespace: Namespace) -> Quality:
        """What is known of a namespace."""
        with self._lock:
            space = self._spaces.get(namespace)
            return Quality() if space is None else _quality(space)

    def forget(self, namespace: Namespace | None = None) -> None:
        """Forget the ratings of a namespace, or of all: they are aligned again."""
        with self._lock:
            if namespace is None:
                self._spaces.clear()
            else:
                self._spaces.pop(namespace, None)

    def __len__(self) -> int:
        """How many namespaces are known."""
        return len(self._spaces)

    def _renew(self) -> None:
        """In a forked child. Where a thread was at work, ratings may be half taken in: their epochs begin anew."""
        held = was_held(self._lock)
        self._lock = threading.Lock()
        if held:
            self._spaces = OrderedDict(dict.items(self._spaces))
            for space in self._spaces.values():
                space.begin()


def _quality(space: _Space) -> Quality:
    return Quality(
        space.off,
        space.arms["aligned"],
        space.arms["control"],
        space.effect.lower,
        space.effect.upper,
        space.epoch,
        space.turned_off,
    )


def _share(name: int) -> float:
    """Where a request stands among all, from 0 to 1."""
    return (name & 0xFFFF_FFFF_FFFF_FFFF) / 2**64
