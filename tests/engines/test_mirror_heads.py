"""Prompts of one space begin alike, however many tokens of their blocks do so, too."""

from __future__ import annotations

import pytest

from contextpilot_rag.engines.chain import chain, content
from contextpilot_rag.engines.covering import Covering
from contextpilot_rag.engines.kv import Stored
from contextpilot_rag.engines.mirror import Mirror
from contextpilot_rag.types import BlockRef

SIZE = 4
HEAD = tuple(range(10))
HOLDER = ("engine", 0)


def prompt(names, alike):
    """Blocks of ten tokens; each begins with two that all have. The last tokens are the question."""
    ids, ends = list(HEAD), [len(HEAD) + alike]
    for name in names:
        ids += [7, 7, *range(1000 * name, 1000 * name + 8)]
        ends.append(len(ids) + alike)
    ids += [5] * 6
    ends[-1] -= alike
    parts = [ids[place : place + SIZE] for place in range(0, len(ids) - SIZE + 1, SIZE)]
    return ids, Covering(chain(ids, SIZE), tuple(map(content, parts)), tuple(ends), len(ids), SIZE)


def refs(names):
    return [BlockRef(name, 10) for name in names]


@pytest.mark.parametrize("alikes", [(0, 2), (2, 0), (0, 2, 0, 2), (2, 0, 2, 0)])
def test_what_was_covered_with_one_beginning_is_expected_after_another(alikes):
    mirror, contexts = Mirror(), [(1, 2, 3), (4, 5, 6), (2, 1, 3), (5, 4, 6)]
    for names, alike in zip(contexts, alikes, strict=False):
        ids, covering = prompt(names, alike)
        full = len(ids) // SIZE
        hashes = tuple(int.from_bytes(key[:8], "big") for key in covering.keys)
        mirror.apply(HOLDER, [Stored(hashes, None, tuple(ids[: full * SIZE]), SIZE)])
        mirror.cover("space", None, refs(names), covering, HOLDER)
    for names in contexts[: len(alikes)]:
        ids, covering = prompt((*names, 9), 0)
        shared = len(HEAD) + 10 * len(names)
        assert mirror.expected("space", refs((*names, 9))) == shared // SIZE * SIZE
    assert mirror.expected("space", refs((8,))) == len(HEAD) // SIZE * SIZE


def test_another_beginning_is_another_head():
    mirror = Mirror()
    _, covering = prompt((1, 2), 0)
    mirror.cover("space", None, refs((1, 2)), covering, HOLDER)
    other = [3] * 10
    ids, _ = prompt((1, 2), 0)
    ids = other + ids[10:]
    parts = [ids[place : place + SIZE] for place in range(0, len(ids) - SIZE + 1, SIZE)]
    keys = chain(ids, SIZE)
    hashes = tuple(int.from_bytes(key[:8], "big") for key in keys)
    mirror.apply(HOLDER, [Stored(hashes, None, tuple(ids[: len(keys) * SIZE]), SIZE)])
    mirror.cover("space", None, refs((1, 2)), Covering(keys, tuple(map(content, parts)), covering.ends, len(ids), SIZE))
    assert mirror.expected("space", refs((1, 2))) == 30 // SIZE * SIZE
    assert mirror.counts().passages == 6
