"""The opening group: the first blocks of a prompt, which are all that prompts of others can share; and its order.

Whatever stands before a group is part of what has to be equal for its blocks to be found in a cache. So it is aligned
among those prompts that begin alike up to there, and later groups stay as they were retrieved.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from ..identity import block_key
from ..prompt.prompt import AlignedPrompt
from ..settings import RequestOptions
from ..types import Block, Namespace
from .finding.labels import is_positional
from .lasting import lasting, unmarked
from .memory import Decision, chain
from .orders import AGAIN, FORGOTTEN, Orders
from .words import Asked, Group, Labels, Message, Text

_HEADS = 100_000  # beginnings that are remembered as seen once
_TALKS = 100_000  # conversations that are remembered to have been here
_encode = msgspec.json.Encoder(order="deterministic").encode


@dataclass(frozen=True, slots=True)
class Opening:
    """Where a prompt's first blocks stand.

    Args:
        message: that they are in.
        text: of it.
        group: in the text.
        new: no answer follows: they were never sent before.
    """

    message: Message
    text: Text
    group: Group
    new: bool


@dataclass(frozen=True, slots=True)
class Follows:
    """What follows the opening group's message, whatever that says. Keys of `chain`.

    Args:
        all: of all messages there; None: there are none.
        answered: of those before the last answer, which were a request's; None: there are none.
    """

    all: bytes | None
    answered: bytes | None


@dataclass(frozen=True, slots=True)
class Ordered:
    """The order that was decided for the opening group.

    Args:
        order: for each place, the item that stands there.
        alignment: what the index was told, and will be reported on.
        reason: why it is this one.
        cached: how many items were believed cached when it was decided.
    """

    order: tuple[int, ...]
    alignment: AlignedPrompt
    reason: str
    cached: int = 0


class Openings:
    """Decides the order of opening groups. One event loop owns it.

    Args:
        orders: asks the index.
    """

    def __init__(self, orders: Orders) -> None:
        self._orders = orders
        self._heads: OrderedDict[bytes, None] = OrderedDict()
        self._talks: OrderedDict[bytes, None] = OrderedDict()

    async def ordered(
        self,
        opening: Opening,
        asked: Asked,
        namespace: Namespace,
        before: Decision | None,
        follows: Follows,
        labels: Labels,
        options: RequestOptions,
    ) -> Ordered:
        """The order of a group, as it was decided before, or as the index chooses it.

        Some clients put what they retrieve for each question into the same message, such as the system prompt, before
        all that was said. Such a group is new, though answers follow it, where this conversation was here before.

        Args:
            opening: which group.
            asked: the request.
            namespace: of the request, without a head.
            before: what was decided when it was first sent; None: it is not known.
            follows: what follows its message.
            labels: "renumber" if positions that blocks are called by do not count.
            options: of the request.
        """
        texts = _texts(opening, labels)
        kept = tuple(range(len(texts)))
        prepare = self._orders.pilot.blocking.prepare
        head = _head(opening, asked, labels)
        space = replace(namespace, head=head.hex())
        remembered = None if before is None else before.order
        if remembered is not None and sorted(remembered) != list(kept):
            remembered = None
        again = self._was_here(follows)
        if remembered is not None or not (opening.new or again):
            order = kept if remembered is None else remembered
            as_they_are: RequestOptions = {**options, "order": "retrieved"}
            prepared = prepare(_blocks(texts, order), namespace=space, **as_they_are)
            aligned = await self._orders.again(prepared, None if before is None else before.engine)
            reason = FORGOTTEN if remembered is None else AGAIN
            return Ordered(order, aligned, reason, 0 if before is None else before.cached)
        if not _may_be_shared(opening, asked) and not self._seen(space):
            prepared = prepare(_blocks(texts, kept), namespace=space, **options)
            return Ordered(kept, prepared, "nothing that was sent before begins like this request")
        aligned = await self._orders.chosen(prepare(_blocks(texts, kept), namespace=space, **options))
        return Ordered(_items(aligned), aligned, aligned.reason, aligned.cached_blocks)

    def _seen(self, space: Namespace) -> bool:
        """Whether a prompt of this tenant began like this before; from now on, one has."""
        (key,) = chain("begun v1", (space.tenant, space.model), [space.head])
        seen = key in self._heads
        _remember(self._heads, key, _HEADS)
        return seen

    def _was_here(self, follows: Follows) -> bool:
        """Whether a conversation was here up to its last answer; from now on, it was, up to its end."""
        was_here = follows.answered in self._talks
        if follows.all is not None:
            _remember(self._talks, follows.all, _TALKS)
        return was_here


def follows_of(opening: Opening, asked: Asked, namespace: Namespace) -> Follows:
    """What follows a group's message."""
    messages = asked.messages[opening.message.number :]
    within = (namespace.tenant, namespace.model, namespace.corpus, asked.api)
    keys = chain("follows v1", within, map(lasting, messages))
    ends = [number for number, message in enumerate(messages) if message.role == "assistant" and number]
    return Follows(keys[-1] if keys else None, keys[ends[-1] - 1] if ends else None)


def _remember(kept: OrderedDict[bytes, None], key: bytes, most: int) -> None:
    kept[key] = None
    kept.move_to_end(key)
    if len(kept) > most:
        kept.popitem(last=False)


def _texts(opening: Opening, labels: Labels) -> list[str]:
    """What each block is to an engine's cache: all of it, but for labels that count places anyway."""
    group, text = opening.group, opening.text.text
    without = labels == "renumber" and is_positional(group)
    found = []
    for item in group.items:
        begin, end = item.span
        if without and item.label_span is not None:
            found.append(text[begin : item.label_span[0]] + text[item.label_span[1] : end])
        else:
            found.append(text[begin:end])
    return found


def _blocks(texts: Sequence[str], order: Sequence[int]) -> list[Block]:
    return [Block(texts[item], id=item) for item in order]


def _items(aligned: AlignedPrompt) -> tuple[int, ...]:
    """The order of all items. One whose text stands before already comes right behind that."""
    return tuple(int(str(item)) for rank in aligned.order for item in aligned.aliases[rank])


def _head(opening: Opening, asked: Asked, labels: Labels) -> bytes:
    """What has to be equal for blocks to be found: tools, all messages before, and the text up to the first block."""
    earlier = [lasting(message) for message in asked.messages[: opening.message.number - 1]]
    texts = [text.text for text in opening.message.texts if (text.part or 0) < (opening.text.part or 0)]
    start = opening.text.text[: opening.group.items[0].span[0]]
    body: Mapping[str, Any] = asked.body
    rest = [asked.api, unmarked(body.get("tools")), body.get("functions"), labels, earlier, texts, start]
    return block_key(_encode(rest).decode("utf-8", "replace"))


def _may_be_shared(opening: Opening, asked: Asked) -> bool:
    """Whether only instructions stand before it: a question there makes the rest of the prompt one person's."""
    if any(message.role != "system" for message in asked.messages[: opening.message.number - 1]):
        return False
    if opening.text.role == "system":
        return True
    first = all((text.part or 0) >= (opening.text.part or 0) for text in opening.message.texts)
    return first and not opening.text.text[: opening.group.span[0]].strip()
