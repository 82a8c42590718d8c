"""Reciprocal rank fusion: one context out of several retrievers' contexts.

Source: Cormack, Clarke and Büttcher, "Reciprocal Rank Fusion outperforms Condorcet and individual Rank Learning
Methods", SIGIR 2009.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace

from ..errors import ConflictingBlocks
from ..identity import block_key
from ..types import Block, Context, short
from .results import checked_k

RANK_CONSTANT = 60


def fuse(contexts: Sequence[Context], k: int) -> Context:
    """The k blocks that stand best over several contexts of one question.

    A block is known by its id, or by its text where it has none.

    Raises:
        RetrievalError: k is below 1.
        ConflictingBlocks: one id with two texts.

    >>> tea, milk, cocoa = Block("tea", id="a"), Block("milk", id="b"), Block("cocoa", id="c")
    >>> [block.id for block in fuse([Context((tea, milk)), Context((milk, cocoa))], k=2)]
    ['b', 'a']
    """
    checked_k(k)
    scores: dict[Hashable, float] = {}
    blocks: dict[Hashable, Block] = {}
    for context in contexts:
        for rank, block in enumerate(context):
            name = block_key(block.text) if block.id is None else block.id
            if blocks.setdefault(name, block).text != block.text:
                raise ConflictingBlocks(f"id {short(name)} stands for two texts (give each chunk its own id)")
            scores[name] = scores.get(name, 0.0) + 1 / (RANK_CONSTANT + rank + 1)
    best = sorted(scores, key=lambda name: (-scores[name], str(name)))[:k]
    question = contexts[0].question if contexts else ""
    return Context(tuple(replace(blocks[name], score=scores[name]) for name in best), question)
