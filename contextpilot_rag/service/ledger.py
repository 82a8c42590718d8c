"""Ledgers: which blocks a conversation has been given, and under which labels. No texts, and never a guess.

What the client says it has is what counts: each answer has a name of its own, and a turn says which answer stands last
in the messages. If that is not what stands here (an answer that never arrived, another one to the same turn, a restart
from an older snapshot), nothing counts as given, and every block goes out in full: a location hint only ever points at
what the client has.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field

from ..remote.wire import TurnIn
from ..types import BlockRef, Namespace

_HINT_TOKENS = 5  # a location hint takes about so many; a shorter block is given again
_BLOCKS_EACH = 200  # conversations together hold so many blocks times their number; beyond, those used longest ago go


@dataclass(slots=True)
class Ledger:
    """One conversation.

    Args:
        given: label of each block that stands in the messages, as far as they are answered.
        last: the last answer that is known to stand there.
        next_label: above all labels given out in such answers.
        waiting: the answer of which it is not known yet: its name, its new labels.
        used_at: when.
    """

    given: dict[Hashable, int] = field(default_factory=dict)
    last: str | None = None
    next_label: int = 1
    waiting: tuple[str, dict[Hashable, int]] | None = None
    used_at: float = 0.0

    @property
    def blocks(self) -> int:
        """How many it holds."""
        return len(self.given) + (len(self.waiting[1]) if self.waiting else 0)


@dataclass(frozen=True, slots=True)
class Labelled:
    """Labels of a turn's blocks.

    Args:
        labels: in the order of the blocks.
        again: those that were given before.
    """

    labels: tuple[int, ...]
    again: tuple[int, ...]


class Ledgers:
    """The conversations of one tenant, by namespace and name.

    Args:
        most: kept; beyond, the one used longest ago goes.
        seconds: one that was not used for so long goes.
        clock: seconds that never run backwards.
    """

    def __init__(self, most: int, seconds: float, clock: Callable[[], float]) -> None:
        self._most = most
        self._seconds = seconds
        self._clock = clock
        self._ledgers: OrderedDict[tuple[Namespace, str], Ledger] = OrderedDict()
        self._blocks = 0

    def __len__(self) -> int:
        return len(self._ledgers)

    def opens(self, turn: TurnIn) -> bool:
        """Whether a turn is its conversation's first: what stands before its blocks others have, too."""
        return turn.after is None and turn.next_label in {None, 1}

    def turn(self, namespace: Namespace, turn: TurnIn, blocks: Sequence[BlockRef], answer: str) -> Labelled:
        """Label a turn's blocks, in prompt order. They count as given once a later turn names this very answer.

        Args:
            namespace: of the conversation.
            turn: what the client says of it.
            blocks: in prompt order.
            answer: names the answer that these labels go out with, and none other ever: labels of two answers to one
                turn need not be the same.
        """
        self._forget_old()
        key = (namespace, turn.id)
        ledger = self._ledgers.get(key) or Ledger()
        self._remove(key)
        if ledger.waiting is not None and turn.after == ledger.waiting[0]:
            name, labels = ledger.waiting
            ledger.given.update(labels)
            ledger.next_label = max([ledger.next_label, *(label + 1 for label in labels.values())])
            ledger.last = name
        elif turn.after is None or turn.after != ledger.last:
            ledger = Ledger()
        ledger.next_label = label = max(ledger.next_label, turn.next_label or 1)
        new: dict[Hashable, int] = {}
        labels_of: list[int] = []
        again: list[int] = []
        for block in blocks:
            known = ledger.given.get(block.key)
            if known is None:
                known = new[block.key] = label
                label += 1
            elif block.tokens > _HINT_TOKENS:
                again.append(known)
            labels_of.append(known)
        ledger.waiting = (answer, new)
        ledger.used_at = self._clock()
        self._put(key, ledger)
        return Labelled(tuple(labels_of), tuple(again))

    def forget(self, namespace: Namespace | None = None, name: str | None = None) -> int:
        """Forget one conversation, those of a namespace, those of a name in any namespace, or all. Returns how many.

        A namespace stands for itself under any head, if it names none.
        """
        gone = [key for key in self._ledgers if _belongs(key, namespace, name)]
        for key in gone:
            self._remove(key)
        return len(gone)

    def items(self) -> list[tuple[tuple[Namespace, str], Ledger]]:
        """All of them, used longest ago first; for snapshots."""
        return list(self._ledgers.items())

    def holds(self, namespace: Namespace, name: str, ledger: Ledger) -> bool:
        """Whether a conversation is (still) one of them."""
        return self._ledgers.get((namespace, name)) is ledger

    def restore(self, namespace: Namespace, name: str, ledger: Ledger) -> None:
        """Take one over from a snapshot; it counts as used now."""
        self._remove((namespace, name))
        ledger.used_at = self._clock()
        self._put((namespace, name), ledger)

    def _put(self, key: tuple[Namespace, str], ledger: Ledger) -> None:
        """Keep one, and forget those used longest ago. One that alone is too large is not kept: it is given in full."""
        self._ledgers[key] = ledger
        self._blocks += ledger.blocks
        while len(self._ledgers) > self._most or self._blocks > self._most * _BLOCKS_EACH:
            self._remove(next(iter(self._ledgers)))

    def _forget_old(self) -> None:
        oldest = self._clock() - self._seconds
        while self._ledgers and next(iter(self._ledgers.values())).used_at <= oldest:
            self._remove(next(iter(self._ledgers)))

    def _remove(self, key: tuple[Namespace, str]) -> None:
        ledger = self._ledgers.pop(key, None)
        if ledger is not None:
            self._blocks -= ledger.blocks


def _belongs(key: tuple[Namespace, str], namespace: Namespace | None, name: str | None) -> bool:
    kept, its_name = key
    if name is not None and name != its_name:
        return False
    if namespace is None or namespace == kept:
        return True
    fields = (namespace.corpus, namespace.model, namespace.tenant)
    return not namespace.head and (kept.corpus, kept.model, kept.tenant) == fields
