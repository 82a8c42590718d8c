"""Conversation: what one conversation has really been sent, turn by turn, so that nothing is given twice.

The history is append-only: what was sent stays as it was, byte for byte, so each turn's prompt begins with the one
before. A new turn adds the blocks that were not given yet, and location hints for those that were.
"""

from __future__ import annotations

import re
import threading
from bisect import bisect_left
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import fields
from typing import TYPE_CHECKING, Any, Protocol, cast

from ..dedup.messages import Messages
from ..dedup.units import normal
from ..errors import BrokenHint, InputError, SettingsError, TextTooLong
from ..expand import read_full
from ..identity import block_key
from ..intake import BlockLike
from ..prompt.prompt import AlignedPrompt
from ..settings import RequestOptions, Settings
from ..types import Namespace, Rule, plain_text, short
from .history import Dedup, History, Turn, text_of
from .prompt import TurnPrompt

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ..prompt.render import Message


class Aligner(Protocol):
    """The part of a pilot that a conversation needs."""

    def align(
        self,
        blocks: Iterable[BlockLike],
        question: str = "",
        *,
        namespace: Namespace | str | None = None,
        key: Hashable = None,
        **options: Unpack[RequestOptions],
    ) -> AlignedPrompt:
        """Choose the order of a request's blocks and take it as about to be sent."""
        ...

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
        self._last_label = 0
        self._pending: Turn | None = None
        self._pending_content = ""
        self._pending_label = 0  # the last label before it
        self._system = None if system is None else plain_text(system, "the system prompt")
        self._turns: list[Turn] = []
        self._sent = History(self._system, self._dedup)
        if messages is not None:
            self._resume([dict(message) for message in messages])

    @property
    def system(self) -> str | None:
        """The system prompt."""
        return self._system

    @property
    def messages(self) -> list[Message]:
        """What was sent so far, with the answers; without a turn that is not answered yet. Keep it to resume."""
        with self._lock:
            return cast("list[Message]", [dict(message) for message in self._sent.messages])

    @property
    def characters(self) -> int:
        """Length of all that was sent."""
        with self._lock:
            return sum(len(text_of(message)) for message in self._sent.messages)

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
            self._drop_pending()
            first = not any(turn.opens for turn in self._turns)
            choose = self._pilot.align if first else self._pilot.prepare
            options["echo"] = 0
            prompt = choose(blocks, question, namespace=self._namespace, key=key, **options)
            for block in prompt.retrieved:
                self._check_length("a block", block.text)
            self._pending_label = self._last_label
            texts = [block.text for block in prompt.blocks]
            numbers = [self._number(text) for text in texts]
            standing = frozenset(self._sent.standing if self._dedup.blocks else ())
            tail = [part for part in (prompt.order_hint, prompt.question) if part]
            turn = Turn(list(zip(numbers, texts, strict=True)), "".join(f"\n\n{part}" for part in tail))
            if not texts:
                turn.rest = turn.rest.removeprefix("\n\n")
            history = tuple(self._sent.messages)
            content = self._pending_content = self._sent.content(turn)
            self._pending = turn
            values = {one.name: getattr(prompt, one.name) for one in fields(AlignedPrompt)}
            if not first:
                values["rule"] = Rule.CONVERSATION
            again = standing.intersection(numbers)
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
                self._sent.messages.append({"role": "user", "content": self._pending_content})
                self._pending = None
            self._sent.add(message)
            self._turns.append(Turn(message=dict(message)))

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
            self._drop_pending()
            openings = [place for place, turn in enumerate(self._turns) if turn.opens][1:]
            if not openings or self._count(self._sent) <= max_tokens:
                return 0
            # The fewest turns fall out that leave room for as much again.
            enough = bisect_left(openings, True, key=lambda cut: self._count(self._rendered(cut)) <= max_tokens // 2)
            cut = openings[min(enough, len(openings) - 1)]
            self._turns = self._turns[cut:]
            self._sent = self._rendered()
            self._keep_labels()
            return cut

    def _rendered(self, cut: int = 0) -> History:
        """The turns from this one on, as they are sent if the history begins with them."""
        sent = History(self._system, self._dedup)
        for turn in self._turns[cut:]:
            sent.turn(turn)
        return sent

    def _drop_pending(self) -> None:
        """Forget a turn that was never answered, and the labels that it gave."""
        if self._pending is not None:
            self._pending = None
            self._sent = self._rendered()
            self._last_label = self._pending_label
            self._keep_labels()

    def _keep_labels(self) -> None:
        self._label_of = {key: number for key, number in self._label_of.items() if number in self._sent.standing}

    def _check_length(self, what: str, text: str) -> None:
        if len(text) > self._dedup.max_text:
            raise TextTooLong(f"{what} of {len(text):,} characters; max_text is {self._dedup.max_text:,}")

    def _number(self, text: str) -> int:
        """The label of a block: its own, if it stands in the history; else the next."""
        key = block_key(normal(text) if self._dedup.normalise else text)
        number = self._label_of.get(key) if self._dedup.blocks else None
        if number is None or number not in self._sent.standing:
            self._last_label += 1
            number = self._label_of[key] = self._last_label
        return number

    def _count(self, sent: History) -> int:
        return sum(self._pilot.count_tokens(text_of(message)) for message in sent.messages)

    def _resume(self, messages: list[dict[str, Any]]) -> None:
        """Take over what was sent before."""
        rest = messages
        if messages and messages[0].get("role") == "system" and isinstance(messages[0].get("content"), str):
            if self._system not in {None, messages[0]["content"]}:
                raise InputError("the messages begin with another system prompt than this conversation's")
            self._system = messages[0]["content"]
            rest = messages[1:]
        try:
            full = list(read_full(messages))[len(messages) - len(rest) :]
            turns = [
                Turn(message=one.message)
                if one.blocks is None
                else Turn([(block.label, block.text) for block in one.blocks], one.rest)
                for one in full
            ]
        except BrokenHint:
            turns = []
        self._turns = turns
        self._sent = self._rendered()
        if self._sent.messages != messages:
            self._turns = [Turn(message=message, as_it_is=True) for message in rest]
            self._sent = self._rendered()
        for number, text in self._sent.standing.items():
            self._label_of[block_key(normal(text) if self._dedup.normalise else text)] = number
        labels = (int(found[1]) for message in rest for found in _LABEL.finditer(text_of(message)))
        self._last_label = max([0, *labels])


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


_LABEL = re.compile(r"^\[(\d{1,9})\] ", re.MULTILINE)


def _assistant_message(answer: object) -> Mapping[str, Any]:
    if isinstance(answer, str):
        return {"role": "assistant", "content": answer}
    if isinstance(answer, Mapping) and "role" in answer:
        return answer
    choices = getattr(answer, "choices", None)
    message = getattr(choices[0], "message", None) if choices else answer
    dump = getattr(message, "model_dump", None)
    if callable(dump):
        dumped = dump(exclude_none=True)
        if isinstance(dumped, Mapping) and "role" in dumped:
            return dumped
    text = getattr(answer, "text", None)
    if isinstance(text, str):
        return {"role": "assistant", "content": text}
    raise InputError(f"an answer is a text, a message or a chat completion, not {type(answer).__name__}")
