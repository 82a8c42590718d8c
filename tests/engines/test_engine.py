"""Engines as they are given: what cannot be is refused, one cache is one engine, and passwords are not shown."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import fields, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextpilot_rag import ContextPilot, Engine, Settings
from contextpilot_rag.engines.coverer import Coverer
from contextpilot_rag.engines.endpoint import Endpoint, api_url
from contextpilot_rag.engines.engine import EngineFacts, check_apart, engine_of, engines_of
from contextpilot_rag.engines.fleet import Fleet
from contextpilot_rag.engines.lanes import Member
from contextpilot_rag.engines.shown import shown_text, shown_url
from contextpilot_rag.errors import ContextPilotError, SettingsError
from contextpilot_rag.index.local import LocalIndex

URL = "http://127.0.0.1:8000"


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"listen": "no"}, "listen must be True or False, not 'no'"),
        ({"listen": 1}, "listen must be True or False, not 1"),
        ({"model": 5}, "model must be the name of one, or None, not 5"),
        ({"model": " "}, "model must be the name of one"),
        ({"name": " "}, "name must be printable, and not begin or end blank: ' '"),
        ({"name": "a\nb"}, "name must be printable"),
        ({"name": None}, "name must be str, not NoneType"),
        ({"name": 7}, "name must be str, not int"),
        ({"api_key": "a\nb"}, "api_key must be of printable ASCII"),
        ({"api_key": "schlüssel"}, "api_key must be of printable ASCII"),
        ({"topic": None}, "topic must be str"),
        ({"ranks": True}, "ranks must be a positive int"),
        ({"events": "tcp://h:65535", "ranks": 2}, "rank 1 of an engine would be at a port above 65535"),
        ({"events": "tcp://h:5557", "replay": "tcp://h:65534", "ranks": 3}, "rank 2 of an engine"),
        ({"events": "tcp://h:5557", "replay": "tcp://h:5558", "ranks": 2}, "must not share a port"),
        ({"events": "tcp://h:5557", "replay": "tcp://h:5557"}, "must not share a port"),
        ({"events": "ipc:///tmp/e", "replay": "ipc:///tmp/e"}, "must not share a port"),
    ],
)
def test_what_cannot_be_is_refused(settings, says):
    with pytest.raises(SettingsError, match=says) as refused:
        Engine(URL, **settings)
    if "api_key" in settings:
        assert settings["api_key"] not in str(refused.value)


def test_what_can_be_is_taken():
    assert Engine("http://h:1", "gpu 1", "tcp://h:65534", "tcp://g:65534", ranks=2, listen=True).ranks == 2
    assert Engine(URL, events="tcp://h:5557", replay="tcp://h:5559", ranks=2).replay == "tcp://h:5559"
    assert Engine(URL, name="ä").name == "ä"


def test_a_setting_is_given_once():
    with pytest.raises(SettingsError, match="given twice"):
        engine_of(f"{URL} name=a name=b")
    assert engine_of(f"{URL} name=a").name == "a"


# One address


SAME = (
    ("http://localhost:8000", "http://LOCALHOST:8000"),
    ("http://127.0.0.1:8000", "http://localhost:8000/v1/"),
    ("http://host", "http://host:80/v1"),
    ("http://host:1", "http://user:secret@host:1"),
)


@pytest.mark.parametrize(("one", "other"), SAME)
def test_one_address_is_one_engine(one, other):
    first, second = Engine(one, "a"), Engine(other, "b")
    with pytest.raises(SettingsError, match="'a' and 'b' are the same") as refused:
        engines_of([first, second])
    assert "secret" not in str(refused.value)
    for known in (
        Fleet([first], lambda engine: LocalIndex()),
        Coverer([first], None, lambda error: None),
        ContextPilot(engines=[first]).engines,
    ):
        with pytest.raises(SettingsError, match="are the same"):
            known.add(second)
        assert len(list(getattr(known, "engines", lambda known=known: known)())) == 1
        getattr(known, "close", lambda: None)()


def test_other_models_at_an_address_and_other_ports_and_paths_are_other_engines():
    given = ("http://h:1", "http://h:1 name=m model=m", "http://h:2", "https://h:1 name=s", "http://h:1/x/v1 name=x")
    assert len(engines_of(given)) == 5
    check_apart(Engine("http://h:3"), engines_of(given))


# Passwords


def test_a_password_in_an_address_is_shown_nowhere(caplog):
    url = "http://user:geheim@127.0.0.1:9"
    engine = Engine(url)
    assert engine.url == f"{url}/v1"  # as it is needed
    assert engine.name == "127.0.0.1:9"
    with caplog.at_level(logging.DEBUG, "contextpilot_rag"), ContextPilot(engines=[engine, "http://h:1"]) as pilot:
        pilot.engines.failed(pilot.align(["text"]))
        plan = pilot.plan([["a", "b"]])
        with pytest.raises(ContextPilotError) as failed:
            asyncio.run(pilot.run(plan, "http://user:geheim@127.0.0.1:7", retries=0, give_up_after=1))
        shown = [
            repr(engine),
            str(engine),
            repr(pilot.engines),
            *map(repr, pilot.engines),
            repr(failed.value),
            repr(Settings(engines=url)),
            *(record.getMessage() for record in caplog.records if "contextpilot" in record.name),
        ]
    coverer = Coverer([engine], None, lambda error: None)
    shown.append(repr(coverer.engines()))
    for wrong in (f"{url}/v1/chat/completions", f"{url} ranks=x", f"{url} name=a name=b", f"{url} nothing=5"):
        with pytest.raises(SettingsError) as refused:
            engine_of(wrong)
        shown.append(str(refused.value))
    for wrong in (
        "http://user:geheim@127.0.0.1:x",
        "user:geheim@127.0.0.1",
        "http://user:gehe/geheim@h",
        "a\n:geheim@h",
    ):
        with pytest.raises(SettingsError) as refused:
            api_url(wrong)
        shown.append(str(refused.value))
    with Endpoint(url, "m", timeout=1, max_retries=0) as endpoint, pytest.raises(ContextPilotError) as unreachable:
        endpoint.chat([{"role": "user", "content": "?"}])
    shown.append(str(unreachable.value))
    assert not [text for text in shown if "geheim" in text]
    assert "http://***@127.0.0.1:9/v1" in repr(engine)


@given(st.text(min_size=1, alphabet="abc:/?#@%. "), st.text(min_size=1, alphabet="abc:/?#@%. "))
def test_of_any_text_nothing_before_its_last_at_sign_is_shown(before, after):
    hidden = shown_text(f"{before}\x00@{after}")
    assert "\x00" not in hidden
    assert hidden.endswith(after.rpartition("@")[2])
    assert shown_url(f"http://host/{after}") == f"http://host/{after}"


# Facts


facts = st.builds(
    EngineFacts,
    st.sampled_from(["vllm", "unknown"]),
    *(st.none() | st.integers(1, 9) for _ in range(2)),
    st.none() | st.sampled_from(["m", "n"]),
    *(st.none() | st.integers(0, 9) for _ in range(2)),
    st.none() | st.booleans(),
)


@given(st.lists(facts, max_size=5))
def test_what_an_engine_said_stays_true_until_it_says_otherwise_but_for_its_queue(told):
    known = EngineFacts("vllm")
    for one in told:
        known = known.updated(one)
    for name in (one.name for one in fields(EngineFacts)):
        if name in {"running", "waiting"}:
            assert getattr(known, name) == (getattr(told[-1], name) if told else None)
        elif name != "kind":
            said = [getattr(one, name) for one in told if getattr(one, name) is not None]
            assert getattr(known, name) == (said[-1] if said else None)
    assert known.kind == "vllm"


def test_another_software_is_another_engine():
    assert EngineFacts("vllm", 4_096, 16).updated(EngineFacts("sglang")) == EngineFacts("sglang")
    assert Member(Engine(URL), lane=None, facts=EngineFacts("vllm", 7)).capacity_tokens == 7
    assert replace(Engine(URL), name="n").url == f"{URL}/v1"
