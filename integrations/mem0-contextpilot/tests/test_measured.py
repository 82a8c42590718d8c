"""What the endpoint reports over ten questions, with and without; the README's tables are what is measured."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest

from measure.table import (
    BEGIN,
    END,
    README,
    TABLES,
    filled_memory,
    measured,
    our_conversation,
    our_requests,
    plain_conversation,
    plain_requests,
    tables,
)


def cached(turns):
    return sum(turn.cached for turn in turns)


@pytest.mark.parametrize(
    ("plain", "ours"), [(plain_requests, our_requests), (plain_conversation, our_conversation)], ids=["single", "turns"]
)
@pytest.mark.parametrize("store", ["faiss", "qdrant"])
def test_at_least_twice_as_much_is_cached(store, plain, ours, request):
    if store == "faiss":
        memory = request.getfixturevalue("filled")
        without, with_us = measured(memory, plain), measured(memory, ours)
    else:
        with filled_memory(store) as memory:
            without, with_us = measured(memory, plain), measured(memory, ours)
    assert len(without) == len(with_us) == 10
    assert cached(with_us) >= 2 * cached(without) > 0
    assert sum(turn.prompt - turn.cached for turn in with_us) < sum(turn.prompt - turn.cached for turn in without)


def test_every_turn_begins_with_the_whole_turn_before(filled):
    turns = measured(filled, our_conversation)
    for before, turn in pairwise(turns):
        assert turn.text.startswith(before.text)
        assert turn.cached >= before.prompt - 16 - 8  # all of it but for the last, unfinished block


def test_the_readme_shows_what_is_measured(filled):
    """Where the numbers of another numpy, scipy or faiss rank some memories otherwise, they may be off by a little."""
    readme = README.read_text(encoding="utf-8")
    for name, made in zip(TABLES, tables(filled), strict=True):
        shown = readme.split(BEGIN.format(name))[1].split(END.format(name))[0]
        assert re.sub(r"[\d,.]+", "#", shown) == re.sub(r"[\d,.]+", "#", made)
        for was, now in zip(numbers(shown), numbers(made), strict=True):
            assert now == pytest.approx(was, rel=0.1)


def numbers(table):
    return [float(number.replace(",", "")) for number in re.findall(r"\d[\d,.]*", table)]
