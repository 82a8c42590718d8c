"""AlignedPrompt: an alignment together with the texts it is about, ready to be sent."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..dedup.chunks import Repeats
from ..errors import InputError
from ..settings import Wording
from ..types import Alignment, Arm, Block, plain_text
from .blend import SEPARATOR, blend_ids, blend_text
from .render import Message, render_messages, render_user
from .wording import DEFAULT_WORDING, hint


class Sent:
    """What was last rendered for sending. The one thing about a prompt that is noted after it was made.

    Attributes:
        prompt_bytes: UTF-8 bytes of all its texts; 0: nothing was rendered yet.
        messages: as they were rendered, whatever the caller does with his; None: nothing was, or not as messages.
    """

    __slots__ = ("messages", "prompt_bytes")

    def __init__(self) -> None:
        self.prompt_bytes: int = 0
        self.messages: tuple[Mapping[str, Any], ...] | None = None

    def note(self, texts: Iterable[str], messages: Iterable[Mapping[str, Any]] | None = None) -> None:
        """Take something as rendered.

        Args:
            texts: all of it.
            messages: the same as messages, which nobody else changes; None: it is not sent as messages.
        """
        self.prompt_bytes = sum(len(text.encode("utf-8", "surrogatepass")) for text in texts)
        self.messages = None if messages is None else tuple(messages)


@dataclass(frozen=True, slots=True)
class AlignedPrompt(Alignment):
    """What ``pilot.align`` returns: the order, its reasons, and the prompt that follows from it.

    Args:
        retrieved: the distinct blocks, best first.
        aliases: for each of them, every id it was retrieved under; the first is the block's own.
        question: what is asked.
        wording: how a changed order is told to the model; None: it is not.
        echo: how many of the best blocks to give once more at the end.
        salt: the namespace's cache salt, or None.
        chunks: parts of blocks that repeat what stands before in this prompt are replaced by location hints.
        exact: only texts that are equal to the last byte count as the same.
        system: the system prompt, where ``align`` was given one.
        trial: what its answer shows of alignment, if somebody rates it; None: nothing.
        sent: what was rendered last. A token estimate is corrected by it.
    """

    retrieved: tuple[Block, ...] = ()
    aliases: tuple[tuple[Hashable, ...], ...] = ()
    question: str = ""
    wording: Wording | None = DEFAULT_WORDING
    echo: int = 0
    salt: str | None = None
    chunks: bool = False
    exact: bool = False
    system: str | None = None
    trial: Arm | None = None
    sent: Sent = field(default_factory=Sent, compare=False, repr=False)

    def __repr__(self) -> str:
        tokens = f"{self.predicted_cached_tokens} of {self.request.tokens} tokens believed cached"
        return f"<AlignedPrompt: {len(self.order)} blocks, {self.rule}, {tokens}>"

    @property
    def blocks(self) -> tuple[Block, ...]:
        """The blocks in prompt order."""
        return tuple(self.retrieved[rank] for rank in self.order)

    @property
    def labels(self) -> dict[int, Hashable]:
        """For each label in the prompt, the id of its block: what a citation [2] stands for."""
        return {place + 1: self.aliases[rank][0] for place, rank in enumerate(self.order)}

    @property
    def ids(self) -> dict[int, tuple[Hashable, ...]]:
        """For each label, every id that its text was retrieved under."""
        return {place + 1: self.aliases[rank] for place, rank in enumerate(self.order)}

    @property
    def order_hint(self) -> str | None:
        """The sentence that tells the model the retriever's order, or None where it did not change."""
        return self.hint_for(None)

    def hint_for(self, numbers: Sequence[int] | None) -> str | None:
        """The order hint of a prompt whose blocks have other labels.

        Args:
            numbers: for each place, the block's label; None: they count from 1.
        """
        return hint(self.wording, self.order, numbers, [block.text for block in self.blocks], self.question)

    @property
    def echoed(self) -> tuple[int, ...]:
        """Places (from 0) of the best blocks that stand once more at the end, the very best last.

        None if the order did not change, or the best blocks are the last ones anyway.
        """
        best = range(min(self.echo, len(self.order)))
        if not self.changed or set(self.order[len(self.order) - len(best) :]) == set(best):
            return ()
        return tuple(self.order.index(rank) for rank in reversed(best))

    @property
    def user_message(self) -> str:
        """The content of the user message: blocks, hint, question."""
        repeats = Repeats(exact=self.exact) if self.chunks else None
        return render_user([block.text for block in self.blocks], self.echoed, self.order_hint, self.question, repeats)

    def messages(self, system: str | None = None) -> list[Message]:
        """The messages to send.

        Args:
            system: the system prompt; None: the one that ``align`` was given, if any. Keep it constant: everything
                before the blocks is part of the shared prefix.

        Raises:
            InputError: another system prompt than ``align`` was given.
        """
        system = self._system(system)
        user = self.user_message
        self.sent.note((system or "", user), render_messages(system, user))
        return render_messages(system, user)

    def blend_tokens(
        self,
        tokenizer: object,
        separator: str = SEPARATOR,
        *,
        system: str | None = None,
        before: Sequence[int] | None = None,
        after: Sequence[int] = (),
    ) -> list[int]:
        """The prompt as token ids for LMCache's CacheBlend, which reuses a block wherever it stands.

        For ``/v1/completions``. Blocks stand whole and in the retriever's order, whatever order was chosen, without
        labels and hints: those would give a block other ids in another place.

        Args:
            tokenizer: the model's: with ``encode(text, add_special_tokens=False)`` or ``of_text(text)``, or a function.
            separator: LMCache's ``blend_special_str``.
            system: as for `messages`.
            before: ids that come first, such as a chat template's beginning, with BOS if the model wants one. None: the
                BOS token, if the tokenizer begins texts with one.
            after: ids that come last, such as a chat template's end.

        Raises:
            InputError: another system prompt than ``align`` was given, no tokenizer, or a separator without ids or one
                that a text cannot be told from.
        """
        system, texts = self._system(system), [block.text for block in self.retrieved]
        ids = blend_ids(texts, self.question, tokenizer, separator, system=system, before=before, after=after)
        self.sent.note((system or "", *texts, self.question))
        return ids

    def blend_messages(self, separator: str = SEPARATOR, *, system: str | None = None) -> list[Message]:
        """As `blend_tokens`, for those who cannot send ids: messages with the separator's text between blocks.

        Most tokenizers take the blank at the end of LMCache's own separator together with what follows; then nothing is
        found and reused. Two different control tokens of the model in a row are found: the first is for LMCache to
        drop, as `prompt.blend` says.

        Args:
            separator: LMCache's ``blend_special_str``.
            system: as for `messages`.

        Raises:
            InputError: another system prompt than ``align`` was given.
        """
        system = self._system(system)
        user = blend_text([block.text for block in self.retrieved], self.question, separator)
        self.sent.note((system or "", user), render_messages(system, user))
        return render_messages(system, user)

    def _system(self, system: str | None) -> str | None:
        """The system prompt to send."""
        if system is None:
            return self.system
        system = plain_text(system, "the system prompt")
        if self.system not in {None, system}:
            raise InputError("align was given another system prompt; the index knows what is cached under that one")
        return system

    @property
    def extra_body(self) -> dict[str, Any]:
        """What to pass as ``extra_body`` to the OpenAI client: the namespace's ``cache_salt``, if it has one."""
        return {} if self.salt is None else {"cache_salt": self.salt}
