"""A made batch of any length, as an iterator: contexts of a few thousand topics, and what is popular everywhere."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

LENGTH = 15
_LOT = 10_000
_OF_TOPIC = 0.75  # share of a context's blocks that are its topic's
_TOPIC = 400  # blocks of a topic
_DRAWN = 4 * LENGTH  # draws for a context; those that come twice count once


def made(requests: int, blocks: int) -> Iterator[dict[str, Any]]:
    """Contexts of 15 distinct blocks, seed 0.

    Three of four draws are from the context's topic, by Zipf 1.0 from its 400 blocks, the others by Zipf 1.0 from all
    blocks. Topics, one for 200 blocks, are drawn by Zipf 0.8, and overlap.
    """
    topics = max(1, blocks // 200)
    numbers = np.random.default_rng(0)
    popularity, within, among = _zipf(blocks, 1.0), _zipf(min(_TOPIC, blocks), 1.0), _zipf(topics, 0.8)
    place, start = numbers.permutation(blocks), numbers.integers(0, blocks, topics)
    names = [f"b{number}" for number in range(blocks)]
    for begin in range(0, requests, _LOT):
        count = min(_LOT, requests - begin)
        topic = np.searchsorted(among, numbers.random(count))
        own = place[(start[topic][:, None] + np.searchsorted(within, numbers.random((count, _DRAWN)))) % blocks]
        common = np.searchsorted(popularity, numbers.random((count, _DRAWN)))
        drawn = np.where(numbers.random((count, _DRAWN)) < _OF_TOPIC, own, common)
        for row, ids in enumerate(drawn.tolist()):
            kept = list(dict.fromkeys(ids))[:LENGTH]
            yield {"qid": f"q{begin + row}", "context_ids": [names[number] for number in kept]}


def _zipf(count: int, exponent: float) -> np.ndarray[Any, np.dtype[np.float64]]:
    shares = np.cumsum(1 / np.arange(1, count + 1) ** exponent)
    return shares / shares[-1]
