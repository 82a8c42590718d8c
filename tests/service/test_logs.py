"""The log: one line a record, JSON that machines can read, and no keys, whatever somebody logs."""

from __future__ import annotations

import io
import json
import logging

import pytest

from contextpilot_rag.errors import SettingsError
from contextpilot_rag.service import logs
from contextpilot_rag.service.audit import audit
from contextpilot_rag.service.auth import Caller
from contextpilot_rag.service.keyfile import new_key

OURS = logging.getLogger("contextpilot_rag")


@pytest.fixture
def stream():
    return io.StringIO()


def fail(message):
    try:
        int(f"{message}x")
    except ValueError as error:
        error.args = (message,)
        OURS.exception("failed")


def test_text_is_a_line_for_people(stream):
    logs.configure("text", stream=stream)
    OURS.getChild("service").info("ready at %s", "http://127.0.0.1:1")
    OURS.debug("not asked for")
    (line,) = stream.getvalue().splitlines()
    assert line.endswith("INFO    contextpilot_rag.service  ready at http://127.0.0.1:1")
    assert line[10] == " "
    assert line[23] == "Z"


def test_json_is_an_object_a_line_with_all_that_was_given(stream):
    logs.configure("json", stream=stream)
    audit("namespace forgotten", Caller("acme"), namespace=":m:", forgotten=2)
    OURS.warning("odd", extra={"figures": {1: float("nan")}, "thing": object(), ("a", "tuple"): 1})
    lines = stream.getvalue().splitlines()
    first, second = [json.loads(line, parse_constant=pytest.fail) for line in lines]
    assert first["level"] == "info"
    assert first["logger"] == "contextpilot_rag.audit"
    assert first["audit"]["act"] == "namespace forgotten"
    assert first["audit"]["tenant"] == "acme"
    assert first["audit"]["forgotten"] == 2
    assert first["time"].endswith("Z")
    assert second["message"] == "odd"


@pytest.mark.parametrize("log_format", logs.FORMATS)
def test_nobody_starts_a_line_of_their_own_or_colours_it(stream, log_format):
    logs.configure(log_format, stream=stream)
    OURS.warning("id %s", "x\n2026-01-01 INFO forged\r\x1b[31m\u2028\x85end")
    text = stream.getvalue()
    assert len(text.splitlines()) == 1
    assert "\x1b" not in text


@pytest.mark.parametrize("log_format", logs.FORMATS)
def test_tracebacks_are_kept_and_forge_nothing(stream, log_format):
    logs.configure(log_format, stream=stream)
    fail("bad\n2026-01-01 00:00:00 INFO forged")
    text = stream.getvalue()
    assert "ValueError: bad" in text
    if log_format == "json":
        assert "Traceback" in json.loads(text)["exception"]
    else:
        assert all(line.startswith("    ") for line in text.splitlines()[1:])


@pytest.mark.parametrize("log_format", logs.FORMATS)
def test_keys_never_get_out(stream, log_format):
    key, entry = new_key()
    logs.configure(log_format, stream=stream)
    OURS.info("header %s", f"Bearer {key}", extra={"more": {"key": key}})
    fail(key)
    text = stream.getvalue()
    assert key.split("_", 2)[2] not in text
    assert entry.id in text, "which key it was may be known"


def test_configured_again_the_last_one_counts(stream):
    other = io.StringIO()
    logs.configure("text", stream=other)
    logs.configure("json", stream=stream)
    OURS.info("once")
    assert other.getvalue() == ""
    assert len(stream.getvalue().splitlines()) == 1


def test_the_root_logger_is_its_owners_unless_the_process_is_ours(stream):
    root = logging.getLogger()
    before = root.handlers[:]
    logs.configure("text", stream=stream)
    assert root.handlers == before
    OURS.warning("ours")
    logging.getLogger("somebody").warning("theirs")
    assert "theirs" not in stream.getvalue()
    logs.configure("text", whole=True, stream=stream)
    logging.getLogger("somebody").warning("theirs, too")
    OURS.warning("ours again")
    assert stream.getvalue().count("theirs, too") == 1
    assert stream.getvalue().count("ours again") == 1


def test_another_format_is_refused():
    with pytest.raises(SettingsError, match="--log-format: 'xml'"):
        logs.configure("xml")
