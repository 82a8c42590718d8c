"""Replaying: a request's messages once more as a `Conversation`, with the blocks that some of them were given.

So blocks that are given to a request are written, numbered and left out exactly as in a conversation of a pilot's. It
all follows from the messages, the blocks and the order of the first of them: history that is sent again becomes the
same bytes again.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field, replace

from ..async_pilot import AsyncContextPilot
from ..conversation.history import Dedup
from ..errors import InputError, SettingsError
from ..identity import block_key
from ..prompt.hints import LOCATION_HINT
from ..prompt.prompt import AlignedPrompt
from ..prompt.render import render_block, render_documents, render_user
from ..settings import RequestOptions
from ..types import Namespace, Rule
from .explicit import SYSTEM, Explicit, Given
from .memory import Decision
from .placing import joined, neutral, placed, question_of, rewritten
from .problems import Unusable
from .talk import Talk, Told, told
from .words import Asked, Edit, Message, Removal, Report

_HINT = "[same text as in "  # as one begins; where a text of somebody's has it, a backslash stands before it


@dataclass(frozen=True, slots=True)
class Replayed:
    """A request with its blocks.

    Args:
        changes: to its body.
        alignment: to be observed; None: no blocks were given.
        order: of the blocks that stand first, to be remembered; None: theirs was not decided.
        report: what was done.
        labels: for each label in the prompt, the id of its block.
    """

    changes: tuple[Edit | Removal, ...]
    alignment: AlignedPrompt | None = None
    order: tuple[int, ...] | None = None
    report: Report = field(default_factory=Report)
    labels: Mapping[int, Hashable] = field(default_factory=dict)


async def replayed(
    asked: Asked,
    explicit: Explicit,
    pilot: AsyncContextPilot,
    namespace: Namespace,
    dedup: Dedup,
    remembered: Decision | None = None,
    options: RequestOptions | None = None,
) -> Replayed:
    """A request with the blocks that it was given.

    Args:
        asked: the request.
        explicit: which blocks it was given, those of earlier turns included.
        pilot: aligns the first blocks.
        namespace: of the request, without a head.
        dedup: what is left out.
        remembered: what was decided when its first blocks were first sent; None: they were not, or it is not known.
        options: for blocks that were given without any of their own.

    Raises:
        Unusable: blocks that cannot be; the message says which.
    """
    prepared = {
        number: _prepared(asked, number, given, pilot, namespace, dedup, options)
        for number, given in explicit.given.items()
        if given.blocks
    }
    replay = _Replay(asked, prepared, pilot, namespace, dedup, remembered)
    try:
        await replay.all()
        done = replay.result(explicit)
    except Exception as error:  # noqa: BLE001  fails open: a client's blocks are never lost
        pilot.blocking.asker.failures.note(error)
        done = _plainly(asked, prepared)
    return replace(done, changes=(*done.changes, *explicit.removals))


def _prepared(
    asked: Asked,
    number: int,
    given: Given,
    pilot: AsyncContextPilot,
    namespace: Namespace,
    dedup: Dedup,
    options: RequestOptions | None,
) -> AlignedPrompt:
    """The blocks of a message, checked and counted.

    Raises:
        Unusable: they cannot be.
    """
    question = "" if number == SYSTEM else question_of(asked.messages[number - 1])
    chosen: RequestOptions = {**(options or {}), **given.options, "echo": 0}
    try:
        for block in given.blocks:
            dedup.checked("a block", block.text)
        return pilot.blocking.prepare(given.blocks, question, namespace=namespace, **chosen)
    except (InputError, SettingsError) as error:
        raise Unusable(str(error), f"{given.param}.blocks") from None


def _plainly(asked: Asked, prepared: Mapping[int, AlignedPrompt]) -> Replayed:
    """All blocks in full, as they were retrieved."""
    changes: list[Edit | Removal] = []
    for number, prompt in prepared.items():
        changes += placed(asked, number, render_user([block.text for block in prompt.retrieved]))
    count = sum(len(prompt.retrieved) for prompt in prepared.values())
    return Replayed(tuple(changes), report=Report(blocks=count, reason="the proxy failed; its log says why"))


class _Replay:
    """The messages of a request, one after another."""

    def __init__(
        self,
        asked: Asked,
        prepared: Mapping[int, AlignedPrompt],
        pilot: AsyncContextPilot,
        namespace: Namespace,
        dedup: Dedup,
        remembered: Decision | None,
    ) -> None:
        self._asked = asked
        self._prepared = prepared
        self._pilot = pilot
        self._remembered = remembered
        self._talk = Talk(pilot.blocking, namespace, dedup)
        instructed = [number for number in prepared if number == SYSTEM or self._message(number).role == "system"]
        self._next = 0  # label in system messages; those that follow in the conversation begin behind all of these
        self._talk.take_labels(sum(len(prepared[number].order) for number in instructed))
        self._first: Told | None = None
        self._opened = False  # blocks, or what makes the rest one conversation's alone, stand in the prompt
        self._last: AlignedPrompt | None = None
        self._changes: list[Edit | Removal] = []
        self._ids: dict[int, Hashable] = {}
        self._numbers: dict[int, int] = {}  # of the last message with blocks: labels, and ranks
        self._hints = self._left_out = 0

    async def all(self) -> None:
        """Replay them."""
        if SYSTEM in self._prepared:
            await self._instruct(SYSTEM, None, self._prepared[SYSTEM])
        for message in self._asked.messages:
            prompt = self._prepared.get(message.number)
            if prompt is None:
                self._add(message)
            elif message.role == "system":
                await self._instruct(message.number, message, prompt)
            else:
                await self._turn(message, prompt)
            self._opened = self._opened or message.role == "user"

    def result(self, explicit: Explicit) -> Replayed:
        """What came of it."""
        first, last = self._first, self._last
        report = Report(
            blocks=sum(len(prompt.order) for prompt in self._prepared.values()),
            replaced=self._hints,
            left_out=self._left_out + self._talk.left_out,
            reason="no blocks were given" if last is None else last.reason,
            labels=self._named(explicit),
        )
        labels = {**self._talk.labels, **self._ids}
        if first is None:
            return Replayed(tuple(self._changes), last, None, report, labels)
        predicted = first.told.predicted_cached_tokens
        report = replace(report, changed=first.shown.changed, predicted_cached_tokens=predicted, reason=first.reason)
        return Replayed(tuple(self._changes), first.told, first.shown.order, report, labels)

    def _message(self, number: int) -> Message:
        return self._asked.messages[number - 1]

    def _add(self, message: Message) -> None:
        """A message without blocks."""
        sent = self._talk.took(neutral(message))
        if message.role == "tool":
            edits = rewritten(message, sent)
            self._changes += edits
            self._hints += sum(_hints(edit.value) for edit in edits)

    async def _turn(self, message: Message, prompt: AlignedPrompt) -> None:
        """A user message with blocks."""
        ready = replace(prompt, rule=Rule.CONVERSATION)
        if not self._opened and self._talk.begins:
            self._first = await self._decided(self._talk.headed(prompt), message.number)
            ready = self._first.shown
        turn = self._talk.turn(ready)
        documents = turn.content.removesuffix(prompt.question).removesuffix("\n\n")
        self._changes += placed(self._asked, message.number, documents)
        self._hints += _hints(documents)
        texts = {number: turn.retrieved[rank].text for number, rank in zip(turn.numbers, turn.order, strict=True)}
        shorter = [len(texts[number]) - len(LOCATION_HINT) for number in turn.again]
        self._hints += sum(gain > 0 for gain in shorter)
        self._left_out += sum(gain for gain in shorter if gain > 0)
        self._last, self._opened = turn, True
        self._numbers = dict(zip(turn.numbers, turn.order, strict=True))

    async def _instruct(self, number: int, message: Message | None, prompt: AlignedPrompt) -> None:
        """A system prompt with blocks. They stand in full: hints at labels are for user messages."""
        shown = replace(prompt, rule=Rule.CONVERSATION)
        if not self._opened:
            before = [*self._talk.sent, *([] if message is None else [neutral(message)])]
            space = prompt.request.namespace
            if before:
                space = replace(space, head=block_key(repr(before)).hex())
            headed = replace(prompt, request=replace(prompt.request, namespace=space))
            self._first = await self._decided(headed, number)
            shown = self._first.shown
        numbers = range(self._next + 1, self._next + 1 + len(shown.order))
        self._next = numbers[-1]
        blocks = [render_block(label, block.text) for label, block in zip(numbers, shown.blocks, strict=True)]
        documents = joined(render_documents(blocks), shown.order_hint or "")
        edits = placed(self._asked, number, documents)
        self._changes += edits
        if message is None or not message.texts:
            self._talk.took({"role": "system", "content": documents})
        else:
            self._talk.took(neutral(message, {edit.path: edit.value for edit in edits}))
        self._numbers = dict(zip(numbers, shown.order, strict=True))
        self._ids.update((label, shown.aliases[rank][0]) for label, rank in self._numbers.items())
        self._last, self._opened = shown, True

    async def _decided(self, headed: AlignedPrompt, number: int) -> Told:
        """The order of the blocks that stand first."""
        new = all(message.role != "assistant" for message in self._asked.messages[number:])
        return await told(headed, self._pilot, self._remembered, new=new)

    def _named(self, explicit: Explicit) -> tuple[str, ...]:
        """For each label of the last message with blocks, the place that its block was given at, from 1."""
        if not self._prepared:
            return ()
        number = max(self._prepared)
        places: dict[int, int] = {}
        for place, block in enumerate(explicit.given[number].blocks, start=1):
            places.setdefault(id(block), place)
        retrieved = self._prepared[number].retrieved
        named = {label: places[id(retrieved[rank])] for label, rank in self._numbers.items()}
        if all(label == place for label, place in named.items()):
            return ()
        return tuple(f"{label}={place}" for label, place in named.items())


def _hints(sent: str) -> int:
    """How many hints of ours for parts of texts stand in a text."""
    return sent.count(_HINT) - sent.count("\\" + _HINT)
