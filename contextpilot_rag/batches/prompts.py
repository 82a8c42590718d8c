"""Rows of a shard as prompts, for those who send them with `ContextPilot.run`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

from ..batch import Plan
from ..errors import InputError
from ..intake import BlockLike
from ..pilot import ContextPilot
from ..prompt.prompt import AlignedPrompt
from ..types import Rule, short

PIECE = 2_048  # requests of a plan that is sent at a time
_PLANNED = ("position", "source", "order", "cached_blocks")


def planned_prompts(
    rows: Iterable[Mapping[str, Any]],
    pilot: ContextPilot,
    blocks: Callable[[Mapping[str, Any]], Sequence[BlockLike]],
    question: Callable[[Mapping[str, Any]], str] = lambda row: str(row.get("question", "")),
    *,
    key: str = "qid",
    piece: int = PIECE,
) -> Iterator[Plan[AlignedPrompt]]:
    """A shard as plans that `ContextPilot.run` sends, one after another; each is made when the one before it is sent.

    Args:
        rows: of a shard, in order; all of them, or a run.
        pilot: its settings and namespace are those of the prompts. Nothing is asked of its index.
        blocks: gives a row's blocks, one for each of its ``context_ids``, in their order.
        question: gives a row's question.
        key: the column that names a request.
        piece: requests of a plan.

    Raises:
        InputError: a row that is not of a shard, or without an order of that many blocks, or something that
            `ContextPilot.align` refuses.
    """
    left = iter(rows)
    while some := list(islice(left, piece)):
        for row in some:
            for name in _PLANNED:
                if name not in row:
                    what = "rows are a shard's; the lines of a written schedule have less"
                    raise InputError(f"request {short(row.get(key))} has no {name}: {what}")
        begin = int(some[0]["position"])
        prompts = [_prompt(row, pilot, blocks(row), question(row), key) for row in some]
        sources = [max(-1, int(row["source"]) - begin) for row in some]
        yield Plan(tuple(prompts), tuple(sources))


def _prompt(
    row: Mapping[str, Any], pilot: ContextPilot, blocks: Sequence[BlockLike], question: str, key: str
) -> AlignedPrompt:
    name, order = row.get(key), list(row["order"])
    if order and max(order) >= len(blocks):
        raise InputError(f"request {short(name)}: it has {len(blocks)} blocks, and an order of {max(order) + 1}")
    prepared = pilot.prepare(blocks, question, key=name)
    # Two ids may be of one text, which stands in a prompt once: ranks are of texts, places are of ids.
    planned = pilot.prepare([blocks[place] for place in order], question)
    rank = {block.key: number for number, block in enumerate(prepared.request.blocks)}
    first = [rank[block.key] for block in planned.request.blocks]
    ranks = tuple(dict.fromkeys([*first, *range(len(rank))]))
    cached_blocks = min(int(row["cached_blocks"]), len(ranks))
    cached = sum(prepared.request.blocks[number].tokens for number in ranks[:cached_blocks])
    changed = ranks != tuple(range(len(ranks)))
    return replace(
        prepared,
        order=ranks,
        cached_blocks=cached_blocks,
        predicted_cached_tokens=cached,
        rule=Rule.PLANNED if changed else Rule.NOTHING_GAINED,
    )
