"""What a mirror of an engine's cache costs: processor time for each KV block and prompt, and memory. Prints.

Prompts of ten blocks of some 150 tokens behind a head of 60, in KV blocks of 16 tokens, asked of a `PagedPrefixCache`
that holds so many prompts.

    python -m benchmarks.mirror [PROMPTS]
"""

from __future__ import annotations

import itertools
import random
import sys
import tracemalloc
from time import thread_time as clock

from contextpilot_rag.engines.chain import chain, content
from contextpilot_rag.engines.covering import Covering
from contextpilot_rag.engines.kv import Event, Removed, Stored
from contextpilot_rag.engines.mirror import Mirror
from contextpilot_rag.testing import PagedPrefixCache
from contextpilot_rag.types import BlockRef

SIZE, HEAD, QUESTION, TOP, BLOCKS, HELD = 16, 60, 25, 10, 2_000, 400
HOLDER = ("engine", 0)


Prompt = tuple[tuple[BlockRef, ...], Covering, int]


def traffic(count: int) -> tuple[list[list[Event]], list[Prompt]]:
    """For each prompt what the engine told while it answered; its blocks, where they stand, and what was cached."""
    numbers = random.Random(0)
    corpus = [BlockRef(key, numbers.randint(80, 220)) for key in range(BLOCKS)]
    texts = {one.key: [numbers.randrange(1 << 17) for _ in range(one.tokens)] for one in corpus}
    head = [numbers.randrange(1 << 17) for _ in range(HEAD)]
    told: list[Event] = []
    cache = PagedPrefixCache(SIZE, HELD * (HEAD + QUESTION + TOP * 150) // SIZE, lambda events, _: told.extend(events))
    batches: list[list[Event]] = []
    prompts: list[Prompt] = []
    for _ in range(count):
        start = min(int(numbers.paretovariate(0.6)), BLOCKS - 60)
        blocks = tuple(corpus[start + place] for place in sorted(numbers.sample(range(40), TOP)))
        ends = tuple(itertools.accumulate((one.tokens for one in blocks), initial=HEAD))
        tokens = head + [token for one in blocks for token in texts[one.key]]
        tokens += [numbers.randrange(1 << 17) for _ in range(QUESTION)]
        cached = cache.serve(tokens)
        batches.append(list(told))
        told.clear()
        contents = tuple(content(tokens[at : at + SIZE]) for at in range(0, len(tokens) - SIZE + 1, SIZE))
        prompts.append((blocks, Covering(chain(tokens, SIZE), contents, ends, len(tokens), SIZE), cached))
    return batches, prompts


def main() -> None:
    """Run it with the number of prompts that the command line says."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 1_500
    batches, prompts = traffic(count)
    stored = sum(len(event.hashes) for batch in batches for event in batch if isinstance(event, Stored))
    removed = sum(len(event.hashes) for batch in batches for event in batch if isinstance(event, Removed))

    mirror, apply, cover, expect, right, asked = Mirror(), 0.0, 0.0, 0.0, 0, 0
    gone = back = 0
    for batch, (blocks, covering, cached) in zip(batches, prompts, strict=True):
        began = clock()
        expected = mirror.expected("tree", blocks)
        looked = clock()
        changes = mirror.apply(HOLDER, batch)
        applied = clock()
        more = mirror.cover("tree", None, blocks, covering, HOLDER, cached)
        cover += clock() - applied
        apply += applied - looked
        expect += looked - began
        gone += len(changes.gone) + len(more.gone)
        back += len(changes.back) + len(more.back)
        right += expected == cached
        asked += expected is not None
    counts = mirror.counts()
    print(f"{count} prompts, {stored} KV blocks stored, {removed} removed, {gone} paths gone, {back} back")
    print(f"apply     {1e6 * apply / (stored + removed):8.2f} us a KV block")
    print(f"cover     {1e6 * cover / count:8.1f} us a prompt of {len(prompts[0][1].keys)} KV blocks and {TOP} blocks")
    print(f"expected  {1e6 * expect / count:8.1f} us a prompt; just what was reported for {right} of {asked}")
    print(counts)
    del mirror

    for name, with_passages in (("KV blocks alone", False), ("and passages", True)):
        tracemalloc.start()
        before, _ = tracemalloc.get_traced_memory()
        mirror = Mirror()
        for batch, (blocks, covering, cached) in zip(batches, prompts, strict=True):
            mirror.apply(HOLDER, batch)
            if with_passages:
                mirror.cover("tree", None, blocks, covering, HOLDER, cached)
        after, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        there, passages = mirror.counts().kv_blocks, mirror.counts().passages
        print(f"memory    {(after - before) / there:8.0f} bytes a KV block that is there ({name}, {passages} passages)")


if __name__ == "__main__":
    main()
