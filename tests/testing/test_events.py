"""KV-cache events over ZeroMQ: what is published and replayed is what happened."""

from __future__ import annotations

import asyncio
import http.client
import socket
import threading
from concurrent.futures import ThreadPoolExecutor

import openai
import pytest
import zmq
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from contextpilot_rag.errors import EngineUnavailable
from contextpilot_rag.testing import EventOptions, FakeEngine
from contextpilot_rag.testing.events import END
from tests.testing.common import ENGLISH, MESSAGES, chat_body, post, user
from tests.testing.follower import Follower, apply
from tests.until import until


def ports(engine):
    return [int(url.rsplit(":", 1)[1]) for url in (engine.base_url[:-3], engine.events_url, engine.replay_url)]


@pytest.fixture
def engine():
    with FakeEngine(block_size=8, events=True) as engine:
        yield engine


def test_reset_tells_at_once_or_with_the_next_request():
    for late in (False, True):
        options = EventOptions(late_clear=late)
        with FakeEngine(block_size=8, events=options) as engine, Follower(engine) as follower:
            engine.chat({**user(ENGLISH), "max_tokens": 1})
            follower.read()
            engine.reset()
            if late:
                assert len(follower.replayed()) == 1
            else:
                assert follower.read()[2][1] == [{"type": "AllBlocksCleared"}]
            engine.chat({**user(ENGLISH), "max_tokens": 1})
            if late:
                assert follower.read()[2][1] == [{"type": "AllBlocksCleared"}]
            assert follower.read()[2][1][0]["type"] == "BlockStored"


def test_replay_repeats_from_any_number_on(engine):
    with Follower(engine) as follower:
        for number in range(5):
            engine.chat(user(f"{number} {ENGLISH}"))
        live = []
        while len(live) < len(follower.replayed()):
            live.append(follower.read())
        assert [number for _, number, _ in live] == [*range(len(live))]
        assert follower.replayed() == live
        assert follower.replayed(3) == live[3:]
        assert follower.replay(10**6) == [[b"", END, b""]]
        follower.asked.send_multipart([b"no", b"request", b"at", b"all"])
        follower.asked.send_multipart([b""])
        assert follower.replayed(3) == live[3:]


def test_what_is_kept_is_bounded():
    with FakeEngine(block_size=8, events=EventOptions(buffer_steps=3)) as engine, Follower(engine) as follower:
        for number in range(6):
            engine.chat({**user(f"{number} {ENGLISH}"), "max_tokens": 1})
        assert [number for _, number, _ in follower.replayed()] == [3, 4, 5]


def test_events_wait_for_the_prompt_and_keep_their_order():
    """Two requests; the first one is still at its prompt when the second one is through."""
    entered, go = threading.Event(), threading.Event()

    async def sleep(_):
        entered.set()
        await asyncio.to_thread(go.wait, 20)

    with (
        FakeEngine(block_size=8, events=True, delay_seconds=1, sleep=sleep) as engine,
        Follower(engine) as follower,
        ThreadPoolExecutor(1) as pool,
    ):
        slow = pool.submit(post, engine, chat_body(max_tokens=1))
        assert entered.wait(20)
        assert follower.replayed() == []
        engine.chat({**user(ENGLISH), "max_tokens": 1})
        first, second = (follower.read()[2][1][-1]["token_ids"] for _ in range(2))
        assert first == engine.tokenize({"messages": MESSAGES})["tokens"][: len(first)]
        assert second != first
        go.set()
        assert slow.result(20)[0] == 200
        assert len(follower.replayed()) == 2


def test_each_request_waits_for_its_own_prompt():
    with FakeEngine(block_size=8, events=EventOptions(late_clear=True)) as engine, Follower(engine) as follower:
        first, second = (engine.receive({**user(text + ENGLISH), "max_tokens": 1}) for text in "12")
        engine.reset()
        assert follower.replayed() == []
        engine.prefilled(first)
        engine.prefilled(first)
        assert len(follower.replayed()) == 1
        engine.prefilled(second)
        assert [event["type"] for _, _, (_, events, _) in follower.replayed() for event in events] == [
            "BlockStored",
            "BlockStored",
        ]
        engine.chat({**user(ENGLISH), "max_tokens": 1})
        assert follower.replayed()[2][2][1] == [{"type": "AllBlocksCleared"}]


def test_events_are_out_when_the_answer_comes(engine):
    with Follower(engine) as follower:
        for stream in (False, True):
            engine.reset()
            before = len(follower.replayed())
            connection = http.client.HTTPConnection("127.0.0.1", ports(engine)[0], timeout=20)
            connection.request("POST", "/v1/chat/completions", chat_body(stream=stream, max_tokens=1))
            response = connection.getresponse()
            assert response.read(1)
            assert len(follower.replayed()) == before + 1
            connection.close()


def test_stop_keeps_numbers_and_crash_begins_again(engine):
    where = ports(engine)
    engine.chat({**user(ENGLISH), "max_tokens": 1})
    engine.stop()
    engine.chat({**user("While nobody can hear. " + ENGLISH), "max_tokens": 1})
    engine.start(*where)
    assert ports(engine) == where
    with Follower(engine) as follower:
        assert [number for _, number, _ in follower.replayed()] == [0, 1]
    assert engine.cached_hashes
    engine.crash()
    assert not engine.cached_hashes
    with pytest.raises(EngineUnavailable):
        _ = engine.events_url
    engine.start(*where)
    with Follower(engine) as follower:
        assert follower.replayed() == []
        engine.chat({**user(ENGLISH), "max_tokens": 1})
        assert follower.read()[1] == 0


def test_a_follower_comes_back_to_the_same_ports(engine):
    where = ports(engine)
    with Follower(engine) as follower:
        for _ in range(3):
            engine.crash()
            assert engine.followers == 0
            engine.start(*where)
            until(lambda: follower.idle() and engine.followers == 1)
            engine.chat({**user(ENGLISH), "max_tokens": 1})
            assert follower.read()[1] == 0
            assert len(follower.replayed()) == 1


def test_an_engine_that_connects():
    with zmq.Context() as context, context.socket(zmq.SUB) as follower:
        follower.setsockopt(zmq.RCVTIMEO, 20_000)
        follower.setsockopt(zmq.LINGER, 0)
        follower.subscribe(b"")
        port = follower.bind_to_random_port("tcp://127.0.0.1")
        options = EventOptions(connect=f"tcp://127.0.0.1:{port}", replay=False)
        with FakeEngine(block_size=8, events=options) as engine:
            assert (engine.events_url, engine.replay_url) == (options.connect, "")
            until(lambda: not follower.poll(0) and engine.followers == 1)  # a poll lets it subscribe
            engine.chat({**user(ENGLISH), "max_tokens": 1})
            assert follower.recv_multipart()[1] == bytes(8)


TRAFFIC = st.lists(
    st.tuples(st.lists(st.sampled_from("abcd"), min_size=1, max_size=4), st.sampled_from([None, "s"]), st.booleans()),
    min_size=1,
    max_size=15,
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(traffic=TRAFFIC)
def test_what_followers_know_is_what_is_cached(small, traffic):
    engine, follower, there = small
    for words, salt, reset in traffic:
        if reset:
            engine.reset()
        engine.chat({**user(" ".join(word * 20 for word in words)), "cache_salt": salt})
    engine.reset()
    engine.chat(user("the last"))
    while there != engine.cached_hashes:
        apply(there, follower.read()[2][1])
    late = set()
    for _, _, (_, events, _) in follower.replayed():
        apply(late, events)
    assert late == there


@pytest.fixture(scope="module")
def small():
    options = EventOptions(buffer_steps=1_000_000)
    with FakeEngine(block_size=4, capacity_blocks=60, events=options) as engine, Follower(engine) as follower:
        yield engine, follower, set()


def test_threads_ask_while_followers_read():
    """The follower who was there, and one who comes in the middle, know the cache at the end."""
    with FakeEngine(block_size=4, capacity_blocks=300, events=True) as engine, Follower(engine) as follower:

        def ask(number):
            text = f"{number % 7} {ENGLISH}{number % 3}{ENGLISH}"
            salt = None if number % 2 else "s"
            assert engine.chat({**user(text), "cache_salt": salt})["usage"]

        with ThreadPoolExecutor(8) as pool:
            asked = pool.map(ask, range(300))
            with Follower(engine) as late:
                first = late.read()[1]
                known = late.replayed()
                list(asked)
                engine.reset()
                ask(1)
                total = len(follower.replayed())
                messages = [follower.read() for _ in range(total)]
                following = [late.read() for _ in range(total - 1 - first)]
        there, later = set(), set()
        for number, (_, said, (_, events, _)) in enumerate(messages):
            assert said == number
            apply(there, events)
        assert there == engine.cached_hashes
        for _, _, (_, events, _) in [*known, *(one for one in following if one[1] > known[-1][1])]:
            apply(later, events)
        assert later == there


async def test_requests_over_http_while_followers_read():
    """Prompts take different times, so that answers overtake each other; the order of the cache stays."""

    async def sleep(seconds):
        await asyncio.sleep(seconds % 0.01)

    rate = {"prefill_tokens_per_second": 20_000}
    with (
        FakeEngine(block_size=4, capacity_blocks=300, events=True, sleep=sleep, **rate) as engine,
        Follower(engine) as follower,
    ):
        async with openai.AsyncOpenAI(base_url=engine.base_url, api_key="none", max_retries=0) as client:

            async def ask(number):
                stream = await client.chat.completions.create(
                    model="any",
                    messages=user(f"{number % 5} {ENGLISH * (number % 3)}")["messages"],
                    stream=True,
                    extra_body={"cache_salt": f"s-{number % 2}"},
                )
                return [chunk async for chunk in stream]

            assert all(await asyncio.gather(*map(ask, range(80))))
        there = set()
        for number in range(len(follower.replayed())):
            _, said, (_, events, _) = follower.read()
            assert said == number
            apply(there, events)
        assert there == engine.cached_hashes


def test_who_leaves_early_is_told_of_all_the_same(engine):
    """Another client's follower must not miss what a request has cached, though nobody waited for its answer."""
    entered = threading.Event()

    async def for_ever(_):
        entered.set()
        await asyncio.Event().wait()

    engine.sleep, engine.delay_seconds = for_ever, 1
    with Follower(engine) as follower:
        connection = http.client.HTTPConnection("127.0.0.1", ports(engine)[0], timeout=20)
        connection.request("POST", "/v1/chat/completions", chat_body(stream=True, max_tokens=1))
        assert entered.wait(20)
        assert follower.replayed() == []
        connection.close()
        assert set(follower.read()[2][1][0]["block_hashes"]) == engine.cached_hashes
        until(lambda: not engine.facts().running)


def test_who_publishes_nothing_has_no_address():
    with FakeEngine() as engine:
        for name in ("events_url", "replay_url"):
            with pytest.raises(EngineUnavailable, match="publishes no events"):
                getattr(engine, name)
        assert engine.followers == 0
    with pytest.raises(EngineUnavailable, match="or start"):
        _ = FakeEngine(events=True).events_url


def test_taken_ports():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        for where in ({"events_port": port}, {"replay_port": port}, {"events_port": 70_000}, {"replay_port": "x"}):
            other = FakeEngine(events=True)
            with pytest.raises(EngineUnavailable, match="cannot publish its events"):
                other.start(**where)
            with pytest.raises(EngineUnavailable, match="not started"):
                _ = other.base_url
        other = FakeEngine(events=True)
        with pytest.raises(EngineUnavailable, match="cannot have port"):
            other.start(port)
        other.start().stop()
