"""The content blocks of a request of Anthropic's messages, cut where stable parts of its texts end."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeGuard

from .words import Edit, Path

CONTROL = "cache_control"
EPHEMERAL: Mapping[str, Any] = {"type": "ephemeral"}

# What breakpoints may stand on. Not on what the model thought, and not on blocks that nobody here knows.
_MARKABLE = frozenset({"text", "image", "document", "search_result", "tool_use", "tool_result"})
_TEXT_FIELDS = frozenset({"type", "text", CONTROL})


@dataclass(slots=True)
class Block:
    """A content block as it is to be sent, perhaps a piece of one that was cut.

    Args:
        place: of the whole block in its list.
        text: of it, or of the piece; None: it is no text.
        size: about how many bytes of prompt it is.
        markable: whether a breakpoint may stand on it.
        own: breakpoints that the client has in it.
        lasting: whether one of them is for an hour.
        rank: of the stable part that ends here, 0 the best; None: none does.
        marked: it gets a breakpoint.
    """

    place: int
    text: str | None
    size: int
    markable: bool
    own: int = 0
    lasting: bool = False
    rank: int | None = None
    marked: bool = False


@dataclass(slots=True)
class Content:
    """What a message says, or a system prompt: a text, or a list of blocks.

    Args:
        path: to it.
        role: of its message; "system" of a system prompt.
        value: as it was decoded.
        blocks: as they are to be sent.
    """

    path: Path
    role: object
    value: str | list[Any]
    blocks: list[Block] = field(default_factory=list)

    @property
    def cut(self) -> bool:
        """Whether one of its texts is in pieces."""
        return len(self.blocks) > (1 if isinstance(self.value, str) else len(self.value))


def contents(
    body: Mapping[str, Any], texts: Mapping[Path, str], ends: Mapping[Path, Mapping[int, int]]
) -> list[Content]:
    """All that a prompt is made of behind its tools, in its order.

    Args:
        body: of the request.
        texts: those that are to be sent otherwise than they came, by path.
        ends: of stable parts, with their ranks, by the path of the text.
    """
    found = []
    system = body.get("system")
    if isinstance(system, str | list):
        found.append(Content(("system",), "system", system))
    for number, message in enumerate(body["messages"]):
        value = message.get("content")
        if isinstance(value, str | list):
            found.append(Content(("messages", number, "content"), message.get("role"), value))
    for content in found:
        content.blocks += _blocks(content, texts, ends)
    return found


def edits(content: Content) -> Iterator[Edit]:
    """The changes to a content that set its breakpoints and cut its texts.

    Other texts that are to be sent are in what they put there, where they put a content there as a whole.
    """
    value = content.value
    if isinstance(value, str):
        if content.cut or any(block.marked for block in content.blocks):
            yield Edit(content.path, [_made({"type": "text"}, block) for block in content.blocks])
    elif content.cut:
        # The client's own breakpoint is where its block ends.
        *first, last = content.blocks
        yield Edit(content.path, [*(_made({"type": "text"}, block) for block in first), _made(value[0], last)])
    else:
        for block in content.blocks:
            if block.marked:
                yield Edit((*content.path, block.place, CONTROL), EPHEMERAL)


def looked_into(value: object) -> tuple[int, bool, int]:
    """How many breakpoints are in a value, whether one is for an hour, and about how many bytes of prompt it is."""
    own, lasting, size = 0, False, 0
    waiting = [value]
    while waiting:
        one = waiting.pop()
        if isinstance(one, str):
            size += _size(one)
        elif isinstance(one, list):
            waiting += one
        elif isinstance(one, Mapping):
            control = one.get(CONTROL)
            own += control is not None
            lasting = lasting or for_an_hour(control)
            waiting += [inner for name, inner in one.items() if name not in (CONTROL, "data")]  # data: of an image
    return own, lasting, size


def for_an_hour(control: object) -> bool:
    """Whether a breakpoint is for longer than five minutes."""
    return isinstance(control, Mapping) and control.get("ttl") not in (None, "5m")


def _blocks(content: Content, texts: Mapping[Path, str], ends: Mapping[Path, Mapping[int, int]]) -> Iterator[Block]:
    value = content.value
    if isinstance(value, str):
        yield from _pieces(0, texts.get(content.path, value), ends.get(content.path, {}), cuttable=True)
        return
    alone = len(value) == 1 and _is_text(value[0]) and set(value[0]) <= _TEXT_FIELDS
    for place, block in enumerate(value):
        path = (*content.path, place)
        own, lasting, size = looked_into(block)
        if _is_text(block):
            path = (*path, "text")
            pieces = _pieces(place, texts.get(path, block["text"]), ends.get(path, {}), cuttable=alone)
            pieces[-1].own, pieces[-1].lasting = own, lasting
            yield from pieces
        else:
            kind = block.get("type") if isinstance(block, Mapping) else None
            yield Block(place, None, size, kind in _MARKABLE, own, lasting, _rank(path, block, texts, ends))


def _pieces(place: int, text: str, ends: Mapping[int, int], *, cuttable: bool) -> list[Block]:
    """A text as blocks. None of several is blank: such blocks are refused."""
    ranks: dict[int, int] = {}
    begin = 0
    for end in sorted(ends):
        if not text[end:].strip():
            ranks[len(text)] = min(ends[end], ranks.get(len(text), ends[end]))
        elif cuttable and end > 0 and text[begin:end].strip():
            ranks[end] = ends[end]
            begin = end
    blocks, begin = [], 0
    for end in sorted({*ranks, len(text)}):
        piece = text[begin:end]
        blocks.append(Block(place, piece, _size(piece), bool(piece.strip()), rank=ranks.get(end)))
        begin = end
    return blocks


def _rank(path: Path, block: object, texts: Mapping[Path, str], ends: Mapping[Path, Mapping[int, int]]) -> int | None:
    """The rank of the stable part that ends where a tool's result does: there is no breakpoint within one."""
    content = block.get("content") if isinstance(block, Mapping) else None
    inner: Path = (*path, "content")
    if isinstance(content, list) and content and _is_text(content[-1]):
        inner, content = (*inner, len(content) - 1, "text"), content[-1]["text"]
    if not isinstance(content, str):
        return None
    text = texts.get(inner, content)
    return min((rank for end, rank in ends.get(inner, {}).items() if not text[end:].strip()), default=None)


def _made(whole: Mapping[str, Any], block: Block) -> dict[str, Any]:
    made = {**whole, "text": block.text}
    return {**made, CONTROL: EPHEMERAL} if block.marked else made


def _is_text(block: object) -> TypeGuard[Mapping[str, Any]]:
    return isinstance(block, Mapping) and block.get("type") == "text" and isinstance(block.get("text"), str)


def _size(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))
