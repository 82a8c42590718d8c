"""Following engines: what is seen of them in time, and what happens where they cannot be followed."""

from __future__ import annotations

import contextlib
import gc
import json
import logging
import os
import socket
import threading
import time
import weakref

import pytest
from openai import OpenAI

from contextpilot_rag import ContextPilot, Engine, LocalIndex
from contextpilot_rag.engines import follower as follower_module
from contextpilot_rag.errors import InputError, SettingsError
from contextpilot_rag.testing import EventOptions, FakeEngine
from tests.engines.hurrying import hurry
from tests.ports import free_port
from tests.until import until

BLOCKS = {name: f"{name} is what this text is about, at some length. " * 12 for name in "ABCDEFGH"}
SOON = 20.0  # seconds; a bound, not a wait


@pytest.fixture(autouse=True)
def _hurry(monkeypatch):
    hurry(monkeypatch)


def ask(pilot, engine, names, question=None, namespace=None):
    """Who asks for other names asks another question: what is expected is of blocks, and equal questions share more."""
    question = question or f"{names}: what is it?"
    prompt = pilot.align([(name, BLOCKS[name]) for name in names], question, namespace=namespace)
    with OpenAI(base_url=engine.base_url, api_key="none", max_retries=0) as client:
        answer = client.chat.completions.create(
            model="fake-engine", messages=prompt.messages("Answer."), max_tokens=1, extra_body=prompt.extra_body
        )
    pilot.observe(prompt, answer)
    return prompt, answer.usage


def followed(fake, **options):
    return Engine(fake.base_url, name="fake", events=fake.events_url, replay=fake.replay_url, **options)


def status(pilot):
    return next(iter(pilot.engines))


def said(caplog):
    return [record.getMessage() for record in caplog.records if "contextpilot" in record.name]


@pytest.fixture
def fake():
    with FakeEngine(events=True, block_size=16, capacity_blocks=60) as engine:
        yield engine


def test_a_pilot_without_engines_has_an_empty_pool():
    pilot = ContextPilot()
    assert (list(pilot.engines), len(pilot.engines)) == ([], 0)
    with pytest.raises(InputError, match="follows no engines"):
        pilot.engines.url(pilot.align(["x"]))
    with pytest.raises(InputError, match="no engine is called 'one'; there is none"):
        _ = pilot.engines["one"]
    with pytest.raises(SettingsError, match="engines=\\[\\]"):
        pilot.engines.add("http://127.0.0.1:2")
    with ContextPilot(engines=[]) as pilot:
        pilot.engines.add("http://127.0.0.1:2 name=one")
        assert pilot.align(["x"]).engine == "one"


def test_engines_and_an_index_of_ones_own_do_not_go_together():
    with pytest.raises(SettingsError, match="engines are followed"):
        ContextPilot(LocalIndex(), engines=["http://127.0.0.1:2"])


def test_engines_come_from_the_environment(fake, monkeypatch):
    monkeypatch.setenv("CONTEXTPILOT_ENGINES", f"{fake.base_url} events={fake.events_url} replay={fake.replay_url}")
    with ContextPilot() as pilot:
        until(lambda: status(pilot).level == "events")
    monkeypatch.setenv("CONTEXTPILOT_ENGINES", "nowhere")
    with pytest.raises(SettingsError, match="CONTEXTPILOT_ENGINES"):
        ContextPilot()


def test_events_move_the_tree_and_predictions_are_the_engines_own(fake):
    with ContextPilot(engines=[followed(fake)]) as pilot:
        until(lambda: status(pilot).level == "events" and status(pilot).block_size == 16)
        ask(pilot, fake, "AB")
        assert pilot.engines.drained()
        prompt, usage = ask(pilot, fake, "BA")
        assert prompt.engine == "fake"
        assert pilot.engines.url(prompt) == fake.base_url
        assert prompt.changed
        assert prompt.expected_cached_tokens == usage.prompt_tokens_details.cached_tokens > 0
        assert pilot.engines.drained()
        before = status(pilot).tree_blocks
        for others in ("CDE", "FGH", "DEC"):
            ask(pilot, fake, others)
        assert pilot.engines.drained()
        again = pilot.align([(name, BLOCKS[name]) for name in "AB"], "What is it?")
        assert again.cached_blocks == 0  # it was evicted by the others, and the tree knows
        assert before > 0


def test_a_cleared_cache_clears_the_tree(fake):
    with ContextPilot(engines=[followed(fake)]) as pilot:
        until(lambda: status(pilot).level == "events" and status(pilot).block_size == 16)
        ask(pilot, fake, "AB")
        assert pilot.engines.drained()
        assert status(pilot).tree_blocks == 2
        fake.reset()
        until(lambda: status(pilot).tree_blocks == 0)


def test_a_restarted_engine_is_empty_and_is_learnt_again(caplog):
    with contextlib.ExitStack() as stack:
        fake = stack.enter_context(FakeEngine(events=True, block_size=16, capacity_blocks=200))
        with ContextPilot(engines=[followed(fake)]) as pilot:
            until(lambda: status(pilot).level == "events" and status(pilot).block_size == 16)
            ask(pilot, fake, "AB")
            assert pilot.engines.drained()
            ports = [
                int(url.rpartition(":")[2].partition("/")[0])
                for url in (fake.base_url, fake.events_url, fake.replay_url)
            ]
            fake.crash()
            until(lambda: not status(pilot).alive)
            assert status(pilot).tree_blocks == 0
            fake.start(port=ports[0], events_port=ports[1], replay_port=ports[2])
            until(lambda: status(pilot).alive and status(pilot).level == "events")
            prompt, usage = ask(pilot, fake, "BA")
            assert not prompt.changed
            assert usage.prompt_tokens_details.cached_tokens == 0
            assert pilot.engines.drained()
            prompt, usage = ask(pilot, fake, "AB")
            assert prompt.expected_cached_tokens == usage.prompt_tokens_details.cached_tokens > 0


def test_namespaces_do_not_credit_each_other(fake):
    with ContextPilot(engines=[followed(fake)]) as pilot:
        until(lambda: status(pilot).level == "events" and status(pilot).block_size == 16)
        ask(pilot, fake, "AB", namespace="one")
        assert pilot.engines.drained()
        prompt, usage = ask(pilot, fake, "BA", namespace="two")
        assert not prompt.changed
        assert usage.prompt_tokens_details.cached_tokens == 0
        assert pilot.engines.drained()
        prompt, usage = ask(pilot, fake, "BA", namespace="one")
        assert prompt.expected_cached_tokens == usage.prompt_tokens_details.cached_tokens > 0


@pytest.mark.parametrize("what", ["no events", "wrong address", "wrong topic", "wrong format"])
def test_an_engine_whose_events_cannot_be_had_is_followed_by_its_reports(what, caplog):
    options = EventOptions(topic="kv@here") if what == "wrong topic" else True
    with FakeEngine(events=options, block_size=16, capacity_blocks=200) as fake:
        engine = followed(fake)
        if what == "wrong address":
            engine = Engine(fake.base_url, name="fake", events=f"tcp://127.0.0.1:{free_port()}")
        elif what == "wrong topic":
            engine = followed(fake, topic="kv@there")
        silent = contextlib.nullcontext()
        if what in {"no events", "wrong format"}:
            engine, silent = publishing(fake, b"" if what == "no events" else b"\xc1 no msgpack")
        with silent, caplog.at_level(logging.WARNING), ContextPilot(engines=[engine]) as pilot:
            until(lambda: status(pilot).block_size == 16)
            ask(pilot, fake, "AB")
            until(lambda: said(caplog), "a word about it")
            prompt, usage = ask(pilot, fake, "BA")
            assert prompt.changed  # the model of the cache goes on
            assert usage.prompt_tokens_details.cached_tokens > 0
            until(lambda: status(pilot).level == "usage")
            assert status(pilot).why
            time.sleep(0.5)
            assert len(said(caplog)) == 1
            assert "engine fake: " in said(caplog)[0]


def publishing(fake, payload):
    """An engine whose events are somebody else's: of nothing, or of nonsense."""
    import zmq

    context = zmq.Context()
    publisher = context.socket(zmq.PUB)
    port = publisher.bind_to_random_port("tcp://127.0.0.1")
    stop = threading.Event()

    def publish():
        number = 0
        while not stop.wait(0.05):
            if payload:
                publisher.send_multipart([b"", number.to_bytes(8, "big"), payload])
                number += 1
        publisher.close(0)
        context.term()

    thread = threading.Thread(target=publish)

    @contextlib.contextmanager
    def running():
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join(SOON)

    return Engine(fake.base_url, name="fake", events=f"tcp://127.0.0.1:{port}"), running()


def test_nobody_waits_for_an_engine_that_hangs():
    with socket.create_server(("127.0.0.1", 0)) as hanging:  # takes connections and never answers
        port = hanging.getsockname()[1]
        with ContextPilot(engines=[Engine(f"http://127.0.0.1:{port}", events=f"tcp://127.0.0.1:{port}")]) as pilot:
            for _ in range(100):
                prompt = pilot.align([(name, BLOCKS[name]) for name in "AB"], "What is it?")
                prompt.messages()
                pilot.observe(prompt, {"usage": {"prompt_tokens": 300, "prompt_tokens_details": {"cached_tokens": 0}}})
            assert pilot.failures == 0
            assert pilot.stats().requests == 100
        # Closed without waiting, too: the threads end by themselves.


def test_what_waits_to_be_covered_is_bounded(monkeypatch):
    monkeypatch.setattr(follower_module, "MOST_WAITING", 3)
    with socket.create_server(("127.0.0.1", 0)) as hanging:
        port = hanging.getsockname()[1]
        with ContextPilot(
            engines=[Engine(f"http://127.0.0.1:{port}", events=f"tcp://127.0.0.1:{free_port()}")]
        ) as pilot:
            for _ in range(40):
                prompt = pilot.align([("A", BLOCKS["A"])], "What is it?")
                prompt.messages()
                pilot.observe(prompt, {"usage": {"prompt_tokens": 300}})
            (follower,) = pilot.engines._following._followers.values()
            assert len(follower._waiting) <= 3
            assert follower.counts.dropped >= 6


def test_threads_end_with_the_pilot(fake):
    pilot = ContextPilot(engines=[followed(fake)])
    assert len(pilot.engines) == 1
    names = {thread.name for thread in threading.enumerate()}
    assert "contextpilot fake" in names
    gone = weakref.ref(pilot)
    del pilot
    gc.collect()
    assert gone() is None
    until(lambda: not [one for one in threading.enumerate() if one.name.startswith("contextpilot")], "their end")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_follows_by_itself(fake):
    with ContextPilot(engines=[followed(fake)]) as pilot:
        until(lambda: status(pilot).level == "events" and status(pilot).block_size == 16)
        ask(pilot, fake, "AB")
        assert pilot.engines.drained()
        read, write = os.pipe()
        child = os.fork()
        if child == 0:  # pragma: no cover  in the child
            try:
                ask(pilot, fake, "CD")
                until(lambda: status(pilot).level == "events")
                assert pilot.engines.drained()
                prompt, usage = ask(pilot, fake, "BA")
                cached = usage.prompt_tokens_details.cached_tokens
                os.write(write, json.dumps([prompt.expected_cached_tokens, cached]).encode())
            except BaseException as error:  # noqa: BLE001
                os.write(write, json.dumps(repr(error)).encode())
            finally:
                os._exit(0)
        os.close(write)
        with os.fdopen(read) as pipe:
            told = json.loads(pipe.read())
        os.waitpid(child, 0)
        assert isinstance(told, list), told
        assert told[0] == told[1] > 0
        ask(pilot, fake, "AB")  # and the parent goes on
        assert pilot.engines.drained()
        assert status(pilot).level == "events"


def test_conversations_stay_where_they_were(fake):
    with contextlib.ExitStack() as stack:
        other = stack.enter_context(FakeEngine(block_size=16))
        with ContextPilot(engines=[Engine(fake.base_url, name="one"), Engine(other.base_url, name="two")]) as pilot:
            talks = [pilot.conversation(f"talk-{number}", system="Answer.") for number in range(8)]
            first = [
                talk.align([(name, BLOCKS[name])], "What?").engine for talk, name in zip(talks, BLOCKS, strict=True)
            ]
            assert set(first) == {"one", "two"}
            for talk in talks:
                talk.answer("That.")
            second = [talk.align([("A", BLOCKS["A"])], "And?").engine for talk in talks]
            assert second == first
            pilot.engines.remove("two")
            for talk in talks:
                talk.answer("This.")
            assert {talk.align([("B", BLOCKS["B"])], "So?").engine for talk in talks} == {"one"}


def test_engines_join_and_leave(fake):
    with ContextPilot(engines=[Engine(fake.base_url, name="one")]) as pilot:
        with pytest.raises(SettingsError, match="one"):
            pilot.engines.add(Engine(fake.base_url, name="one"))
        with pytest.raises(SettingsError, match="the same"):
            pilot.engines.add(f"{fake.base_url} name=two")
        pilot.engines.add("http://127.0.0.1:9 name=two")
        assert [one.name for one in pilot.engines] == ["one", "two"]
        pilot.engines.remove("one")
        assert pilot.align(["x"]).engine == "two"
        with pytest.raises(ValueError, match="no engine is called 'one'"):
            pilot.engines.remove("one")
        assert repr(pilot.engines).startswith("<EnginePool: two")


def test_an_external_router_leaves_the_choice_open(fake):
    with ContextPilot(engines=[followed(fake)], routing="external") as pilot:
        until(lambda: status(pilot).level == "events" and status(pilot).block_size == 16)
        prompt, _ = ask(pilot, fake, "AB")
        assert prompt.engine is None
        assert pilot.engines.drained()
        prompt, usage = ask(pilot, fake, "BA")
        assert prompt.changed
        assert usage.prompt_tokens_details.cached_tokens > 0
        fake.reset()
        until(lambda: status(pilot).tree_blocks == 0)


async def test_a_plan_is_run_where_it_is_followed(fake):
    with contextlib.ExitStack() as stack:
        other = stack.enter_context(FakeEngine(block_size=16))
        with ContextPilot(engines=[Engine(other.base_url, name="other"), followed(fake)]) as pilot:
            until(lambda: [one.level for one in pilot.engines][1] == "events")
            until(lambda: [one.block_size for one in pilot.engines] == [16, 16])
            plan = pilot.plan([[BLOCKS[name] for name in names] for names in ("AB", "BC", "AB")])
            report = await pilot.run(plan, fake.base_url, max_tokens=1)
            assert not report.failed
            assert pilot.engines.drained()
            assert [one.requests for one in pilot.engines] == [0, 3]
            prompt = pilot.align([BLOCKS["B"], BLOCKS["A"]], "What?")
            assert prompt.engine == "fake"
            assert prompt.expected_cached_tokens > 0
