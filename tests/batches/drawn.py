"""What hypothesis draws batches from, and what any plan of one must hold."""

from __future__ import annotations

from collections import Counter

import numpy as np
from hypothesis import strategies as st

from contextpilot_rag import BlockRef
from contextpilot_rag.batches.pipeline import Sizes, plan_in_shards
from contextpilot_rag.batches.reading import Reading, lots
from contextpilot_rag.batches.workers import InThisProcess
from contextpilot_rag.index.tree import PrefixTree
from contextpilot_rag.types import OrderBudget

WEIGHTS = {name: 1 + 37 * place % 50 for place, name in enumerate("abcdefghijkl")}
ids = st.lists(st.sampled_from(sorted(WEIGHTS)), max_size=8)
batches = st.lists(ids, min_size=1, max_size=40)


def rows_of(batch):
    return [{"qid": number, "context_ids": list(ids)} for number, ids in enumerate(batch)]


def planned(rows, shards=3, *, group=8, counters=64, lot=7, wide=256, slack=0.02, order="throughput", lengths=WEIGHTS):
    how = Reading(OrderBudget(order))
    sizes = Sizes(group, counters, slack, wide)
    return plan_in_shards(InThisProcess(), lots(rows, lot), shards, lengths=lengths, how=how, sizes=sizes)


def held(plan, rows, lengths=WEIGHTS, key="qid"):
    """What caches find, one for each shard, if its rows are sent in order; and nothing may be lost or made up."""
    given = Counter((row[key], tuple(row["context_ids"])) for row in rows)
    found = Counter()
    cached = 0
    for number, shard in enumerate(plan.shards):
        tree, sent = PrefixTree(None, 10**9), []
        for position, row in enumerate(shard):
            found[row[key], tuple(row["context_ids"])] += 1
            names = [row["context_ids"][place] for place in row["order"]]
            assert len(set(names)) == len(names)
            assert set(names) == set(row["context_ids"])
            assert (row["shard"], row["position"]) == (number, position)
            blocks = [BlockRef(name, lengths[name]) for name in names]
            hit = tree.cached_tokens(blocks)[1]
            assert hit >= row["predicted_cached_tokens"]
            prefix = names[: row["cached_blocks"]]
            assert sum(lengths[name] for name in prefix) == row["predicted_cached_tokens"]
            if prefix:
                assert 0 <= row["source"] < position
                assert sent[row["source"]][: len(prefix)] == prefix
            else:
                assert row["source"] == -1
            tree.insert(blocks)
            sent.append(names)
            cached += hit
        assert len(shard) == len(sent)
        assert shard.predicted_cached_tokens == sum(row["predicted_cached_tokens"] for row in shard)
    assert found == given
    return cached


def made(requests, blocks, length=10, seed=0):
    """Contexts of a few topics, larger than hypothesis would draw."""
    numbers = np.random.default_rng(seed)
    shares = 1 / np.arange(1, blocks + 1)
    rows = []
    for number in range(requests):
        drawn = numbers.choice(blocks, length, replace=False, p=shares / shares.sum())
        rows.append({"qid": f"q{number}", "context_ids": [f"b{block}" for block in drawn]})
    return rows
