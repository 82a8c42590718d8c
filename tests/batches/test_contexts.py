"""Contexts as arrays: nothing is lost on the way there and back."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from contextpilot_rag.batches.contexts import Contexts, hashes_of
from contextpilot_rag.types import Namespace, OrderBudget, Request

from ..strategies import requests as blocks

spaces = st.sampled_from([Namespace(), Namespace("t"), Namespace("t", "m"), Namespace("", "t")])
budgets = st.sampled_from([OrderBudget(), OrderBudget("throughput"), OrderBudget("throughput", 0.1, 1)])
some_requests = st.lists(st.builds(Request, blocks, spaces, budgets), max_size=12)


def plain(contexts):
    return [(request.blocks, request.namespace, request.budget) for request in contexts.requests()]


def as_given(requests):
    return [(request.blocks, request.namespace, request.budget) for request in requests]


@given(some_requests)
def test_requests_come_back_as_they_were(requests):
    assert plain(Contexts.of(requests)) == as_given(requests)


@given(some_requests, st.data())
def test_any_selection_in_any_order_is_of_the_same_requests(requests, data):
    rows = data.draw(st.lists(st.sampled_from(range(len(requests))), max_size=20) if requests else st.just([]))
    selected = Contexts.of(requests).select(np.array(rows, np.int64))
    assert plain(selected) == as_given([requests[row] for row in rows])
    assert len(selected.keys) == len(set(selected.blocks.tolist()))  # no block is carried for nothing


@given(st.lists(some_requests, min_size=1, max_size=4))
def test_put_together_all_are_there_in_order_and_each_block_once(parts):
    whole = Contexts.concatenated([Contexts.of(part) for part in parts])
    assert plain(whole) == [one for part in parts for one in as_given(part)]
    entries = list(zip(whole.keys, whole.tokens.tolist(), whole.hashes.tolist(), strict=True))
    assert len(entries) == len(set(entries))


def test_namespaces_and_kinds_of_keys_have_hashes_of_their_own():
    assert len({int(hashes_of([key], Namespace())[0]) for key in ("1", b"1", 1, ("1",), "s1")}) == 5
    spaces = [Namespace(), Namespace("a"), Namespace("", "a"), Namespace("", "", "", "a"), Namespace("a", "b")]
    assert len(set(hashes_of(["x"] * 5, spaces).tolist())) == 5


def test_hashes_are_the_same_in_every_process():
    keys = "hashes_of(['a', b'b', 3, (4,)], Namespace('t')).tolist()"
    code = f"from contextpilot_rag.batches.contexts import *; print({keys})"
    other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert other.strip() == str(hashes_of(["a", b"b", 3, (4,)], Namespace("t")).tolist())
