"""Conversation: what one conversation has really been sent, turn by turn, so that nothing is given twice.

The history is append-only: what was sent stays as it was, byte for byte, so each turn's prompt begins with the one
before. A new turn adds the blocks that were not given yet, and location hints for those that were.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any, cast

from ..dedup.messages import Messages, as_message, checked_messages, with_texts
from ..dedup.units import normal
from ..errors import InputError, SettingsError
from ..expand import FullMessage, Reader, read_full
from ..forking import after_fork, was_held
from ..identity import block_key
from ..intake import BlockLike
from ..prompt.prompt import AlignedPrompt
from ..prompt.render import OPEN
from ..settings import RequestOptions
from ..types import Namespace, Rule, plain_text, short
from .aligner import CountingAligner
from .answers import assistant_message
from .cutting import cut
from .history import Dedup, History, Pending, Turn, copied, text_of
from .prompt import TurnPrompt

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ..prompt.render import Message

_HIGHEST_LABEL = 10**8  # that is taken over from elsewhere; there is room for new ones


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
        pilot: CountingAligner,
        namespace: Namespace,
        system: str | None = None,
        dedup: Dedup | None = None,
        messages: Messages | None = None,
    ) -> None:
        self._pilot = pilot
        self._namespace = namespace
        self._dedup = dedup or Dedup()
        self._lock = threading.RLock()
        self._used: Callable[[Conversation], None] | None = None
        self._pending: Pending | None = None  # the last of the messages, as long as it is not answered
        self._ids: dict[int, Hashable] = {}  # by label
        self._read = 0
        self._engine: str | None = None  # where the latest turn went
        self._system = None if system is None else plain_text(system, "the system prompt")
        self._replay([])
        if messages is not None:
            self._resume(messages)
        after_fork(self, Conversation._renew)

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
    def labels(self) -> dict[int, Hashable]:
        """For each block that stands in the history, or in the turn that waits: its label, and its id.

        Ids are not in the messages: of a conversation that was resumed, blocks go by the hash of their text, in
        hexadecimal, until they are retrieved again. Keep this with the messages if answers cite blocks.
        """
        with self._lock:
            standing = self._sent.standing.items()
            return {number: self._ids.get(number, block_key(text).hex()) for number, text in standing}

    @property
    def characters(self) -> int:
        """Of all that is held for it: messages, blocks in full, and what is searched for repeats."""
        return self._sent.characters

    def watch(self, used: Callable[[Conversation], None]) -> None:
        """Have a function called after each use."""
        self._used = used

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
        if "namespace" in options:
            raise SettingsError("a conversation's namespace is given once: pilot.conversation(name, namespace=...)")
        with self._lock:
            options["echo"] = 0
            prompt = self._pilot.prepare(blocks, question, namespace=self._namespace, key=key, **options)
            for block in prompt.retrieved:
                self._dedup.checked("a block", block.text)
            if any(turn.opens for turn in self._turns):
                engine = self._pilot.route(self._engine, prompt.request.tokens)
                prompt = replace(prompt, rule=Rule.CONVERSATION, engine=engine)
            else:
                prompt = self._first(prompt)
            self._drop_pending()
            history = tuple(map(copied, self._sent.messages))
            standing = self._sent.clear if self._dedup.blocks else {}
            mark = self._sent.mark
            before = self._labels_of(block.text for block in prompt.blocks)
            numbers = [self._number(block.text) for block in prompt.blocks]
            self._pending = Pending(self._turn(prompt, numbers, standing), mark, before)
            content = self._sent.turn(self._pending.turn)["content"]
            self._ids.update(zip(numbers, (prompt.aliases[rank][0] for rank in prompt.order), strict=True))
            values = {one.name: getattr(prompt, one.name) for one in fields(AlignedPrompt)}
            again = frozenset(standing).intersection(numbers)
            self._engine = prompt.engine
            turn = TurnPrompt(**values, history=history, content=content, numbers=tuple(numbers), again=again)
        self._note_use()
        return turn

    def ask(self, question: str) -> list[Message]:
        """The next turn as a plain question, without documents of ours. It takes the place of one without an answer.

        Args:
            question: the user message's content, as it is.

        Returns:
            The messages to send.

        Raises:
            InputError: it is no str.
        """
        content = plain_text(question, "the question")
        with self._lock:
            self._drop_pending()
            turn = Turn.asking(content)
            self._pending = Pending(turn, self._sent.mark, {})
            self._sent.turn(turn)
            messages = cast("list[Message]", copied(self._sent.messages))
        self._note_use()
        return messages

    def answer(self, answer: object, turn: TurnPrompt | Messages | None = None) -> None:
        """The model's answer to the turn: its text, its message, or the engine's whole response.

        Args:
            answer: of a stream, the joined texts of its chunks.
            turn: what it answers, or the messages that were sent; to be sure where several threads ask at a time.

        Raises:
            InputError: it is none of these, or nothing waits for an answer, or another turn took this one's place.
        """
        message = assistant_message(answer)
        with self._lock:
            sent = turn.messages() if isinstance(turn, TurnPrompt) else turn
            if sent is not None and (self._pending is None or self._sent.messages != list(sent)):
                raise InputError("this turn no longer waits for its answer: another took its place, or it was answered")
            if not self._sent.messages or self._sent.messages[-1]["role"] in ("assistant", "system", "developer"):
                raise InputError("nothing waits for an answer: first align, ask, or add a tool's result")
            self.add(message)

    def add(self, message: object) -> None:
        """Another message, such as an assistant's with tool calls, or a tool's result. A waiting turn counts as sent.

        With ``dedup="blocks+chunks"``, what a tool's result repeats is replaced by location hints.

        Args:
            message: a mapping with a role, or an object of the openai client.

        Raises:
            InputError: no message, or a tool's result that is too long.
        """
        own = copied(dict(as_message(message) or {}))
        if not own:
            raise InputError(f"a message is a mapping with a role, not {short(message)}")
        if own["role"] == "tool":
            with_texts(own, 0, lambda _, text: self._dedup.checked("a tool's result", text))
        with self._lock:
            if self._pending is not None:
                self._turns.append(self._pending.turn)
                self._pending = None
            if own["role"] == "user" and isinstance(own.get("content"), str) and own["content"].startswith(OPEN):
                # It looks like one of ours, and would be taken for one after a restart.
                self._take_sent(own, self._in_full(own))
            else:
                self._take(Turn(message=own))
        self._note_use()

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
            pending = None if self._pending is None else self._pending.turn
            turns = self._turns if pending is None else [*self._turns, pending]
            if self._count(self._sent) <= max_tokens:
                return 0
            kept = cut(turns, max_tokens, lambda some: self._count(self._rendered(some)))
            if len(kept) == len(turns):
                return 0
            self._replay(kept if pending is None else kept[:-1])
            if pending is not None:
                before = self._labels_of(text for _, text in kept[-1].blocks)
                self._pending = Pending(kept[-1], self._sent.mark, before)
                self._sent.turn(kept[-1])
                self._learn_labels(kept[-1])
            self._ids = {number: name for number, name in self._ids.items() if number in self._sent.standing}
        self._note_use()
        return len(turns) - len(kept)

    def _first(self, prompt: AlignedPrompt) -> AlignedPrompt:
        """The first turn's order: only conversations that begin alike share what is cached of their blocks."""
        before = self._answered()
        if not before:
            return self._pilot.decide(prompt)
        space = replace(prompt.request.namespace, head=block_key(repr(before)).hex())
        return self._pilot.decide(replace(prompt, request=replace(prompt.request, namespace=space)))

    def _renew(self) -> None:
        """In a forked child: where another thread was at work, no more than the answered turns remain."""
        if was_held(self._lock):
            self._pending = None
            self._replay(self._turns)
        self._lock = threading.RLock()

    def _note_use(self) -> None:
        """Outside of the lock: whoever watches has one of their own."""
        if self._used is not None:
            self._used(self)

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
        self._label_of: dict[bytes, int] = {}
        self._reader: Reader | None = None  # as far as messages were read; only made where one looks like ours
        for turn in turns:
            self._sent.turn(turn)
            self._learn_labels(turn)

    def _in_full(self, message: Mapping[str, Any]) -> FullMessage:
        """A message that comes next, read as one that was sent."""
        if self._reader is None:
            self._reader, self._read = Reader(strict=False), 0
        for sent in self._sent.messages[self._read :]:
            self._reader.read(sent)
        self._read = len(self._sent.messages) + 1
        return self._reader.read(message)

    def _learn_labels(self, turn: Turn) -> None:
        for number, _ in turn.blocks:
            if number in self._sent.standing:
                self._label_of[self._key(self._sent.standing[number])] = number

    def _drop_pending(self) -> None:
        """Forget a turn that was never answered, and the labels that it gave."""
        if self._pending is None:
            return
        self._sent.back_to(self._pending.mark)
        for name, number in self._pending.labels_before.items():
            if number is None:
                self._label_of.pop(name, None)
            else:
                self._label_of[name] = number
        self._pending = None

    def _key(self, text: str) -> bytes:
        return block_key(normal(text) if self._dedup.normalise else text)

    def _labels_of(self, texts: Iterable[str]) -> dict[bytes, int | None]:
        """The labels that blocks have now, to give them back."""
        return {key: self._label_of.get(key) for key in map(self._key, texts)}

    def _number(self, text: str) -> int:
        """The label of a block: its own, if it stands in the history; else the next."""
        key = self._key(text)
        number = self._label_of.get(key) if self._dedup.blocks else None
        if number is None or (number in self._sent.standing and not self._sent.can_point_at(number)):
            number = self._label_of[key] = self._sent.new_label()
        return number

    def _turn(self, prompt: AlignedPrompt, numbers: list[int], standing: Mapping[int, str]) -> Turn:
        tail = "\n\n".join(part for part in (prompt.hint_for(numbers), prompt.question) if part)
        if numbers:
            texts = [standing.get(number, block.text) for number, block in zip(numbers, prompt.blocks, strict=True)]
            return Turn(list(zip(numbers, texts, strict=True)), f"\n\n{tail}" if tail else "")
        return Turn.asking(tail)

    def _take(self, turn: Turn, sent: dict[str, Any] | None = None) -> None:
        """Take in a turn; if it is known how it was sent, then like that."""
        self._turns.append(turn)
        mark = self._sent.mark
        if self._sent.turn(turn) != sent and sent is not None:
            self._sent.back_to(mark)
            turn.sent = sent
            self._sent.turn(turn)
        self._learn_labels(turn)

    def _count(self, sent: History) -> int:
        return sum(self._pilot.count_tokens(text_of(message)) for message in sent.messages)

    def _resume(self, messages: Messages) -> None:
        """Take over what was sent before."""
        before: list[dict[str, Any]] = [copied(dict(message)) for message in checked_messages(messages)]
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
