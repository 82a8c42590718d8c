"""The proxy's words: a request as messages with texts, groups of blocks in them, and what was done."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from ..settings import Order

Api = Literal["chat", "completions", "responses", "messages"]
"""Chat completions, completions, responses; and Anthropic's messages."""

Role = Literal["system", "user", "assistant", "tool"]
Path = tuple[str | int, ...]
Span = tuple[int, int]
"""Where something begins and ends, in characters."""

Lists = Literal["numbered", "headed"]
Labels = Literal["keep", "renumber"]


@dataclass(frozen=True, slots=True)
class Text:
    """A text that the model reads.

    Args:
        role: of whoever says it; "tool": the result of a call.
        number: of its message, from 1; a system prompt that stands apart counts as the first.
        part: of its message's texts, from 1; None: its only one, and not in a list of parts.
        text: itself.
        path: where it stands in the body.
    """

    role: Role
    number: int
    part: int | None
    text: str
    path: Path

    @property
    def place(self) -> str:
        """What location hints call it.

        >>> Text("tool", 3, 2, "...", ("messages", 2, "content", 1, "text")).place
        'message 3, part 2'
        """
        return f"message {self.number}" if self.part is None else f"message {self.number}, part {self.part}"


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a request.

    Args:
        number: from 1.
        role: of whoever says it, or "tool" if results of calls are all that is in it.
        value: as it was decoded. It is not changed.
        texts: of it, in order.
        path: where it stands in the body.
    """

    number: int
    role: Role
    value: object
    texts: tuple[Text, ...]
    path: Path


@dataclass(frozen=True, slots=True)
class Asked:
    """A request's body, read.

    Args:
        api: its format.
        body: as it was decoded. It is not changed.
        messages: in order.
        model: its name; empty: none is named. A hash stands for one that is too long for a name.
    """

    api: Api
    body: Mapping[str, Any]
    messages: tuple[Message, ...]
    model: str = ""


class Format(Protocol):
    """One format of requests."""

    api: Api

    def read(self, body: Mapping[str, Any]) -> Asked | None:
        """A decoded body as messages; None: it has none that can be read, and has to pass as it is. Never raises."""
        ...


@dataclass(frozen=True, slots=True)
class Edit:
    """A change to a body, which stays as it is everywhere else, byte for byte.

    Args:
        path: to a value in it. The last step may be a key that an object does not have yet: it is added.
        value: to stand there instead: a text, or anything that JSON has.
    """

    path: Path
    value: Any


@dataclass(frozen=True, slots=True)
class Removal:
    """A member that goes from an object in a body.

    Args:
        path: to it.
    """

    path: Path


@dataclass(frozen=True, slots=True)
class Item:
    """A block in a text.

    Args:
        span: all of it, with its tags, in the text.
        body: its content, which a location hint may stand for.
        label: what it is called, such as "3" for index="3"; None: nothing.
        label_span: where that stands in the text.
    """

    span: Span
    body: Span
    label: str | None = None
    label_span: Span | None = None


@dataclass(frozen=True, slots=True)
class Group:
    """Blocks that stand together in a text.

    Args:
        span: all of it, with the wrapper's tags, in the text.
        items: at least two; what stands between them stays where it is.
        form: what it is written in.
    """

    span: Span
    items: tuple[Item, ...]
    form: Literal["xml", "json", "numbered", "headed"]


@dataclass(frozen=True, slots=True)
class Wishes:
    """What a request's own headers ask for; None: as the proxy's settings say.

    Args:
        off: it passes as it is.
        lists: which lists count as blocks.
        labels: whether labels stay with their blocks.
        order: preset.
    """

    off: bool = False
    lists: frozenset[Lists] | None = None
    labels: Labels | None = None
    order: Order | None = None


@dataclass(frozen=True, slots=True)
class Report:
    """What was done to a request.

    Args:
        blocks: of those groups that were recognised.
        changed: the order of blocks is another one.
        replaced: parts of the prompt that location hints stand for.
        left_out: characters that are not sent because of them.
        predicted_cached_tokens: of the blocks.
        reason: why nothing was done, or why the order is as it is.
        labels: of blocks, in prompt order, as they were before they were numbered anew; empty: they were not.
    """

    blocks: int = 0
    changed: bool = False
    replaced: int = 0
    left_out: int = 0
    predicted_cached_tokens: int = 0
    reason: str = ""
    labels: Sequence[str] = field(default=())
