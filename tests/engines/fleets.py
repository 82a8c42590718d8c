"""Fleets for tests, and events of engines whose KV blocks are called by our own names."""

from __future__ import annotations

import random

from contextpilot_rag import BlockRef, LocalIndex, Usage
from contextpilot_rag.engines.chain import chain, content
from contextpilot_rag.engines.covering import Covering
from contextpilot_rag.engines.engine import Engine
from contextpilot_rag.engines.fleet import Fleet
from contextpilot_rag.engines.kv import Stored

NAMES = ("one", "two", "three")
X, Y, Z = (BlockRef(key, 100) for key in "xyz")


def engines(*names, **settings):
    return [Engine(f"http://{name}:8000", name, **settings) for name in names]


def fleet_of(*names, clock=lambda: 0.0, routing="pilot", capacity=None, **settings):
    return Fleet(
        engines(*names, **settings), lambda engine: LocalIndex(capacity_tokens=capacity), routing=routing, clock=clock
    )


def answered(fleet, request, cached=None):
    alignment = fleet.align(request)
    fleet.observe(alignment, Usage(prompt_tokens=request.tokens + 30, cached_tokens=cached))
    return alignment


def covering(alignment, size=16, head=20):
    """The prompt's KV blocks, if each block is as long as its tokens; the same tokens for the same block."""
    tokens, ends = list(range(head)), [head]
    for rank in alignment.order:
        block = alignment.request.blocks[rank]
        numbers = random.Random(str(block.key))
        tokens += [numbers.randrange(1 << 20) for _ in range(block.tokens)]
        ends.append(len(tokens))
    tokens += [1, 2, 3]
    contents = tuple(content(tokens[at : at + size]) for at in range(0, len(tokens) - size + 1, size))
    return tokens, Covering(chain(tokens, size), contents, tuple(ends), len(tokens), size)


def stored(tokens, size=16, first=0):
    """The events of a prompt that was computed from a KV block on; the engine calls each by its chained name."""
    names = [int.from_bytes(name[:8], "big") for name in chain(tokens, size)]
    tokens = tuple(tokens[first * size : len(names) * size])
    return Stored(tuple(names[first:]), names[first - 1] if first else None, tokens, size, ("",) * (len(names) - first))


def followed(*names, **settings):
    fleet = fleet_of(*names, **settings)
    for name in names:
        fleet.level(name, "events")
    return fleet
