"""Events in every form that engines gave them, and in none."""

from __future__ import annotations

import contextlib

import hypothesis.strategies as st
import msgspec
import pytest
from hypothesis import given

from contextpilot_rag.engines.chain import ROOT, chain, extended
from contextpilot_rag.engines.decoding import MAX_PAYLOAD, decode
from contextpilot_rag.engines.feed import Feed
from contextpilot_rag.engines.kv import Batch, Cleared, Removed, Stored, salt_extra
from contextpilot_rag.engines.steps import Pass
from contextpilot_rag.errors import EngineError, EventError
from tests.engines.fixtures.streams import BRANCH, FIRST, SALT, SIZE, STORY, STREAMS, read, text

NAMES = (
    "block_hashes parent_block_hash token_ids block_size lora_id medium lora_name extra_keys group_idx "
    "kv_cache_spec_kind kv_cache_spec_sliding_window"
).split()


def encoded(*events, rank=0):
    return msgspec.msgpack.encode([1.5, list(events), rank])


def stored(**changes):
    return {
        "type": "BlockStored",
        "block_hashes": [1, 2],
        "parent_block_hash": None,
        "token_ids": [5, 6, 7, 8],
        "block_size": 2,
        "lora_id": None,
        **changes,
    }


def event_of(**changes):
    return decode(encoded(stored(**changes))).events[0]


def extra_of(**changes):
    return event_of(**changes).extra


@pytest.mark.parametrize("name", STREAMS)
class TestStreams:
    def test_the_fixture_is_what_the_script_writes(self, name):
        assert [payload.hex() for _, payload in read(name)] == [line.split()[1] for line in text(name).splitlines()]

    def test_it_tells_the_story(self, name):
        """By our names for KV blocks, as the mirror makes them."""
        feed, there, known = Feed(replay=False), set(), {}
        feed.connected(0.0)
        after = []
        for number, payload in read(name):
            batch = decode(payload)
            assert batch.rank == 0
            assert batch.at is not None
            assert not batch.unknown
            for action in feed.live(0.0, number, batch):
                assert isinstance(action, Pass)
                for event in action.batch.events:
                    apply(event, there, known)
            after.append(set(there))
        truth = [there_after(count) for count in range(1, len(STORY) + 1)]
        if name == "sglang-default":  # it has one name for several: then it is not clear whose is what
            assert all(found <= real for found, real in zip(after, truth, strict=True))
            assert [after[number] for number in (0, 5, 6)] == [truth[number] for number in (0, 5, 6)]
        else:
            assert after == truth


def apply(event, there, known):
    if isinstance(event, Cleared):
        there.clear()
    elif isinstance(event, Removed):
        for one in event.hashes:
            there -= known.pop(one, set())
    else:
        before = {ROOT} if event.parent is None else known.get(event.parent, set())
        for position, one in enumerate(event.hashes):
            tokens = event.tokens[position * event.block_size :][: event.block_size]
            extra = event.extra[position] if event.extra else ""
            own = {extended(*before, tokens, extra)} if len(before) == 1 else set()
            known.setdefault(one, set()).update(own)
            there |= own
            before = own


def there_after(batches):
    there = set()
    for batch in STORY[:batches]:
        for kind, *what in batch:
            if kind == "cleared":
                there.clear()
            elif kind == "removed":
                there -= {chain(tokens, SIZE, salt)[-1] for tokens, salt in what[0]}
            else:
                there |= set(chain(what[0], SIZE, what[2])[what[1] // SIZE :])
    return there


def test_the_story_needs_salts_and_branches():
    assert chain(FIRST, SIZE, SALT)[2] != chain(FIRST, SIZE)[2]
    assert chain(FIRST, SIZE)[0] == chain(BRANCH, SIZE)[0]


def test_maps_and_arrays_of_any_length_say_the_same():
    fields = stored(medium="CPU", lora_name=None, extra_keys=[["s"], None], group_idx=3)
    fields |= {"kv_cache_spec_kind": "sliding_window", "kv_cache_spec_sliding_window": 128}
    whole = decode(encoded(fields)).events[0]
    array = ["BlockStored", *(fields[name] for name in NAMES)]
    assert decode(encoded(array)).events[0] == whole
    assert decode(encoded([*array, "more", {"and": "more"}])).events[0] == whole
    assert decode(encoded({**fields, "locality": "LOCAL", "other": [1]})).events[0] == whole
    for length in range(5, len(array)):
        less = {name: fields[name] for name in NAMES[: length - 1]}
        assert decode(encoded(array[:length])) == decode(encoded({"type": "BlockStored", **less}))


def test_a_batch_may_be_an_array_or_a_map():
    events = [{"type": "AllBlocksCleared"}]
    cleared = (Cleared(),)
    assert decode(msgspec.msgpack.encode([2, events])) == Batch(cleared, at=2.0)
    assert decode(msgspec.msgpack.encode([2.5, events, 3, "more"])) == Batch(cleared, 3, at=2.5)
    as_map = {"ts": 2.5, "events": events, "data_parallel_rank": 3, "epoch": "e1", "more": 0}
    assert decode(msgspec.msgpack.encode(as_map)) == Batch(cleared, 3, at=2.5, epoch="e1")
    assert decode(msgspec.msgpack.encode({"events": events, "attn_dp_rank": 3})) == Batch(cleared, 3)
    assert decode(msgspec.msgpack.encode([float("nan"), []])) == Batch(())


@pytest.mark.parametrize(
    ("raw", "meant"), [(-1, 2**64 - 1), (-(2**63), 2**63), (2**64 - 1, 2**64 - 1), (0, 0), (b"x", b"x")]
)
def test_hashes_are_unsigned_or_bytes(raw, meant):
    assert event_of(block_hashes=[raw, 2], parent_block_hash=raw) == Stored((meant, 2), meant, (5, 6, 7, 8), 2)
    assert decode(encoded(["BlockRemoved", [raw]])).events == (Removed((meant,)),)


@pytest.mark.parametrize("medium", ["CPU", "STORAGE", "CPU_PINNED", "DISK", "EXTERNAL"])
def test_media(medium):
    assert event_of(medium=medium).medium == medium
    removed = {"type": "BlockRemoved", "block_hashes": [1], "medium": medium, "group_idx": 2}
    assert decode(encoded(removed)).events == (Removed((1,), medium, 2),)
    assert event_of(medium=None).medium == "GPU"


@pytest.mark.parametrize(
    ("kind", "window", "sliding"),
    [
        (None, None, False),
        ("full_attention", None, False),
        ("mla_attention", None, False),
        ("sink_full_attention", None, False),
        ("full_attention", 128, True),
        ("sliding_window", 128, True),
        ("sliding_window", None, True),
        ("mamba", None, True),
        ("chunked_local_attention", None, True),
        ("of tomorrow", None, True),
        (7, None, True),
    ],
)
def test_kinds_of_attention(kind, window, sliding):
    event = event_of(kv_cache_spec_kind=kind, kv_cache_spec_sliding_window=window)
    assert event.sliding is sliding


class TestExtra:
    def test_nothing(self):
        assert extra_of() == extra_of(extra_keys=None) == extra_of(extra_keys=[None, None]) == ()
        assert extra_of(extra_keys=[[], []]) == extra_of(cache_salt="") == ()

    def test_a_salt_at_a_prompts_beginning(self):
        both = (salt_extra("acme"), "")
        assert extra_of(extra_keys=[["acme"], None]) == both
        assert extra_of(cache_salt="acme", session_id="s") == both
        assert extra_of(extra_keys=[["acme"], None], cache_salt="acme") == both

    def test_further_on_it_is_told_by_the_parent(self):
        assert extra_of(cache_salt="acme", parent_block_hash=9) == ()

    def test_whatever_else_is_no_salt(self):
        others = [
            extra_of(lora_name="acme"),
            extra_of(lora_name="acme", extra_keys=[["acme"], ["acme"]]),
            extra_of(lora_name="acme", extra_keys=[["acme", "acme"], ["acme"]]),
            extra_of(lora_name="acme", cache_salt="acme"),
            extra_of(lora_id=1),
            extra_of(extra_keys=[[b"acme"], None]),
            extra_of(extra_keys=[[["acme", 0]], None]),
            extra_of(extra_keys=[[["acme", 0], "acme"], None]),
            extra_of(extra_keys=[["acme", b"digest"], None]),
            extra_of(extra_keys=[["acme"], None], parent_block_hash=9),
            extra_of(extra_keys=[None, ["acme"]]),
        ]
        assert len(set(others)) == len(others)
        for extra in others:
            assert len(extra) == 2
            assert any(extra)
            assert not any(one.startswith(salt_extra("")) for one in extra)

    def test_a_salt_that_looks_like_another_extra_stays_a_salt(self):
        for other in extra_of(extra_keys=[[b"acme"], ["x"]]):
            assert extra_of(extra_keys=[[other], None])[0] == salt_extra(other) != other

    def test_equal_in_every_process_and_nothing_of_it_readable(self):
        [one, _] = extra_of(lora_name="secret-name")
        assert one == "other:2c91a26dfcc4dd7f4b0ae8671fef3fb1"


@pytest.mark.parametrize(
    "changes",
    [
        {"token_ids": [5, 6, 7]},  # some KV blocks left out
        {"block_hashes": []},
        {"token_ids": [], "block_size": 0},  # in another medium
        {"token_ids": [[5, 6], [6, 7], [7, 8], [8, 9]]},  # pairs, for speculative decoding
        {"token_ids": [5, 6, 7, -1]},
        {"token_ids": [5, 6, 7, True]},
        {"extra_keys": [None]},
        {"extra_keys": "ab"},
        {"block_size": -2},
    ],
)
def test_what_is_not_clear_is_left_out_and_counted(changes):
    payload = encoded(stored(**changes), {"type": "AllBlocksCleared"}, ["BlockMoved", 1])
    assert decode(payload) == Batch((Cleared(),), 0, unknown=2, at=1.5)


@pytest.mark.parametrize(
    "raw",
    [
        None,
        7,
        "text",
        [],
        [1.5],
        {"ts": 1.5},
        [1.5, "events"],
        [1.5, [7]],
        [1.5, [[]]],
        [1.5, [["BlockRemoved"]]],
        [1.5, [["BlockRemoved", [1.5]]]],
        [1.5, [["BlockRemoved", [None]]]],
        [1.5, [["BlockStored", [1], None]]],
        [1.5, [["BlockStored", [1], "parent", [1, 2], 2]]],
        [1.5, [["BlockStored", [1], None, [1, 2], "2"]]],
        [1.5, [{"type": 7}]],
        [1.5, [{"block_hashes": [1]}]],
        [1.5, [stored(), stored(token_ids=None)]],
    ],
)
def test_what_must_be_there_and_is_not_is_an_error(raw):
    with pytest.raises(EventError) as caught:
        decode(msgspec.msgpack.encode(raw))
    assert isinstance(caught.value, EngineError)


def test_errors_say_which_event_and_tell_no_secrets():
    with pytest.raises(EventError, match="event 2 of 2: BlockStored without token_ids or block_size") as caught:
        decode(encoded(stored(), stored(cache_salt="acme", token_ids=4711)))
    assert "acme" not in str(caught.value)
    assert "4711" not in str(caught.value)


def test_too_long():
    with pytest.raises(EventError, match="at most"):
        decode(bytes(MAX_PAYLOAD + 1))


@given(st.binary(max_size=200))
def test_any_bytes_are_a_batch_or_an_error(payload):
    with contextlib.suppress(EventError):
        assert isinstance(decode(payload), Batch)


ANY = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats()
    | st.text(max_size=5)
    | st.binary(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(["type", *NAMES]), inner, max_size=5),
    max_leaves=20,
)
KINDS = st.sampled_from(["BlockStored", "BlockRemoved", "AllBlocksCleared", "Other"])


@given(
    st.lists(
        st.builds(lambda kind, fields: {**fields, "type": kind}, KINDS, st.dictionaries(st.sampled_from(NAMES), ANY))
    )
)
def test_any_fields_are_events_or_an_error(events):
    payload = msgspec.msgpack.encode([1.0, events])
    try:
        batch = decode(payload)
    except EventError:
        return
    assert len(batch.events) + batch.unknown == len(events)
    hash(batch)  # can be told from another
    for event in batch.events:
        if isinstance(event, Stored):
            assert len(event.tokens) == len(event.hashes) * event.block_size
            assert not event.extra or len(event.extra) == len(event.hashes)
            extended(ROOT, event.tokens)


@given(st.binary(max_size=30), st.integers(0, 200), st.integers(0, 255))
def test_a_broken_stream_is_a_batch_or_an_error(more, where, byte):
    payload = bytearray(encoded(stored(extra_keys=[["s"], None])) + more)
    payload[where % len(payload)] = byte
    with contextlib.suppress(EventError):
        assert isinstance(decode(bytes(payload)), Batch)


def test_deep_nesting_is_an_error():
    with pytest.raises(EventError):
        decode(b"\x91" * 100_000 + b"\xc0")
