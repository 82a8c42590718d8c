"""Breakpoints: where Anthropic's cloud is told that a prompt is cached up to.

Anthropic reads and writes its cache at breakpoints: content blocks with ``cache_control``. One can stand only at the
end of a content block, so a text is cut in two where its stable part ends. Neither changes what the model is told: the
pieces together are the text, and a text alone is short for a list of one block.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from .content_blocks import CONTROL, Block, Content, contents, edits, for_an_hour, looked_into
from .words import Asked, Edit, Path

MOST = 4
"""Breakpoints that a request may have; one with more is refused."""
LEAST_BYTES = 4_096
"""Of a prefix that is worth a breakpoint.

Anthropic caches no prefix below 1,024 tokens with most models (512 with some, 4,096 with others), and a token is about
four bytes. A breakpoint before that is no error, but it does nothing, and takes one of four places.
"""


@dataclass(frozen=True, slots=True)
class Stable:
    """Where a text begins as it does in other requests.

    Args:
        path: of the text.
        offsets: in characters of the text as it is to be sent, where stable parts of it end; best first.
    """

    path: Path
    offsets: Sequence[int]


def breakpoints(asked: Asked, texts: Mapping[Path, str], stable: Sequence[Stable]) -> list[Edit]:
    """All changes to the texts of a request of Anthropic's messages, and with them its breakpoints.

    As far as there are places, breakpoints stand where a conversation that goes on ends now, since its next turn begins
    with all of this one; where stable parts end; where the system prompt ends. The client's own are kept and counted
    first. None of ours comes before one of the client's that is for an hour: that would be refused.

    A text is cut wherever a stable part ends, with a breakpoint or without, so that the same offsets make the same
    blocks in each turn: give those of the first turn again. It stays whole where it is in a tool's result or in a list
    with anything else: location hints count the texts of a message.

    Args:
        asked: the request.
        texts: those that are to be sent otherwise than they came, by path.
        stable: best first. Without any, no breakpoint is set.

    Returns:
        Edits, none within another. The changes that ``texts`` ask for are among them: they stand in place of these.
    """
    if not stable:
        return [Edit(path, text) for path, text in texts.items()]
    ends: dict[Path, dict[int, int]] = {}
    for rank, (path, offset) in enumerate((one.path, offset) for one in stable for offset in one.offsets):
        ends.setdefault(path, {}).setdefault(offset, rank)
    found = contents(asked.body, texts, ends)
    _mark(asked.body, found)
    done = [edit for content in found for edit in edits(content)]
    whole = {edit.path for edit in done}
    rest = (path for path in texts if not any(path[:length] in whole for length in range(1, len(path) + 1)))
    return [*done, *(Edit(path, texts[path]) for path in rest)]


def _mark(body: Mapping[str, object], found: Sequence[Content]) -> None:
    """Choose the blocks that get a breakpoint."""
    blocks = [block for content in found for block in content.blocks]
    own, _, before = looked_into(body.get("tools"))
    automatic = body.get(CONTROL)  # the cloud sets it itself, on the last block
    left = MOST - own - (automatic is not None) - sum(block.own for block in blocks)
    after = max((number for number, block in enumerate(blocks) if block.lasting), default=-1)
    if for_an_hour(automatic):
        after = len(blocks)
    allowed = set()
    for number, block in enumerate(blocks):
        before += block.size
        taken = block.own or (automatic is not None and number == len(blocks) - 1)
        if before >= LEAST_BYTES and number > after and block.markable and not taken:
            allowed.add(id(block))
    for block in _wanted(found):
        if left > 0 and id(block) in allowed and not block.marked:
            block.marked = True
            left -= 1


def _wanted(found: Sequence[Content]) -> Iterator[Block]:
    """Blocks that should have a breakpoint, best first; some of them twice."""
    spoken = [content for content in found if content.role != "assistant"]
    if spoken and len(spoken) < len(found):
        yield from _end(spoken[-1])
    ranked = [block for content in found for block in content.blocks if block.rank is not None]
    yield from sorted(ranked, key=lambda block: block.rank or 0)
    if found and found[0].path == ("system",):
        yield from _end(found[0])


def _end(content: Content) -> Iterator[Block]:
    yield from [block for block in content.blocks if block.markable][-1:]
