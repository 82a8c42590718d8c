"""Ledgers: which blocks a conversation has been given, and under which labels. No texts, and never a guess.

What the client says it has is what counts: each answer has a name of its own, and a turn says which answer stands last
in the messages. If that is not one that is known here (an answer that never arrived, a restart from an older snapshot,
another replica's that is still on its way), nothing counts as given, and every block goes out in full: a location hint
only ever points at what the client has.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field, replace

from ..remote.wire import TurnIn
from ..types import BlockRef, Namespace

_HINT_TOKENS = 5  # a location hint takes about so many; a shorter block is given again
_BLOCKS_EACH = 200  # conversations together hold so many blocks times their number; beyond, those used longest ago go
_ANSWERS = 4  # of one conversation, that its next turn may name: the last two, and what came at the same time elsewhere
_BARS = 1_000  # things to be forgotten that are on their way through the log


@dataclass(frozen=True, slots=True)
class Given:
    """What stands in messages that end with one answer.

    Args:
        labels: of each block.
        next_label: above all of them.
        base: the answer that stands before it; None: nothing that counts.
        new: how many of the labels it added.
    """

    labels: dict[Hashable, int]
    next_label: int = 1
    base: str | None = None
    new: int = 0


@dataclass(slots=True)
class Ledger:
    """One conversation.

    Args:
        answers: those that its next turn may name, oldest first.
        used_at: when.
    """

    answers: dict[str, Given] = field(default_factory=dict)
    used_at: float = 0.0

    @property
    def blocks(self) -> int:
        """How many it holds."""
        answers = self.answers
        return sum(given.new if given.base in answers else len(given.labels) for given in answers.values())

    def went_on(self, answer: str) -> Given:
        """A turn follows an answer: those before it, and those instead of it, will be named no more."""
        given = self.answers.pop(answer)
        if given.base is not None:
            gone = [name for name, other in self.answers.items() if given.base in {name, other.base}]
            for name in gone:
                del self.answers[name]
        self.answers[answer] = given
        return given

    def add(self, answer: str, given: Given) -> None:
        """One more answer."""
        self.answers[answer] = given
        if len(self.answers) > _ANSWERS:
            del self.answers[next(iter(self.answers))]


@dataclass(frozen=True, slots=True)
class Delta:
    """What one answer added to a conversation, for others who have what stands before it.

    Args:
        namespace: of the conversation.
        name: of the conversation.
        answer: that was given.
        base: the answer that stands before it; None: nothing that counts.
        labels: of the blocks that it gave first.
        next_label: above all labels, its own too.
    """

    namespace: Namespace
    name: str
    answer: str
    base: str | None
    labels: dict[Hashable, int]
    next_label: int


@dataclass(frozen=True, slots=True)
class Labelled:
    """Labels of a turn's blocks.

    Args:
        labels: in the order of the blocks.
        again: those that were given before.
        delta: what that added to the conversation; None: it is not part of one.
    """

    labels: tuple[int, ...]
    again: tuple[int, ...]
    delta: Delta | None = None


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
        self._by_space: dict[Namespace, dict[tuple[Namespace, str], Ledger]] = {}  # without a head
        self._blocks = 0
        self._bars: OrderedDict[str, tuple[Namespace | None, str | None]] = OrderedDict()
        self._told: dict[str, str] = {}  # answers that the log has been told of and has not brought back, by record
        self._ahead: set[str] = set()  # those answers

    def __len__(self) -> int:
        return len(self._ledgers)

    def opens(self, turn: TurnIn) -> bool:
        """Whether a turn is its conversation's first: what stands before its blocks others have, too."""
        return turn.after is None and turn.next_label in {None, 1}

    def knows(self, namespace: Namespace, turn: TurnIn) -> bool:
        """Whether what a turn says it has is known here."""
        if turn.after is None:
            return True
        ledger = self._ledgers.get((namespace, turn.id))
        return ledger is not None and turn.after in ledger.answers

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
        base = turn.after if turn.after in ledger.answers else None
        before = Given({}) if base is None else ledger.went_on(base)
        label = max(before.next_label, turn.next_label or 1)
        new: dict[Hashable, int] = {}
        labels_of: list[int] = []
        again: list[int] = []
        for block in blocks:
            known = before.labels.get(block.key)
            if known is None:
                known = new[block.key] = label
                label += 1
            elif block.tokens > _HINT_TOKENS:
                again.append(known)
            labels_of.append(known)
        ledger.add(answer, Given({**before.labels, **new}, label, base, len(new)))
        ledger.used_at = self._clock()
        self._put(key, ledger)
        delta = Delta(namespace, turn.id, answer, base, new, label)
        return Labelled(tuple(labels_of), tuple(again), delta)

    def apply(self, delta: Delta) -> bool:
        """Take in a turn that another replica answered; False: what it follows is not known here, or not any more.

        What is known stays as it is then: it is what the client has, should its next turn name it. One that was
        answered here, and is known, is not taken in again.
        """
        self._forget_old()
        key = (delta.namespace, delta.name)
        if self._barred(key):
            return False
        ledger = self._ledgers.get(key)
        if ledger is not None and delta.answer in ledger.answers:
            return True
        if delta.base is not None and (ledger is None or delta.base not in ledger.answers):
            return False
        before = Given({}) if ledger is None or delta.base is None else ledger.answers[delta.base]
        if not _goes_on(before, delta):
            return False
        ledger = ledger or Ledger()
        self._remove(key)
        if delta.base is not None:
            ledger.went_on(delta.base)
        given = Given({**before.labels, **delta.labels}, delta.next_label, delta.base, len(delta.labels))
        ledger.add(delta.answer, given)
        ledger.used_at = self._clock()
        self._put(key, ledger)
        return True

    def forget(self, namespace: Namespace | None = None, name: str | None = None) -> int:
        """Forget one conversation, those of a namespace, those of a name in any namespace, or all. Returns how many.

        A namespace stands for itself under any head, if it names none.
        """
        known = self._ledgers if namespace is None else self._by_space.get(_space(namespace), ())
        gone = [key for key in known if _belongs(key, namespace, name)]
        for key in gone:
            self._remove(key)
        return len(gone)

    def bar(self, record: str, namespace: Namespace | None, name: str | None) -> None:
        """What the log brings of these before a record is not taken in: that record has it forgotten."""
        self._bars[record] = (namespace, name)
        if len(self._bars) > _BARS:
            self._bars.popitem(last=False)

    def told(self, record: str, answer: str) -> None:
        """The log was told of an answer that was given here: until the record is back, `replace` does not drop it."""
        self._told[record] = answer
        self._ahead.add(answer)

    def arrived(self, record: str) -> bool:
        """The log brought a record told here, or never will; whether it was one that has something forgotten."""
        self._ahead.discard(self._told.pop(record, ""))
        return self._bars.pop(record, None) is not None

    def _barred(self, key: tuple[Namespace, str]) -> bool:
        return any(_belongs(key, *barred) for barred in self._bars.values())

    def items(self, space: Namespace | None = None) -> list[tuple[tuple[Namespace, str], Ledger]]:
        """All of them, or those of a namespace under any head, used longest ago first; for snapshots."""
        return list(self._ledgers.items() if space is None else self._by_space.get(space, {}).items())

    def spaces(self) -> list[Namespace]:
        """The namespaces that have any, without heads."""
        return list(self._by_space)

    def holds(self, namespace: Namespace, name: str, ledger: Ledger) -> bool:
        """Whether a conversation is (still) one of them."""
        return self._ledgers.get((namespace, name)) is ledger

    def restore(self, namespace: Namespace, name: str, answers: Iterable[tuple[str, Given]]) -> None:
        """Take over what is known of one elsewhere, beside what is known here; it counts as used now.

        Not of one that is to be forgotten: the record that has it forgotten stands after all that is known elsewhere.
        """
        key = (namespace, name)
        if self._barred(key):
            return
        ledger = self._ledgers.get(key) or Ledger()
        self._remove(key)
        for answer, given in answers:
            if answer not in ledger.answers:
                ledger.add(answer, given)
        ledger.used_at = self._clock()
        self._put(key, ledger)

    def replace(self, namespace: Namespace, name: str, answers: Iterable[tuple[str, Given]]) -> None:
        """Know of one what is known elsewhere, and beside it only what was answered here and the log does not have yet.

        At once, so that a turn that comes meanwhile finds what it follows. No answers: nothing is known elsewhere.
        """
        key = (namespace, name)
        old = self._ledgers.get(key) or Ledger()
        self._remove(key)
        kept = Ledger()
        for answer, given in () if self._barred(key) else answers:
            kept.add(answer, given)
        for answer, given in old.answers.items():
            if answer in self._ahead and answer not in kept.answers:
                kept.add(answer, given)
        if kept.answers:
            kept.used_at = self._clock()
            self._put(key, kept)

    def _put(self, key: tuple[Namespace, str], ledger: Ledger) -> None:
        """Keep one, and forget those used longest ago. One that alone is too large is not kept: it is given in full."""
        self._ledgers[key] = ledger
        self._by_space.setdefault(_space(key[0]), {})[key] = ledger
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
            space = _space(key[0])
            del self._by_space[space][key]
            if not self._by_space[space]:
                del self._by_space[space]


def _goes_on(before: Given, delta: Delta) -> bool:
    """Whether labels are new ones for new blocks."""
    labels = delta.labels.values()
    if not labels:
        return delta.next_label >= before.next_label
    fresh = before.next_label <= min(labels) and max(labels) < delta.next_label and len(set(labels)) == len(labels)
    return fresh and not delta.labels.keys() & before.labels.keys()


def _space(namespace: Namespace) -> Namespace:
    """Without its head."""
    return replace(namespace, head="") if namespace.head else namespace


def _belongs(key: tuple[Namespace, str], namespace: Namespace | None, name: str | None) -> bool:
    kept, its_name = key
    if name is not None and name != its_name:
        return False
    if namespace is None or namespace == kept:
        return True
    fields = (namespace.corpus, namespace.model, namespace.tenant)
    return not namespace.head and (kept.corpus, kept.model, kept.tenant) == fields
