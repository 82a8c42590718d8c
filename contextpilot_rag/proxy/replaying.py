"""Replaying: a request's messages once more as a `Conversation`, with the blocks that some of them were given.

So blocks that are given to a request are written, numbered and left out exactly as in a conversation of a pilot's. It
all follows from the messages, the blocks and the order of the first of them: history that is sent again becomes the
same bytes again.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeVar

from ..async_pilot import AsyncContextPilot
from ..conversation.history import Dedup
from ..dedup.marks import is_marked, shield
from ..errors import InputError, SettingsError, TextTooLong
from ..identity import block_key
from ..prompt.hints import LOCATION_HINT
from ..prompt.prompt import AlignedPrompt
from ..prompt.render import render_block, render_documents, render_user
from ..settings import RequestOptions
from ..types import Namespace, Rule
from .apart import apart
from .explicit import SYSTEM, Explicit, Given
from .memory import Decision
from .orders import Orders
from .placing import joined, neutral, placed, question_of, rewritten
from .problems import Unusable
from .talk import Talk, Told, told
from .words import Asked, Edit, Message, Removal, Report

if TYPE_CHECKING:
    from typing_extensions import ParamSpec

    P = ParamSpec("P")
T = TypeVar("T")
_BESIDES = 1024  # characters that take as long as all that a block takes besides its text
_HINT = "[same text as in "  # as one begins; where a text of somebody's has it, a backslash stands before it


@dataclass(frozen=True, slots=True)
class Replaying:
    """A request that is to be replayed.

    Args:
        asked: itself.
        explicit: which blocks it was given, those of earlier turns included.
        namespace: of it, without a head.
        dedup: what is left out.
        options: for blocks that were given without any of their own.
    """

    asked: Asked
    explicit: Explicit
    namespace: Namespace
    dedup: Dedup
    options: RequestOptions = field(default_factory=RequestOptions)


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


async def replayed(request: Replaying, orders: Orders, remembered: Decision | None = None) -> Replayed:
    """A request with the blocks that it was given.

    Args:
        request: and which blocks.
        orders: asks the index for that of the first blocks.
        remembered: what was decided when its first blocks were first sent; None: they were not, or it is not known.

    Raises:
        Unusable: blocks that cannot be; the message says which.
    """
    asked, explicit, pilot = request.asked, request.explicit, orders.pilot
    size = sum(len(text.text) for message in asked.messages for text in message.texts)
    size += sum(_BESIDES + len(block.text) for given in explicit.given.values() for block in given.blocks)
    prepared = await apart(size, _all_prepared, request, pilot)
    try:
        replay = _Replay(request, prepared, pilot)
        opening = await apart(size, replay.begin)
        first = None
        if opening is not None:
            first = await told(opening.prompt, orders, remembered, new=opening.new)
        done = await apart(size, replay.finish, first)
    except Exception as error:  # noqa: BLE001  fails open: a client's blocks are never lost
        pilot.blocking.asker.failures.note(error)
        done = _plainly(asked, prepared)
    return replace(done, changes=(*done.changes, *explicit.removals))


def _all_prepared(request: Replaying, pilot: AsyncContextPilot) -> dict[int, AlignedPrompt]:
    """The blocks of each message that was given any."""
    every = request.explicit.given.items()
    return {number: _prepared(request, pilot, number, given) for number, given in every if given.blocks}


def _prepared(request: Replaying, pilot: AsyncContextPilot, number: int, given: Given) -> AlignedPrompt:
    """The blocks of a message, checked and counted.

    Raises:
        Unusable: they cannot be.
    """
    question = "" if number == SYSTEM else question_of(request.asked.messages[number - 1])
    chosen: RequestOptions = {**request.options, **given.options}  # echo is not used in conversations
    try:
        for block in given.blocks:
            request.dedup.checked("a block", block.text)
        return pilot.blocking.prepare(given.blocks, question, namespace=request.namespace, **chosen)
    except (InputError, SettingsError) as error:
        raise Unusable(str(error), f"{given.param}.blocks") from None


def _plainly(asked: Asked, prepared: Mapping[int, AlignedPrompt]) -> Replayed:
    """All blocks in full, as they were retrieved."""
    changes: list[Edit | Removal] = []
    for number, prompt in prepared.items():
        changes += placed(asked, number, render_user([block.text for block in prompt.retrieved]))
    count = sum(len(prompt.retrieved) for prompt in prepared.values())
    return Replayed(tuple(changes), report=Report(blocks=count, reason="the proxy failed; its log says why"))


@dataclass(frozen=True, slots=True)
class _Opening:
    """The blocks that stand first, before their order is decided."""

    prompt: AlignedPrompt
    new: bool


class _Replay:
    """The messages of a request: those before its first blocks, and the rest once the order of these is decided."""

    def __init__(self, request: Replaying, prepared: Mapping[int, AlignedPrompt], pilot: AsyncContextPilot) -> None:
        asked = self._asked = request.asked
        self._explicit = request.explicit
        self._prepared = prepared
        self._talk = Talk(pilot.blocking, request.namespace, request.dedup)
        # A system prompt that is to be added is none of the request's messages; it stands before them.
        self._messages: list[Message | None] = [*([None] if SYSTEM in prepared else []), *asked.messages]
        self._at = 0
        instructed = [number for number in prepared if number == SYSTEM or asked.messages[number - 1].role == "system"]
        self._next = 0  # label in system messages; those of user messages begin behind all of these
        self._talk.take_labels(sum(len(prepared[number].order) for number in instructed))
        self._last: AlignedPrompt | None = None
        self._numbers: dict[int, int] = {}  # of the last message with blocks: labels, and ranks
        self._changes: list[Edit | Removal] = []
        self._ids: dict[int, Hashable] = {}
        self._hints = self._left_out = 0

    def begin(self) -> _Opening | None:
        """All up to the first blocks. None: their order is not to be decided: what stands before is nobody else's."""
        while self._at < len(self._messages):
            message = self._messages[self._at]
            prompt = self._prepared.get(_number(message))
            if prompt is None and message is not None:
                self._add(message)
                self._at += 1
                if message.role == "user":
                    return None
                continue
            if prompt is None or not (_instructs(message) or self._talk.begins):
                return None
            rest = self._asked.messages[_number(message) :]
            return _Opening(self._headed(message, prompt), all(one.role != "assistant" for one in rest))
        return None

    def finish(self, first: Told | None) -> Replayed:
        """The rest of the messages.

        Args:
            first: the order of the first blocks; None: it is not decided.
        """
        ordered = first
        for message in self._messages[self._at :]:
            prompt = self._prepared.get(_number(message))
            if prompt is not None:
                prompt = replace(prompt, rule=Rule.CONVERSATION) if ordered is None else ordered.shown
                ordered = None
                if message is None or message.role == "system":
                    self._instruct(message, prompt)
                else:
                    self._turn(message, prompt)
            elif message is not None:
                self._add(message)
        report = Report(
            blocks=sum(len(prompt.order) for prompt in self._prepared.values()),
            replaced=self._hints,
            left_out=self._left_out + self._talk.left_out,
            reason="no blocks were given" if self._last is None else self._last.reason,
            labels=self._named(),
        )
        labels = {**self._talk.labels, **self._ids}
        if first is None:
            return Replayed(tuple(self._changes), self._last, None, report, labels)
        report = replace(
            report,
            changed=first.shown.changed,
            predicted_cached_tokens=first.told.predicted_cached_tokens,
            reason=first.reason,
        )
        return Replayed(tuple(self._changes), first.told, first.shown.order, report, labels)

    def _headed(self, message: Message | None, prompt: AlignedPrompt) -> AlignedPrompt:
        """A prompt in the namespace of those that begin like this one."""
        if not _instructs(message):
            return self._talk.headed(prompt)
        before = [*self._talk.sent, *([] if message is None else [neutral(message)])]
        head = block_key(repr(before)).hex() if before else ""
        space = replace(prompt.request.namespace, head=head)
        return replace(prompt, request=replace(prompt.request, namespace=space))

    def _add(self, message: Message) -> None:
        """A message without blocks."""
        try:
            sent = self._talk.took(neutral(message))
        except TextTooLong:  # a tool's result: it passes, and nothing is looked for in it
            self._talk.took({"role": message.role, "content": None})
            self._changes += _shielded(message)
            return
        if message.role == "tool":
            edits = rewritten(message, sent)
            self._changes += edits
            self._hints += sum(_hints(edit.value) for edit in edits)
        else:
            self._changes += _shielded(message)

    def _turn(self, message: Message, prompt: AlignedPrompt) -> None:
        """A user message with blocks."""
        said = self._talk.turn(prompt)
        documents = said.content.removesuffix(prompt.question).removesuffix("\n\n")
        self._changes += placed(self._asked, message.number, documents)
        self._changes += _shielded(message)
        self._hints += _hints(documents)
        for number, block in zip(said.numbers, prompt.blocks, strict=True):
            if number in said.again and len(block.text) > len(LOCATION_HINT):
                self._hints += 1
                self._left_out += len(block.text) - len(LOCATION_HINT)
        self._numbers = dict(zip(said.numbers, prompt.order, strict=True))
        self._last = prompt

    def _instruct(self, message: Message | None, prompt: AlignedPrompt) -> None:
        """A system prompt with blocks. They stand in full: hints at labels are for user messages."""
        numbers = range(self._next + 1, self._next + 1 + len(prompt.order))
        self._next = numbers[-1]
        blocks = [render_block(label, block.text) for label, block in zip(numbers, prompt.blocks, strict=True)]
        documents = joined(render_documents(blocks), prompt.hint_for(numbers) or "")
        edits = placed(self._asked, _number(message), documents)
        self._changes += edits
        if message is None or not message.texts:
            self._talk.took({"role": "system", "content": documents})
        else:
            self._talk.took(neutral(message, {edit.path: edit.value for edit in edits}))
        self._numbers = dict(zip(numbers, prompt.order, strict=True))
        self._ids.update((label, prompt.aliases[rank][0]) for label, rank in self._numbers.items())
        self._last = prompt

    def _named(self) -> tuple[str, ...]:
        """For each label of the last message with blocks, the place that its block was given at, from 1."""
        if not self._prepared:
            return ()
        number = max(self._prepared)
        places: dict[int, int] = {}
        for place, block in enumerate(self._explicit.given[number].blocks, start=1):
            places.setdefault(id(block), place)
        retrieved = self._prepared[number].retrieved
        named = {label: places[id(retrieved[rank])] for label, rank in self._numbers.items()}
        if all(label == place for label, place in named.items()):
            return ()
        return tuple(f"{label}={place}" for label, place in named.items())


def _number(message: Message | None) -> int:
    return SYSTEM if message is None else message.number


def _instructs(message: Message | None) -> bool:
    return message is None or message.role == "system"


def _shielded(message: Message) -> list[Edit]:
    """The changes to a message by which nothing in results of tools, which are sent in full, looks like a hint."""
    return [Edit(one.path, shield(one.text)) for one in message.texts if one.role == "tool" and is_marked(one.text)]


def _hints(sent: str) -> int:
    """How many hints of ours for parts of texts stand in a text."""
    return sent.count(_HINT) - sent.count("\\" + _HINT)
