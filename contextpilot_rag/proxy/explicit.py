"""The explicit form: a ``contextpilot`` field, of the body or of single messages, says which blocks a request has.

It is the client's word, so what cannot be done as it says is refused: without the field its blocks would be lost.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, cast, get_args

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from ..errors import InputError
from ..identity import block_key
from ..remote.wire import Name, Tokens
from ..settings import Count, Order, RequestOptions, Share, Wording
from ..types import Block
from .memory import chain
from .problems import Unusable
from .words import Asked, Message, Path, Removal

FIELD = "contextpilot"
MAX_BLOCKS = 4_096  # of one field
SYSTEM = 0  # the number of a system prompt that the request does not have yet

_OPTIONS = ("order", "min_gain", "protect_top", "max_displacement", "echo", "order_hint")
_ONE_OF = {
    ".order": ", ".join(get_args(Order)),
    ".order_hint": ", ".join(["true", "false", *get_args(Wording)]),
    ".position": "user, system, and numbers of messages",
}
_NONE_OF = re.compile(r"Invalid enum value (.*)", re.DOTALL)
_AT = re.compile(r"(.*?)(?: - at `(?:key in )?\$(.*)`)?", re.DOTALL)
_UNKNOWN = re.compile(r"Object contains unknown field `(.*)`", re.DOTALL)


class _BlockIn(Struct, forbid_unknown_fields=True):
    text: str
    id: str | int | None = None
    tokens: Tokens | None = None
    score: float | None = None


class _MessageField(Struct, forbid_unknown_fields=True):
    blocks: Annotated[list[str | _BlockIn], Meta(max_length=MAX_BLOCKS)] = []
    order: Order | UnsetType = UNSET
    min_gain: Share | UnsetType = UNSET
    protect_top: Count | UnsetType = UNSET
    max_displacement: Count | UnsetType | None = UNSET
    echo: Count | UnsetType = UNSET
    order_hint: bool | Wording | UnsetType = UNSET


class _BodyField(_MessageField, forbid_unknown_fields=True):
    position: Literal["user", "system"] | int | None = None
    conversation: Name | None = None


@dataclass(frozen=True, slots=True)
class Given:
    """The blocks that a message was given.

    Args:
        blocks: best first.
        options: for these blocks.
        param: where in the body they stand.
    """

    blocks: tuple[Block, ...]
    options: RequestOptions = field(default_factory=RequestOptions)
    param: str = FIELD


@dataclass(frozen=True, slots=True)
class Explicit:
    """What a request says of its blocks.

    Args:
        given: by the number of the message that they belong to; `SYSTEM`: to a system prompt that is to be added.
        conversation: its name, under which blocks of earlier turns are remembered; None: none are.
        removals: the fields themselves, which no upstream is shown.
    """

    given: Mapping[int, Given]
    conversation: str | None = None
    removals: tuple[Removal, ...] = ()


def is_explicit(body: Mapping[str, Any]) -> bool:
    """Whether a body, or a message in it, has the field. Asked of bodies that cannot be read as messages, too.

    >>> is_explicit({"messages": [{"content": "Why?", "contextpilot": None}]}), is_explicit({"messages": "Why?"})
    (True, False)
    """
    messages = body.get("messages", body.get("input"))
    inner = messages if isinstance(messages, list) else []
    return FIELD in body or any(isinstance(one, dict) and FIELD in one for one in inner)


def explicit_of(asked: Asked) -> Explicit | None:
    """What a request says of its blocks; None: nothing.

    Raises:
        Unusable: it says what cannot be; the message says what, and ``param`` where.

    >>> from contextpilot_rag.proxy.words import Message, Text
    >>> value = {"role": "user", "content": "Why?", "contextpilot": {"blocks": ["Because."]}}
    >>> text = Text("user", 1, None, "Why?", ("messages", 0, "content"))
    >>> message = Message(1, "user", value, (text,), ("messages", 0))
    >>> explicit_of(Asked("chat", {"messages": [value]}, (message,))).given[1].blocks
    (Block(text='Because.', id=None, tokens=None, score=None),)
    """
    given: dict[int, Given] = {}
    removals: list[Removal] = []
    for message in asked.messages:
        if not isinstance(message.value, Mapping) or FIELD not in message.value:
            continue
        path = (*message.path, FIELD)
        removals.append(Removal(path))
        param = spelled(path)
        found = _decoded(message.value[FIELD], _MessageField, param)
        if message.role not in ("user", "system"):
            raise Unusable(f"message {message.number} is no user or system message; only these have blocks", param)
        if found.blocks and not has_place(message):
            raise Unusable(f"message {message.number} has no text that blocks could stand beside", param)
        given[message.number] = _given(found, param)
    conversation = None
    if FIELD in asked.body:
        removals.append(Removal((FIELD,)))
        body = cast("_BodyField", _decoded(asked.body[FIELD], _BodyField, FIELD))
        conversation = body.conversation
        if body.blocks:
            number = _positioned(asked, "user" if body.position is None else body.position)
            if number in given:
                raise Unusable(f"message {number} has blocks of its own, and the body gives it others", FIELD)
            given[number] = _given(body, FIELD)
    if not removals:
        return None
    return Explicit({number: given[number] for number in sorted(given)}, conversation, tuple(removals))


def opening_key(explicit: Explicit, keys: Sequence[bytes]) -> bytes | None:
    """What the order of the blocks that stand first in the prompt is remembered by; None: no blocks are given.

    It stands for the blocks, too: a body's field may give equal messages others.

    Args:
        explicit: which blocks it was given.
        keys: of its messages, see `memory.chain`.
    """
    numbers = [number for number, given in explicit.given.items() if given.blocks]
    if not numbers:
        return None
    blocks = explicit.given[min(numbers)].blocks
    # A system prompt that is to be added has no key; all that follows it in its request begins with message 1.
    named = [str(min(numbers)), keys[max(min(numbers), 1) - 1], *(block_key(block.text) for block in blocks)]
    return chain("opening v1", (), named)[-1]


def spelled(path: Path) -> str:
    """A path as messages of errors show it.

    >>> spelled(("messages", 2, "contextpilot"))
    'messages[2].contextpilot'
    """
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path).removeprefix(".")


def has_place(message: Message) -> bool:
    """Whether blocks can be put into a message: it has a text, or a list of parts, or nothing at all."""
    if message.texts or not isinstance(message.value, Mapping):
        return True
    content = message.value.get("content")
    return content is None or isinstance(content, list)


def _decoded(value: object, kind: type[_MessageField], param: str) -> _MessageField:
    """A field, checked.

    Raises:
        Unusable: it is not as it has to be.
    """
    if value is None:
        return kind()
    try:
        return msgspec.convert(value, kind, strict=True)
    except msgspec.ValidationError as error:
        found = _AT.fullmatch(str(error))
        what, where = (found[1], found[2] or "") if found else (str(error), "")
    unknown = _UNKNOWN.fullmatch(what)
    if unknown is not None:
        what = _not_known(unknown[1], _BlockIn if where else kind)
    if where in _ONE_OF:
        what = _NONE_OF.sub(rf"\1 is none of {_ONE_OF[where]}", what)
    raise Unusable(f"{param}{where}: {what}", f"{param}{where}") from None


def _not_known(name: str, kind: type[Struct]) -> str:
    """Says of a member that there is none of this name, and what may have been meant."""
    if kind is _MessageField and name in ("position", "conversation"):
        return f"{name!r} belongs to the body's own field"
    names = list(kind.__struct_fields__)
    close = difflib.get_close_matches(name[:64], names, n=1)
    shown = repr(name if len(name) <= 64 else name[:61] + "...")
    return f"unknown member {shown}; " + (f"did you mean {close[0]!r}?" if close else f"there are {', '.join(names)}")


def _given(found: _MessageField, param: str) -> Given:
    blocks = []
    for place, block in enumerate(found.blocks):
        try:
            if isinstance(block, str):
                blocks.append(Block(block))
            else:
                blocks.append(Block(block.text, block.id, block.tokens, block.score))
        except InputError as error:
            raise Unusable(str(error), f"{param}.blocks[{place}]") from None
    options: dict[str, Any] = {
        name: value for name in _OPTIONS if not isinstance(value := getattr(found, name), UnsetType)
    }
    return Given(tuple(blocks), cast("RequestOptions", options), param)


def _positioned(asked: Asked, position: str | int) -> int:
    """The number of the message that a position means.

    Raises:
        Unusable: there is none, or it can have no blocks.
    """
    where = f"{FIELD}.position"
    if position == "system":
        return _system(asked)
    if position == "user":
        number = next((message.number for message in reversed(asked.messages) if message.role == "user"), None)
        if number is None:
            raise Unusable("there is no user message that the blocks could stand in", where)
    else:
        number = int(position) if int(position) > 0 else len(asked.messages) + 1 + int(position)
        if position == 0 or not 1 <= number <= len(asked.messages):
            raise Unusable(f"there is no message {position}: the request has {len(asked.messages)}", where)
        role = asked.messages[number - 1].role
        if role not in ("user", "system"):
            raise Unusable(f"message {number} is no user or system message; only these have blocks", where)
    if not has_place(asked.messages[number - 1]):
        raise Unusable(f"message {number} has no text that blocks could stand in front of", where)
    return number


def _system(asked: Asked) -> int:
    """The number of the system prompt: of the last of the messages that a request begins with and that instruct."""
    number = SYSTEM
    for message in asked.messages:
        if message.role != "system":
            break
        number = message.number
    if number == SYSTEM and asked.api in ("chat", "completions"):
        raise Unusable(
            "there is no system message that the blocks could stand behind; an empty one will do", f"{FIELD}.position"
        )
    if number and not has_place(asked.messages[number - 1]):
        raise Unusable("the system message has no text that blocks could stand behind", f"{FIELD}.position")
    return number
