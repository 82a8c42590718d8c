"""``pilot.engines``: which address is whose, how engines are given, what is said of a pool."""

from __future__ import annotations

import asyncio
import contextlib
import socket

import pytest

from contextpilot_rag import AsyncContextPilot, BlockRef, ContextPilot, Engine, Usage
from contextpilot_rag.engines.engine import engines_of, place_of
from contextpilot_rag.engines.events import EventListener
from contextpilot_rag.engines.sockets import somebody_at
from contextpilot_rag.errors import InputError, SettingsError
from contextpilot_rag.testing import FakeEngine
from contextpilot_rag.types import Request
from tests.engines.fleets import covering, fleet_of, stored
from tests.engines.test_following import BLOCKS, followed, said
from tests.until import until

DEAD = ("http://127.0.0.1:2 name=one", "http://127.0.0.1:3 name=two")
A, B = BlockRef("a", 100), BlockRef("b", 100)


def test_where_the_index_failed_the_load_is_spread(monkeypatch):
    with ContextPilot(engines=DEAD, on_error="open") as pilot:

        def fails(request):
            raise RuntimeError("on purpose")

        monkeypatch.setattr(pilot.index, "align", fails)
        prompts = [pilot.align([BLOCKS["A"]]) for _ in range(8)]
        assert {prompt.engine for prompt in prompts} == {None}
        urls = [pilot.engines.url(prompt) for prompt in prompts]
        assert sorted(set(urls)) == ["http://127.0.0.1:2/v1", "http://127.0.0.1:3/v1"]
        assert {urls.count(url) for url in urls} == {4}


def test_an_engine_that_has_left_is_not_answered_with():
    with ContextPilot(engines=DEAD) as pilot:
        prompts = [pilot.align([BLOCKS[name]]) for name in "ABCD"]
        assert {prompt.engine for prompt in prompts} == {"one", "two"}
        pilot.engines.remove("one")
        assert {pilot.engines.url(prompt) for prompt in prompts} == {"http://127.0.0.1:3/v1"}


def test_where_somebody_else_chooses_there_is_no_address():
    with ContextPilot(engines=DEAD, routing="external") as pilot, pytest.raises(InputError, match="your router"):
        pilot.engines.url(pilot.align(["x"]))


def test_a_service_chooses_no_engine(caplog):
    caplog.set_level("INFO")
    with ContextPilot("http://127.0.0.1:9", engines=DEAD, on_error="open") as pilot:
        assert [line for line in said(caplog) if "chooses no engine" in line] != []
        with pytest.raises(InputError, match="service does not say"):
            pilot.engines.url(pilot.align(["x"]))
    with ContextPilot("http://127.0.0.1:9", engines=DEAD[0], on_error="open") as pilot:
        assert pilot.engines.url(pilot.align(["x"])) == "http://127.0.0.1:2/v1"


def test_an_engine_is_found_by_its_name():
    with ContextPilot(engines=DEAD) as pilot:
        assert pilot.engines["two"].url == "http://127.0.0.1:3/v1"
        with pytest.raises(InputError, match="no engine is called 'three'; there are one, two"):
            _ = pilot.engines["three"]


async def test_what_was_told_can_be_awaited():
    with FakeEngine(events=True, block_size=16) as fake:
        async with AsyncContextPilot(engines=followed(fake)) as pilot:
            until(lambda: pilot.engines["fake"].level == "events" and pilot.engines["fake"].block_size == 16)
            prompt = await pilot.align([BLOCKS["A"]], "What?")
            await pilot.observe(prompt, fake.chat({"messages": prompt.messages(), **prompt.extra_body}))
            assert await asyncio.to_thread(pilot.engines.drained)
            assert pilot.engines["fake"].covered == 1


@pytest.mark.parametrize(
    ("given", "names"),
    [
        (Engine("http://a:1"), ["a:1"]),
        ("http://a:1", ["a:1"]),
        ("http://a:1,http://b:1 , http://c:1,", ["a:1", "b:1", "c:1"]),
        ("http://a:1; http://b:1;\nhttp://c:1", ["a:1", "b:1", "c:1"]),
        (["http://a:1", Engine("http://b:1")], ["a:1", "b:1"]),
        ("", []),
    ],
)
def test_engines_are_given_one_by_one_or_in_a_line(given, names):
    assert [engine.name for engine in engines_of(given)] == names


def test_a_key_may_hold_a_comma():
    one, other = engines_of("http://a:1 api_key=k,1 ranks=2; http://b:1 api_key=x,y, http://c:1")[:2]
    assert (one.api_key, one.ranks, other.api_key) == ("k,1", 2, "x,y")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("http://a:1 listen=perhaps", "listen: 'perhaps' is not yes or no"),
        ("http://a:1 ranks=two", "ranks: 'two' is not a whole number"),
        ("http://a:1 rank=2", "did you mean 'ranks'"),
        ("http://a:1/v1/chat/completions", "http://HOST:PORT"),
        ("http://a:1/metrics", "http://HOST:PORT"),
    ],
)
def test_what_is_wrong_with_an_engine_is_said(line, message):
    with pytest.raises(SettingsError, match=message):
        engines_of(line)


@pytest.mark.parametrize("word", ["yes", "true", "1", "YES", "on"])
def test_words_for_yes(word):
    assert engines_of(f"http://a:1 events=tcp://127.0.0.1:2 listen={word}")[0].listen


def test_what_is_no_engine_at_all():
    with pytest.raises(SettingsError, match="not 5"):
        engines_of(5)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("http://localhost:8000", "http://127.0.0.1:8000/v1/", True),
        ("http://[::1]:8000", "http://LOCALHOST:8000", True),
        ("http://a", "http://A:80/v1", True),
        ("https://a", "https://a:443/v1", True),
        ("http://a", "https://a", False),
        ("http://a:8000", "http://a:8001", False),
        ("http://a:8000", "http://b:8000", False),
        ("http://a:8000/x/v1", "http://a:8000/v1", False),
    ],
)
def test_addresses_are_compared_by_where_they_lead(one, other, same):
    assert (place_of(one) == place_of(other)) is same


@pytest.mark.parametrize("where", ["followed", "elsewhere"])
async def test_a_plan_is_booked_where_it_is_sent(where, caplog):
    with contextlib.ExitStack() as stack:
        one, two, third = (stack.enter_context(FakeEngine(block_size=16)) for _ in range(3))
        with ContextPilot(engines=[one.base_url, two.base_url]) as pilot:
            plan = pilot.plan([[BLOCKS[name] for name in names] for names in ("AB", "BC")])
            fake = two if where == "followed" else third
            address = fake.base_url.replace("127.0.0.1", "localhost") + "/"
            report = await pilot.run(plan, address, max_tokens=1)
            assert not report.failed
            assert [one.requests for one in pilot.engines] == ([0, 2] if where == "followed" else [0, 0])
            assert [one.tree_blocks > 0 for one in pilot.engines] == [False, where == "followed"]
            warned = [line for line in said(caplog) if "none of the engines" in line]
            assert len(warned) == (where == "elsewhere")


def test_of_a_pool_the_most_that_any_engine_has_is_expected():
    fleet = fleet_of("one", "two", routing="external")
    for name in ("one", "two"):
        fleet.level(name, "events")
    alignment = fleet.align(Request((A, B)))
    tokens, known = covering(alignment)
    fleet.cover(alignment, None, known, 0)
    fleet.events("two", 0, [stored(tokens)])
    fleet.observe(alignment, Usage(prompt_tokens=223, cached_tokens=0))
    again = fleet.align(Request((A, B)))
    assert again.expected_cached_tokens == 208  # 223 tokens are 13 KV blocks of 16, and some
    fleet.observe(again, Usage(prompt_tokens=223, cached_tokens=208))
    for status in fleet.engines():
        assert (status.requests, status.observed) == (2, 2)  # of the pool: nobody knows where they went
        assert status.reported_cached_tokens == 208
    fleet.level("one", "usage")  # it may have more than is known
    assert fleet.align(Request((A, B))).expected_cached_tokens is None
    fleet.alive("one", False)  # but gone it has nothing
    assert fleet.align(Request((A, B))).expected_cached_tokens == 208


def test_nobodys_socket_is_bound_over(tmp_path):
    import zmq

    address = f"ipc://{tmp_path}/events"
    context = zmq.Context()
    publisher = context.socket(zmq.PUB)
    publisher.bind(address)
    broken = []

    class Sink:
        def __getattr__(self, name):
            return (lambda *told: broken.append(told[2])) if name == "broken" else (lambda *_: None)

    try:
        assert somebody_at(address)
        with EventListener(Sink(), patience=0.3) as listener:
            listener.add(Engine("http://a:1", name="a", events=address, listen=True))
            until(lambda: [why for why in broken if "leave listen=True out" in why])
            follower = context.socket(zmq.SUB)
            follower.setsockopt(zmq.SUBSCRIBE, b"")
            follower.connect(address)  # the publisher is still the one who is there
            poll = lambda: (publisher.send(b"x"), follower.poll(20))[1]  # noqa: E731
            until(poll)
            follower.close(0)
    finally:
        publisher.close(0)
        context.term()
    assert not somebody_at(address)
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(str(tmp_path / "left"))
    assert not somebody_at(f"ipc://{tmp_path}/left")  # a file that was left behind is nobody's


@pytest.mark.parametrize("thing", [None, "alignment", 5, Usage(1)])
def test_what_is_no_alignment_and_no_name_is_refused(thing):
    with ContextPilot(engines=["http://127.0.0.1:9"]) as pilot:
        for what in (pilot.engines.url, pilot.engines.failed):
            with pytest.raises(InputError, match="takes what align returned, not"):
                what(thing)
        for name in (thing, [], {}):
            with pytest.raises(InputError, match="no engine is called"):
                pilot.engines.remove(name)
        assert len(pilot.engines) == 1
