"""Conversation: what one conversation has really been sent, turn by turn, so that nothing is given twice.

The history is append-only: what was sent stays as it was, byte for byte, so each turn's prompt begins with the one
before. A new turn adds the blocks that were not given yet, and location hints for those that were.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import fields, replace
from itertools import takewhile
from typing import TYPE_CHECKING, Any, Protocol, cast

from ..dedup.messages import Messages
from ..dedup.units import normal
from ..errors import InputError, SettingsError, TextTooLong
from ..expand import FullMessage, read_full
from ..identity import block_key
from ..intake import BlockLike
from ..prompt.prompt import AlignedPrompt
from ..prompt.render import OPEN
from ..settings import RequestOptions, Settings
from ..types import Namespace, Rule, plain_text, short
from .history import Dedup, History, Turn, copied, text_of
from .prompt import TurnPrompt

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ..prompt.render import Message

_HIGHEST_LABEL = 10**8  # that is taken over from elsewhere; there is room for new ones


class Aligner(Protocol):
    """The part of a pilot that a conversation needs."""

    def prepare(
        self,
        blocks: Iterable[BlockLike],
        question: str = "",
        *,
        namespace: Namespace | str | None = None,
        key: Hashable = None,
        **options: Unpack[RequestOptions],
    ) -> AlignedPrompt:
        """Check and count a request's blocks; the order is the retriever's."""
        ...

    def decide(self, prepared: AlignedPrompt) -> AlignedPrompt:
        """Choose the order of a prepared request and take it as about to be sent."""
        ...

    def count_tokens(self, text: str) -> int:
        """Tokens of a text."""
        ...


class Conversation:
    """One conversation; made by ``pilot.conversation(...)``. Thread-safe.

    A turn counts as sent once it is answered: until then another `align` takes its place.

    Args:
        pilot: aligns the first turn, counts tokens.
        namespace: whose conversation it is.
        system: the system prompt.
        dedup: what is left out.
        messages: what was sent before, exactly as it was sent, with the answers. What cannot be read back is kept as it
            is, and later turns point at nothing in it.

    >>> from contextpilot_rag import ContextPilot
    >>> talk = ContextPilot().conversation("c1", system="Answer from the documents.")
    >>> steps = ("doc-1", "A step may be negative; then the slice runs backwards.")
    >>> prompt = talk.align([steps], "What is a step?")
    >>> talk.answer("A stride [1].")
    >>> print(talk.align([("doc-2", "Slices count from zero."), steps], "Where do slices start?").user_message)
    <documents>
    [2] Slices count from zero.
    <BLANKLINE>
    [1] (given above)
    </documents>
    <BLANKLINE>
    Where do slices start?
    """

    def __init__(
        self,
        pilot: Aligner,
        namespace: Namespace,
        system: str | None = None,
        dedup: Dedup | None = None,
        messages: Messages | None = None,
    ) -> None:
        self._pilot = pilot
        self._namespace = namespace
        self._dedup = dedup or Dedup()
        self._lock = threading.RLock()
        self._label_of: dict[bytes, int] = {}
        self._pending: Turn | None = None  # the last of the messages, as long as it is not answered
        self._system = None if system is None else plain_text(system, "the system prompt")
        self._turns: list[Turn] = []
        self._sent = History(self._system, self._dedup)
        if messages is not None:
            self._resume(messages)

    @property
    def system(self) -> str | None:
        """The system prompt."""
        return self._system

    @property
    def messages(self) -> list[Message]:
        """What was sent so far, with the answers; without a turn that is not answered yet. Keep it to resume."""
        with self._lock:
            return cast("list[Message]", copied(self._answered()))

    @property
    def characters(self) -> int:
        """Length of all that was sent."""
        with self._lock:
            return sum(len(text_of(message)) for message in self._answered())

    def align(
        self,
        blocks: Iterable[BlockLike],
        question: str = "",
        *,
        key: Hashable = None,
        **options: Unpack[RequestOptions],
    ) -> TurnPrompt:
        """The next turn: what was retrieved for it and what is asked.

        Blocks that stand in the history are replaced by location hints. The first turn's blocks are aligned to what the
        engine has cached; later ones stand as retrieved, since nobody else shares what comes before them.

        Args:
            blocks: best first, as `ContextPilot.align` takes them.
            question: stands last, as it is.
            key: your name for the turn; comes back as ``prompt.request.key``.
            **options: as for `ContextPilot.align`; ``echo`` is not used in conversations.

        Raises:
            InputError: as for `ContextPilot.align`, or a text that is too long.
        """
        with self._lock:
            options["echo"] = 0
            prompt = self._pilot.prepare(blocks, question, namespace=self._namespace, key=key, **options)
            for block in prompt.retrieved:
                self._check_length("a block", block.text)
            if not prompt.retrieved:
                self._check_length("the question", prompt.question)
            if any(turn.opens for turn in self._turns):
                prompt = replace(prompt, rule=Rule.CONVERSATION)
            else:
                prompt = self._pilot.decide(prompt)
            self._drop_pending()
            history = tuple(self._sent.messages)
            standing = dict(self._sent.standing if self._dedup.blocks else {})
            numbers = [self._number(block.text) for block in prompt.blocks]
            self._pending = self._turn(prompt, numbers, standing)
            content = self._sent.turn(self._pending)["content"]
            values = {one.name: getattr(prompt, one.name) for one in fields(AlignedPrompt)}
            again = frozenset(standing).intersection(numbers)
            return TurnPrompt(**values, history=history, content=content, numbers=tuple(numbers), again=again)

    def answer(self, answer: object) -> None:
        """The model's answer to the turn: its text, its message, or the engine's whole response.

        Raises:
            InputError: it is none of these.
        """
        self.add(_assistant_message(answer))

    def add(self, message: Mapping[str, Any]) -> None:
        """Another message, such as an assistant's with tool calls, or a tool's result. A waiting turn counts as sent.

        With ``dedup="blocks+chunks"``, what a tool's result repeats is replaced by location hints.

        Raises:
            InputError: no message, or one with a text that is too long.
        """
        if not isinstance(message, Mapping) or not isinstance(message.get("role"), str):
            raise InputError(f"a message is a mapping with a role, not {short(message)}")
        self._check_length("a message", text_of(message))
        with self._lock:
            if self._pending is not None:
                self._turns.append(self._pending)
                self._pending = None
            own = copied(dict(message))
            if own["role"] == "user" and isinstance(own.get("content"), str) and own["content"].startswith(OPEN):
                # It looks like one of ours, and would be taken for one after a restart.
                self._take_sent(own, list(read_full([*self._sent.messages, own], strict=False))[-1])
            else:
                self._take(Turn(message=own))

    def truncate(self, max_tokens: int) -> int:
        """Cut the history if it is longer than this: in one piece, after the system message, to half of it at most.

        The last turn always stays. What pointed into the part that falls out is given in full where it stands; blocks
        that fell out are given in full when they are next retrieved.

        Args:
            max_tokens: of all messages, as the pilot counts.

        Returns:
            How many messages fell out.

        Raises:
            SettingsError: no positive number.
        """
        if type(max_tokens) is not int or max_tokens < 1:
            raise SettingsError(f"max_tokens must be a positive int, not {short(max_tokens)}")
        with self._lock:
            turns = self._turns if self._pending is None else [*self._turns, self._pending]
            head = list(takewhile(lambda turn: turn.instructs, turns))
            openings = [place for place, turn in enumerate(turns) if turn.opens][1:]
            if not openings or self._count(self._sent) <= max_tokens:
                return 0

            def short_enough(cut: int) -> bool:
                return self._count(self._rendered(_afresh([*head, *turns[cut:]]))) <= max_tokens // 2

            # The fewest turns fall out that leave room for as much again.
            cut = openings[min(bisect_left(openings, True, key=short_enough), len(openings) - 1)]
            self._replay(_afresh([*head, *turns[cut:]]))
            if self._pending is not None:
                self._pending = self._turns.pop()
            return cut - len(head)

    def _rendered(self, turns: Iterable[Turn]) -> History:
        """The messages of a history that consists of these turns."""
        sent = History(self._system, self._dedup)
        for turn in turns:
            sent.turn(turn)
        return sent

    def _answered(self) -> list[dict[str, Any]]:
        return self._sent.messages if self._pending is None else self._sent.messages[:-1]

    def _replay(self, turns: list[Turn]) -> None:
        """Make the history one of these turns."""
        self._turns = turns
        self._sent = History(self._system, self._dedup)
        self._label_of = {}
        for turn in turns:
            self._sent.turn(turn)
            self._learn_labels(turn)

    def _learn_labels(self, turn: Turn) -> None:
        for number, _ in turn.blocks:
            if number in self._sent.standing:
                self._label_of[self._key(self._sent.standing[number])] = number

    def _drop_pending(self) -> None:
        """Forget a turn that was never answered, and the labels that it gave."""
        if self._pending is not None:
            self._pending = None
            self._replay(self._turns)

    def _check_length(self, what: str, text: str) -> None:
        if len(text) > self._dedup.max_text:
            raise TextTooLong(f"{what} of {len(text):,} characters; max_text is {self._dedup.max_text:,}")

    def _key(self, text: str) -> bytes:
        return block_key(normal(text) if self._dedup.normalise else text)

    def _number(self, text: str) -> int:
        """The label of a block: its own, if it stands in the history; else the next."""
        key = self._key(text)
        number = self._label_of.get(key) if self._dedup.blocks else None
        if number is None:
            number = self._label_of[key] = self._sent.new_label()
        return number

    def _turn(self, prompt: AlignedPrompt, numbers: list[int], standing: Mapping[int, str]) -> Turn:
        tail = "\n\n".join(part for part in (prompt.order_hint, prompt.question) if part)
        if numbers:
            texts = [standing.get(number, block.text) for number, block in zip(numbers, prompt.blocks, strict=True)]
            return Turn(list(zip(numbers, texts, strict=True)), f"\n\n{tail}" if tail else "")
        # A question alone, unless it looks like documents of ours.
        return Turn(message={"role": "user", "content": f"\n\n{tail}" if tail.startswith(OPEN) else tail})

    def _take(self, turn: Turn, sent: dict[str, Any] | None = None) -> None:
        """Take in a turn; if it is known how it was sent, then like that."""
        self._turns.append(turn)
        if self._sent.turn(turn) != sent and sent is not None:
            turn.sent = sent
            self._replay(self._turns)
        self._learn_labels(turn)

    def _count(self, sent: History) -> int:
        return sum(self._pilot.count_tokens(text_of(message)) for message in sent.messages)

    def _resume(self, messages: Messages) -> None:
        """Take over what was sent before."""
        if not all(isinstance(message, Mapping) for message in messages):
            raise InputError("what was sent before is a list of messages")
        before = [copied(dict(message)) for message in messages]
        system, rest = None, before
        if before and before[0] == {"role": "system", "content": text_of(before[0])}:
            system, rest = text_of(before[0]), before[1:]
        if before and self._system not in {None, system}:
            raise InputError("the messages begin with another system prompt than this conversation's")
        if before:
            self._system = system
            self._replay([])
        full_messages = list(read_full(before, strict=False))[len(before) - len(rest) :]
        for full, message in zip(full_messages, rest, strict=True):
            self._take_sent(message, full)

    def _take_sent(self, message: dict[str, Any], full: FullMessage) -> None:
        """Take in a message as it was sent."""
        if full.blocks is None:
            turn = Turn(message=full.message)
        elif full.apart or any(block.label > _HIGHEST_LABEL for block in full.blocks):
            turn = Turn(message=message)
        else:
            turn = Turn([(block.label, block.text) for block in full.blocks], full.rest)
        self._take(turn, message)


def _afresh(turns: list[Turn]) -> list[Turn]:
    """Turns to be sent anew: what they once pointed to may be gone."""
    return [replace(turn, blocks=list(turn.blocks), sent=None) for turn in turns]


def left_out(settings: Settings) -> Dedup:
    """What a conversation leaves out by these settings."""
    level = settings.dedup
    return Dedup(level != "off", level == "blocks+chunks", settings.normalise, settings.max_text)


def opened(
    pilot: Aligner,
    namespace: Namespace,
    system: str | None,
    dedup: Dedup,
    messages: Messages | None,
    kept: Conversation | None,
) -> Conversation:
    """The conversation that is kept, if it fits what the caller says of it; else one that does.

    Raises:
        InputError: another system prompt than the conversation's.
    """
    if kept is None or (messages is not None and kept.messages != list(messages)):
        return Conversation(pilot, namespace, system, dedup, messages)
    if system is not None and kept.system != system:
        raise InputError("the conversation has another system prompt; it is given once")
    return kept


def _assistant_message(answer: object) -> Mapping[str, Any]:
    if isinstance(answer, str):
        return {"role": "assistant", "content": answer}
    message = answer
    choices = answer.get("choices") if isinstance(answer, Mapping) else getattr(answer, "choices", None)
    if isinstance(choices, list | tuple) and choices:  # a whole completion, as an object or as plain JSON
        message = choices[0].get("message") if isinstance(choices[0], Mapping) else getattr(choices[0], "message", None)
    if isinstance(message, Mapping) and "role" in message:
        return message
    dump = getattr(message, "model_dump", None)
    if callable(dump):
        dumped = dump(exclude_none=True)
        if isinstance(dumped, Mapping) and "role" in dumped:
            return dumped
    text = getattr(answer, "text", None)
    if isinstance(text, str):
        return {"role": "assistant", "content": text}
    raise InputError(f"an answer is a text, a message or a chat completion, not {type(answer).__name__}")
