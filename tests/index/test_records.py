"""Records: all that is told can be read, and what cannot be true is refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contextpilot_rag import Alignment, BlockRef, Namespace, OrderBudget, Request, Rule, Usage
from contextpilot_rag.errors import StateError
from contextpilot_rag.index import records
from contextpilot_rag.index.fed import FedIndex
from contextpilot_rag.index.plain_keys import plain_request
from contextpilot_rag.index.records import Failed, Forgot, IndexRecord, Observed, Sent, checked
from contextpilot_rag.index.state import StatePart
from contextpilot_rag.types import Belief

SPACE = Namespace("acme", "m", "c", "head")
KEYS = st.one_of(st.binary(max_size=80), st.text(max_size=80), st.integers())
PARTS = msgspec.msgpack.Decoder(StatePart)
DECODER = msgspec.msgpack.Decoder(IndexRecord)


def through(record: IndexRecord) -> IndexRecord:
    """As it comes back from the log."""
    return checked(DECODER.decode(msgspec.msgpack.encode(record)))


@st.composite
def alignments(draw) -> Alignment:
    keys = draw(st.lists(KEYS, max_size=8, unique_by=lambda key: (type(key), key)))
    blocks = tuple(BlockRef(key, draw(st.integers(1, 5_000))) for key in keys)
    budget = draw(
        st.sampled_from([OrderBudget(), OrderBudget("throughput", 0.0, 2, 5), OrderBudget("throughput", 0.0)])
    )
    request = plain_request(Request(blocks, SPACE, budget))
    order = tuple(draw(st.permutations(range(len(blocks)))))
    cached = draw(st.integers(0, len(blocks)))
    tokens = sum(request.blocks[rank].tokens for rank in order[:cached])
    return Alignment(request, order, cached, tokens, 0, draw(st.sampled_from(list(Rule))))


@settings(max_examples=150, deadline=None)
@given(alignments(), st.booleans())
def test_an_alignment_comes_back_as_it_was_sent(alignment, learn):
    record = through(records.sent(alignment, learn=learn))
    assert isinstance(record, Sent)
    found = records.alignment_of(record, SPACE)
    assert (found.request.blocks, found.order, found.rule) == (
        alignment.request.blocks,
        alignment.order,
        alignment.rule,
    )
    assert (found.cached_blocks, found.predicted_cached_tokens) == (
        alignment.cached_blocks,
        alignment.predicted_cached_tokens,
    )
    if learn:
        budget = alignment.request.budget
        assert record.learn == (budget.protect_top, budget.max_displacement)


@settings(max_examples=100, deadline=None)
@given(alignments(), st.integers(0, 2**62), st.integers(0, 2**62))
def test_a_report_comes_back_with_its_belief_in_the_order_of_the_prompt(alignment, tree, at):
    ends = sorted({1, alignment.cached_blocks} - {0}) if alignment.cached_blocks else []
    belief = Belief(at, None, tuple((end, 7) for end in ends), tree)
    taken = replace(alignment, belief=belief)
    record = through(records.observed(taken, Usage(100, 64, 5), "w-1"))
    assert isinstance(record, Observed)
    found = records.alignment_of(record, SPACE)
    sequence = [alignment.request.blocks[rank] for rank in alignment.order]
    assert [found.request.blocks[rank] for rank in found.order] == sequence
    assert found.belief is not None
    assert (found.belief.tree, found.belief.at, found.belief.uses) == (tree, at, belief.uses)
    assert records.usage_of(record) == Usage(100, 64, 5)
    failed = through(records.failed(taken))
    assert isinstance(failed, Failed)
    assert records.alignment_of(failed, SPACE).request == found.request


SOUND = Sent("head", ["a", b"b", 3], [10, 20, 30], [2, 0, 1], 1, 30, 0, "prefix", (0, None))
REPORT = Observed("head", ["a", b"b", 3], [10, 20, 30], 2, 30, "w-1", 5, 9, [(1, 3), (2, None)], 100, 32, 5)
DAMAGE: dict[str, dict[str, Any]] = {
    "no tokens": {"tokens": [10, 20]},
    "more tokens": {"tokens": [10, 20, 30, 40]},
    "a block twice": {"keys": ["a", "a", 3]},
    "more cached than there is": {"cached_blocks": 4},
}
DAMAGE_OF_SENT: dict[str, dict[str, Any]] = {
    "a rank twice": {"order": [0, 0, 1]},
    "a rank that is none": {"order": [0, 1, 3]},
    "too few ranks": {"order": [0, 1]},
    "predicts more than there is": {"predicted": 61},
    "would have found more than there is": {"retrieved": 61},
}
DAMAGE_OF_REPORT: dict[str, dict[str, Any]] = {
    "a belief beyond the blocks": {"uses": [(4, None)]},
    "a belief in nothing": {"uses": [(0, None)]},
    "a belief twice": {"uses": [(1, None), (1, None)]},
    "a belief backwards": {"uses": [(2, None), (1, None)]},
}
KEYS_THAT_ARE_NONE = [True, None, 1.5, [1], {"a": 1}, 2**63, -(2**63) - 1, "x" * 65, b"x" * 65]


@pytest.mark.parametrize("record", [SOUND, REPORT, Failed("", ["a"], [1]), Forgot("head"), Forgot()])
def test_sound_records_are_taken(record):
    assert through(record) == record


@pytest.mark.parametrize("damage", DAMAGE | DAMAGE_OF_SENT)
def test_damaged_requests_are_refused(damage):
    with pytest.raises(StateError):
        checked(msgspec.structs.replace(SOUND, **(DAMAGE | DAMAGE_OF_SENT)[damage]))


@pytest.mark.parametrize("damage", DAMAGE | DAMAGE_OF_REPORT)
def test_damaged_reports_are_refused(damage):
    with pytest.raises(StateError):
        checked(msgspec.structs.replace(REPORT, **(DAMAGE | DAMAGE_OF_REPORT)[damage]))


@pytest.mark.parametrize("key", KEYS_THAT_ARE_NONE, ids=repr)
def test_keys_that_no_replica_tells_are_refused(key):
    with pytest.raises(StateError):
        checked(msgspec.structs.replace(SOUND, keys=["a", key, 3]))


@pytest.mark.parametrize(
    "wrong",
    [
        ["sent", "h" * 257, [], []],
        ["sent", "", ["a"], [-1]],
        ["sent", "", ["a"], [2**31 + 1]],
        ["sent", "", ["a"], ["1"]],
        ["sent", "", ["a"], [1], [0], -1],
        ["sent", "", ["a"] * 70_000, [1] * 70_000],
        ["sent"],
        ["observed", "", ["a"], [1], 0, 0, "n" * 65],
        ["observed", "", ["a"], [1], 0, 0, "", 2**63],
        ["failed", 5, [], []],
        ["forgot", None],
        ["later", "", 1],
        [],
        {},
        "sent",
        None,
    ],
)
def test_what_is_no_record_is_not_decoded(wrong):
    with pytest.raises(msgspec.ValidationError):
        DECODER.decode(msgspec.msgpack.encode(wrong))


def test_fields_and_rules_of_later_versions_are_passed_over():
    told = [*msgspec.msgpack.decode(msgspec.msgpack.encode(SOUND)), "e", "new", {"more": 1}]
    told[8] = "a rule to come"
    record = checked(DECODER.decode(msgspec.msgpack.encode(told)))
    assert isinstance(record, Sent)
    assert records.alignment_of(record, SPACE).rule is Rule.PREFIX


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_nothing_that_passes_breaks_an_index(data):
    """Fields at random: what is taken can be applied, and what is known then can be written and read elsewhere."""
    small = st.integers(0, 6)
    keys = st.lists(st.one_of(st.sampled_from("abcdef"), small, st.binary(max_size=2)), max_size=5)
    tokens = st.lists(st.sampled_from([0, 1, 50, 2**31]), max_size=5)
    ends = st.lists(st.tuples(small, st.none() | small), max_size=3)
    head = st.sampled_from(["", "x"])
    reported = st.none() | st.integers(0, 2**31)
    learn = st.none() | st.tuples(small, st.none() | small)
    made = st.one_of(
        st.builds(Sent, head, keys, tokens, st.lists(small, max_size=5), small, small, small, st.just("tail"), learn),
        st.builds(
            Observed, head, keys, tokens, small, small, st.just("w-1"), small, small, ends, reported, reported, reported
        ),
        st.builds(Failed, head, keys, tokens, small, small, small),
        st.builds(Forgot, head),
    )
    index, space = FedIndex(500, journal=_Nowhere()), Namespace("acme")
    for number, record in enumerate(data.draw(st.lists(made, max_size=12))):
        try:
            sound = through(record)
        except StateError:
            continue
        index.apply(space, f"w-{number}", sound, own=False)
    parts = [msgspec.msgpack.encode(part) for part in index.dump_space(space)]
    other = FedIndex(500)
    other.replace_space(space, [PARTS.decode(part) for part in parts])
    for namespace in index.namespaces():
        for key in "abcdef":
            request = Request((BlockRef(key, 5),), namespace)
            assert index.predict(request) == other.predict(request)
        index.align(Request((BlockRef("a", 5), BlockRef("b", 5)), namespace, OrderBudget("throughput")))


class _Nowhere:
    def append(self, *_):
        return "none"

    def forgot(self, *_):
        pass
