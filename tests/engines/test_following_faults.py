"""What a pilot says, and does, where it is out of step with an engine: each outage once, and with its reason."""

from __future__ import annotations

import json
import logging
import socket
import sys
import threading
from contextlib import contextmanager

import pytest

from contextpilot_rag import ContextPilot, Engine
from contextpilot_rag.engines import facts as facts_module
from contextpilot_rag.engines import follower as follower_module
from contextpilot_rag.engines import following as following_module
from contextpilot_rag.engines.facts import ailment, healthy
from contextpilot_rag.errors import MissingPackage
from contextpilot_rag.testing import FakeEngine
from tests.engines.answering import answering
from tests.engines.hurrying import hurry
from tests.engines.test_following import BLOCKS, followed, said, status
from tests.ports import free_port
from tests.until import until


@pytest.fixture(autouse=True)
def _hurry(monkeypatch):
    hurry(monkeypatch)


@pytest.fixture
def fake():
    with FakeEngine(events=True, block_size=16, capacity_blocks=2_000) as engine:
        yield engine


@contextmanager
def in_step(fake, caplog, **options):
    with caplog.at_level(logging.INFO), ContextPilot(engines=[followed(fake)], **options) as pilot:
        until(lambda: status(pilot).level == "events" and status(pilot).block_size == 16)
        yield pilot


def ask(pilot, fake, names, *, told=True):
    prompt = pilot.align([(name, BLOCKS[name]) for name in names], "What?")
    messages = prompt.messages("Answer.") if told else [{"role": "user", "content": "What?"}]
    answer = fake.chat({"messages": messages, **prompt.extra_body})
    pilot.observe(prompt, answer)
    return prompt, answer["usage"]["prompt_tokens_details"]["cached_tokens"]


def test_prompts_with_a_history_that_nobody_told_are_spoken_of(fake, caplog):
    more = [{"role": "user", "content": "And before that? " * 20}]
    with in_step(fake, caplog) as pilot:
        for _ in range(6):
            prompt = pilot.align([("A", BLOCKS["A"]), ("B", BLOCKS["B"])], "What?")
            answer = fake.chat({"messages": [*more, *prompt.messages("Answer.")], **prompt.extra_body})
            pilot.observe(prompt, answer)
        assert pilot.engines.drained()
        now = status(pilot)
        assert (now.level, now.covered, now.uncovered) == ("usage", 0, 6)
        assert "another number of tokens" in now.why
        assert [line for line in said(caplog) if "number of tokens" in line] == said(caplog)
        assert len(said(caplog)) == 1
        for _ in range(12):  # said as it is: what was sent
            prompt = pilot.align([("A", BLOCKS["A"]), ("B", BLOCKS["B"])], "What?")
            sent = [*more, *prompt.messages("Answer.")]
            pilot.observe(prompt, fake.chat({"messages": sent, **prompt.extra_body}), messages=sent)
        assert pilot.engines.drained()
        now = status(pilot)
        assert (now.level, now.why, now.covered) == ("events", "", 12)
        assert len(said(caplog)) == 2


def test_requests_whose_messages_nobody_told_are_spoken_of(fake, caplog):
    with in_step(fake, caplog) as pilot:
        for _ in range(5):
            ask(pilot, fake, "AB", told=False)
        assert pilot.engines.drained()
        assert status(pilot).level == "usage"
        assert "alignment.messages()" in status(pilot).why
        assert status(pilot).uncovered == 5
        assert len(said(caplog)) == 1


def test_an_engine_that_does_not_tokenize_is_spoken_of(fake, caplog, monkeypatch):
    with in_step(fake, caplog) as pilot:

        def refuse(*_, **__):
            from contextpilot_rag.errors import EngineRefused

            raise EngineRefused("/tokenize of engine fake is answered with 404: no", 404)

        monkeypatch.setattr(fake, "tokenize", refuse)
        for _ in range(5):
            ask(pilot, fake, "AB")
        assert pilot.engines.drained()
        assert status(pilot).level == "usage"
        assert "/tokenize" in status(pilot).why
        assert len(said(caplog)) == 1


def test_later_turns_of_a_conversation_are_no_complaint(fake, caplog):
    with in_step(fake, caplog) as pilot:
        for number in range(6):
            talk = pilot.conversation(f"talk-{number}", system="Answer.")
            for name in "ABC":
                prompt = talk.align([(name, BLOCKS[name])], "What?")
                pilot.observe(prompt, fake.chat({"messages": prompt.messages(), **prompt.extra_body}))
                talk.answer("That.")
        assert pilot.engines.drained()
        assert (status(pilot).level, status(pilot).why) == ("events", "")
        assert said(caplog) == []


def test_an_engine_whose_kv_blocks_have_no_known_size_is_spoken_of(caplog):
    # What it stores would tell it; but as yet it has stored nothing.
    answer = {"usage": {"prompt_tokens": 30, "prompt_tokens_details": {"cached_tokens": 0}}}
    with FakeEngine(events=True) as fake:
        shown = {"/health": (200, {}), "/v1/models": (200, {"data": [{"id": "m"}]})}
        with answering(shown) as proxy, caplog.at_level(logging.INFO):
            engine = Engine(proxy.engine.url, name="fake", events=fake.events_url, replay=fake.replay_url)
            with ContextPilot(engines=[engine]) as pilot:
                until(lambda: status(pilot).level == "events")
                for _ in range(5):
                    prompt = pilot.align(["x", "y"], "What?")
                    prompt.messages()
                    pilot.observe(prompt, answer)
                assert pilot.engines.drained()
                assert "Engine(block_size=...)" in status(pilot).why
                assert status(pilot).level == "usage"


def test_a_dead_engine_is_spoken_of_once_and_its_return_too(caplog):
    port = free_port()
    engine = Engine(f"http://127.0.0.1:{port}", name="fake", events=f"tcp://127.0.0.1:{free_port()}")
    with caplog.at_level(logging.INFO), ContextPilot(engines=[engine]) as pilot:
        until(lambda: not status(pilot).alive)
        until(lambda: said(caplog))
        assert "does not answer" in status(pilot).why
        checks = pilot.engines._following._followers["fake"]
        until(lambda: checks._failures > 5)
        assert [line for line in said(caplog) if "engine fake: it does not answer" in line] == said(caplog)
        assert len(said(caplog)) == 1
        with FakeEngine() as fake:
            fake.stop()
            fake.start(port=port)
            until(lambda: status(pilot).alive)
            until(lambda: "engine fake: it answers again" in said(caplog))


def test_after_a_failure_the_engine_is_asked_at_once(monkeypatch):
    monkeypatch.setattr(follower_module, "CHECK_SECONDS", 600.0)
    with FakeEngine() as fake, ContextPilot(engines=[Engine(fake.base_url, name="fake")]) as pilot:
        until(lambda: status(pilot).block_size == 16)
        prompt = pilot.align(["x"])
        fake.stop()
        pilot.engines.failed(prompt)
        until(lambda: not status(pilot).alive)


def test_a_closed_pilot_says_that_nobody_follows(fake, caplog):
    with in_step(fake, caplog) as pilot:
        ask(pilot, fake, "AB")
        assert pilot.engines.drained()
    now = pilot.engines["fake"]
    assert (now.level, now.why) == ("usage", following_module.CLOSED)
    ask(pilot, fake, "BA")  # and it goes on, with what it knows
    assert pilot.engines["fake"].why == following_module.CLOSED


@pytest.mark.parametrize(
    ("health", "models", "well"),
    [
        (200, 500, True),
        (404, 200, True),
        (401, 401, True),
        (403, 400, True),
        (404, 404, False),
        (404, 502, False),
        (503, 200, False),
        (500, 200, False),
    ],
)
def test_a_proxy_may_guard_health(health, models, well):
    with answering({"/health": (health, {}), "/v1/models": (models, {"data": []})}, api_key="k") as server:
        assert healthy(server.engine) is well
        assert bool(ailment(server.engine)) is not well
        if "/v1/models" in server.paths:
            assert server.asked[-1].headers["authorization"] == "Bearer k"


def test_what_ails_an_engine_is_said():
    with socket.create_server(("127.0.0.1", 0)) as hanging:
        engine = Engine(f"http://127.0.0.1:{hanging.getsockname()[1]}", name="slow")
        assert "not answered in time" in ailment(engine, 0.2)
    assert facts_module.HEALTH_SECONDS == 2.0
    assert json.dumps(ailment(Engine(f"http://127.0.0.1:{free_port()}", name="gone")))


def test_no_answer_waits_for_whoever_tells_of_the_cache(fake, caplog):
    with in_step(fake, caplog) as pilot:
        lane = pilot.index._members["fake"].lane
        prompts = [pilot.align([BLOCKS["A"]], "What?") for _ in range(40)]
        done = threading.Event()

        def observe():
            for prompt in prompts:  # so many reports of nothing that the level would change, were it not for events
                pilot.observe(prompt, {"usage": {"prompt_tokens": 300, "prompt_tokens_details": {"cached_tokens": 0}}})
            done.set()

        pilot.engines._following._told.watching["fake"].broken(0, "on purpose")
        with lane._lock:
            threading.Thread(target=observe, daemon=True).start()
            assert done.wait(20)
        until(lambda: status(pilot).level == "usage" and status(pilot).why == "on purpose")


def test_an_engine_that_cannot_be_listened_to_does_not_join(monkeypatch):
    monkeypatch.setitem(sys.modules, "zmq", None)
    listened = Engine("http://127.0.0.1:2", name="two", events="tcp://127.0.0.1:9")
    with ContextPilot(engines=["http://127.0.0.1:3 name=one"]) as pilot:
        with pytest.raises(MissingPackage, match="pyzmq"):
            pilot.engines.add(listened)
        assert [one.name for one in pilot.engines] == ["one"]
        assert len(pilot.engines) == 1
        assert {pilot.align([name]).engine for name in BLOCKS} == {"one"}
        with pytest.raises(MissingPackage, match="pyzmq"):
            ContextPilot(engines=["http://127.0.0.1:3 name=three", listened])
    assert not [one for one in threading.enumerate() if one.name == "contextpilot three"]


def test_what_ails_it_stands_in_why():
    loading = {"/health": (503, {"error": "Loading model"})}
    with answering(loading, name="slow") as server, ContextPilot(engines=[server.engine]) as pilot:
        until(lambda: not status(pilot).alive)
        assert "/health of engine slow is answered with 503" in status(pilot).why
