"""``contextpilot-rag engine``: what it says of engines in good and in bad shape."""

from __future__ import annotations

import json

import pytest

from contextpilot_rag.cli import main
from contextpilot_rag.errors import EngineRefused
from contextpilot_rag.testing import EventOptions, FakeEngine
from tests.ports import free_port


@pytest.fixture
def fake():
    with FakeEngine(events=True) as engine:
        yield engine


def checked(capsys, url, *arguments, seconds="10"):
    status = main(["engine", url, *arguments, "--json", "--seconds", seconds])
    found = json.loads(capsys.readouterr().out)
    return status, found["level"], {one["check"]: (one["ok"], one["said"]) for one in found["checks"]}


def events_of(fake):
    return f"events={fake.events_url}", f"replay={fake.replay_url}"


def test_an_engine_in_good_shape(fake, capsys):
    status, level, checks = checked(capsys, fake.base_url, *events_of(fake))
    assert (status, level) == (0, "events")
    assert list(checks) == ["health", "facts", "tokens", "reports", "events", "replay"]
    assert {ok for ok, _ in checks.values()} == {True}
    assert len(fake.requests) == 2
    assert main(["engine", fake.base_url, *events_of(fake)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line[:2] for line in lines] == ["ok"] * 6 + ["le"]
    assert lines[-1] == "level: events"


def test_without_events_it_is_as_good_as_its_reports(fake, capsys):
    assert checked(capsys, fake.base_url)[:2] == (0, "usage")
    assert checked(capsys, fake.base_url, "--level", "events")[:2] == (1, "usage")
    fake.report_cached = False
    status, level, checks = checked(capsys, fake.base_url, "--level", "usage")
    assert (status, level) == (1, "model")
    assert "--enable-prompt-tokens-details" in checks["reports"][1]
    assert checked(capsys, fake.base_url)[:2] == (0, "model")


def test_no_request_is_sent_where_none_is_wanted(fake, capsys):
    status, level, checks = checked(capsys, fake.base_url, *events_of(fake), "--no-request")
    assert (status, level) == (0, "events")
    assert checks["reports"][0] is None
    assert fake.requests == ()


def test_one_that_does_not_answer(capsys):
    status, level, checks = checked(capsys, f"http://127.0.0.1:{free_port()}", seconds="1")
    assert (status, level) == (1, None)
    assert list(checks) == ["health"]
    assert main(["engine", f"http://127.0.0.1:{free_port()}"]) == 1
    assert "none, it does not answer" in capsys.readouterr().out


def test_events_that_nobody_publishes(fake, capsys):
    events = f"events=tcp://127.0.0.1:{free_port()}"
    status, level, checks = checked(capsys, fake.base_url, events, seconds="1")
    assert (status, level) == (1, "usage")
    ok, said = checks["events"]
    assert not ok
    assert "nobody publishes" in said
    assert "listen=True" in said


def test_events_of_another_engine(fake, capsys):
    with FakeEngine(events=True) as other:
        status, level, checks = checked(capsys, fake.base_url, f"events={other.events_url}", seconds="1")
        assert (status, level) == (1, "usage")
        assert "nothing came after a request" in checks["events"][1]


def test_events_of_other_token_ids(fake, capsys, monkeypatch):
    whole = fake.tokenize

    def other(body):
        said = whole(body)
        return {**said, "tokens": [token + 1 for token in said["tokens"]]}

    monkeypatch.setattr(fake, "tokenize", other)
    status, level, checks = checked(capsys, fake.base_url, *events_of(fake), seconds="1")
    assert (status, level) == (1, "usage")
    assert "other token ids" in checks["events"][1]


def test_a_replay_that_is_not_answered(capsys):
    with FakeEngine(events=EventOptions(replay=False)) as fake:
        replay = f"replay=tcp://127.0.0.1:{free_port()}"
        _, _, checks = checked(capsys, fake.base_url, f"events={fake.events_url}", replay, seconds="2")
        assert not checks["replay"][0]


def test_an_engine_that_does_not_tokenize(fake, capsys, monkeypatch):
    def refuse(*_):
        raise EngineRefused("not here", 404)

    monkeypatch.setattr(fake, "tokenize", refuse)
    status, level, checks = checked(capsys, fake.base_url, *events_of(fake), seconds="2")
    assert (status, level) == (1, "usage")
    assert "ContextPilot(tokenizer=...)" in checks["tokens"][1]


def test_token_ids_that_are_fewer_than_it_counts(fake, capsys, monkeypatch):
    whole = fake.tokenize
    monkeypatch.setattr(fake, "tokenize", lambda body: {**whole(body), "tokens": whole(body)["tokens"][1:]})
    status, _, checks = checked(capsys, fake.base_url, *events_of(fake), seconds="2")
    assert status == 1
    assert not checks["tokens"][0]
    assert "counts as" in checks["tokens"][1]


def test_a_cache_that_is_off(fake, capsys, monkeypatch):
    monkeypatch.setattr(fake, "receive", lambda *asked, receive=fake.receive: (fake.reset(), receive(*asked))[1])
    _, level, checks = checked(capsys, fake.base_url)
    assert level == "model"
    assert "is its prefix cache on?" in checks["reports"][1]


def test_what_cannot_be_an_engine(capsys):
    assert main(["engine", "http://127.0.0.1:8000/v1/chat/completions"]) == 1
    assert "http://HOST:PORT" in capsys.readouterr().err
    assert main(["engine", "http://127.0.0.1:8000", "listen=perhaps"]) == 1
    assert "listen: 'perhaps' is not yes or no" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["engine", "http://127.0.0.1:8000", "--seconds", "0"])
