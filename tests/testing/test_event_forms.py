"""KV-cache events on the wire: frames, dialects, older forms."""

from __future__ import annotations

import sys

import msgspec
import pytest

from contextpilot_rag.errors import MissingPackage, SettingsError
from contextpilot_rag.testing import EventOptions, FakeEngine
from contextpilot_rag.testing.events import END
from tests.testing.common import ENGLISH, MESSAGES, user
from tests.testing.follower import Follower


@pytest.fixture
def engine():
    with FakeEngine(block_size=8, events=True) as engine:
        yield engine


def test_the_frames_of_a_message(engine):
    with Follower(engine) as follower:
        engine.chat({"messages": MESSAGES, "max_tokens": 1, "cache_salt": "acme"})
        topic, number, payload = follower.live.recv_multipart()
    assert (topic, number) == (b"", bytes(8))
    at, events, rank = msgspec.msgpack.decode(payload)
    assert isinstance(at, float)
    assert rank == 0
    (event,) = events
    tokens = engine.tokenize({"messages": MESSAGES})["tokens"]
    blocks = len(tokens) // 8
    assert set(event.pop("block_hashes")) == engine.cached_hashes
    assert event == {
        "type": "BlockStored",
        "parent_block_hash": None,
        "token_ids": tokens[: 8 * blocks],
        "block_size": 8,
        "lora_id": None,
        "medium": "GPU",
        "lora_name": None,
        "extra_keys": [["acme"], *[None] * (blocks - 1)],
        "group_idx": 0,
        "kv_cache_spec_kind": "full_attention",
    }


def test_a_pure_hit_is_silent_and_removals_come_one_by_one():
    with FakeEngine(block_size=4, capacity_blocks=20, events=True) as engine, Follower(engine) as follower:
        for text in ("A slice. ", "A slice. ", "No step. "):
            engine.chat({**user("Documents: " + text * 12), "max_tokens": 1})
        (stored,) = follower.read()[2][1]
        _, number, (_, events, _) = follower.read()
        assert number == 1
        *removed, new = events
        assert {event["type"] for event in removed} == {"BlockRemoved"}
        assert all(len(event["block_hashes"]) == 1 for event in removed)
        assert {event["block_hashes"][0] for event in removed} < set(stored["block_hashes"])
        assert new["parent_block_hash"] in stored["block_hashes"]  # the template's begin is a hit


def test_older_replays_have_no_topic():
    options = EventOptions(topic="kv@one", replay_topic_frame=False)
    with FakeEngine(block_size=8, events=options) as engine, Follower(engine, b"kv@one") as follower:
        engine.chat({**user(ENGLISH), "max_tokens": 1})
        topic, number, payload = follower.live.recv_multipart()
        assert topic == b"kv@one"
        assert follower.replay() == [[number, payload], [END, b""]]


def test_positional_arrays():
    with FakeEngine(block_size=8, events=EventOptions(format="array", rank=None)) as engine, Follower(engine) as one:
        engine.chat({**user(ENGLISH), "max_tokens": 1, "cache_salt": "s"})
        engine.reset()
        _, _, (_, [stored]) = one.read()
        assert stored[0] == "BlockStored"
        assert set(stored[1]) | {stored[2]} == {*stored[1], None}
        assert (len(stored[3]), stored[4:8], stored[8][0]) == (8 * len(stored[1]), [8, None, "GPU", None], ["s"])
        assert one.read()[2][1] == [["AllBlocksCleared"]]


@pytest.mark.parametrize("hashes", ["unsigned", "signed", "bytes"])
def test_names_of_kv_blocks(hashes):
    with FakeEngine(block_size=1, events=EventOptions(hashes=hashes)) as engine, Follower(engine) as follower:
        engine.chat({**user(ENGLISH), "max_tokens": 1})
        (event,) = follower.read()[2][1]
        names = event["block_hashes"]
        if hashes == "bytes":
            assert {len(one) for one in names} == {32}
            names = [int.from_bytes(one[-8:], "big") for one in names]
        elif hashes == "signed":
            assert min(names) < 0
            assert max(abs(one) for one in names) < 2**63
        assert {one % 2**64 for one in names} == engine.cached_hashes


def test_sglangs_dialect():
    with FakeEngine(block_size=4, capacity_blocks=20, dialect="sglang", events=True) as engine:
        with Follower(engine) as follower:
            for text in ("A slice. ", "No step. "):
                engine.chat({**user(text * 12), "max_tokens": 1, "cache_salt": "acme"})
            first, second = (follower.read()[2][1] for _ in range(2))
        parents = [None, *(event["block_hashes"][0] for event in first)]
        assert [event["parent_block_hash"] for event in first] == parents[:-1]
        for event in first:
            assert len(event["block_hashes"]) == 1
            assert len(event["token_ids"]) == event["block_size"] == 4
            assert event["cache_salt"] == "acme"
            assert "extra_keys" not in event
        assert [event["type"] for event in second] == ["BlockRemoved", *["BlockStored"] * (len(second) - 1)]
        assert len(second[0]["block_hashes"]) > 1
        assert min(min(event["block_hashes"]) for event in [*first, *second]) < 0


def test_without_pyzmq_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "zmq", None)
    with pytest.raises(MissingPackage, match=r"need pyzmq: pip install 'contextpilot-rag\[testing\]'"):
        FakeEngine(events=True).start()
    FakeEngine().start().stop()


@pytest.mark.parametrize(
    "options",
    [
        {"format": "json"},
        {"format": None},
        {"hashes": "hex"},
        {"dialect": "trt"},
        {"buffer_steps": -1},
        {"buffer_steps": 1.5},
        {"dialect": "sglang", "format": "array"},
    ],
)
def test_impossible_options(options):
    with pytest.raises(SettingsError, match="events"):
        EventOptions(**options)
    with pytest.raises(SettingsError, match="events must be"):
        FakeEngine(events="yes")
    with pytest.raises(SettingsError, match="dialect must be"):
        FakeEngine(dialect="trt")
    with pytest.raises(SettingsError, match="are maps"):
        FakeEngine(dialect="sglang", events=EventOptions(format="array"))
