"""What is refused is seen: unknown keys in the log, refusals of connections in the metrics."""

from __future__ import annotations

import http.client
import logging
import socket

import pytest

from contextpilot_rag.errors import SettingsError
from contextpilot_rag.service.hub import State
from contextpilot_rag.service.keyfile import TenantEntry, changing, new_key
from contextpilot_rag.service.life import assemble
from contextpilot_rag.service.refused import ADDRESSES, SECONDS, Refusals
from contextpilot_rag.service.settings import ServiceSettings

from .harness import serving

ALIGN = {"blocks": [{"id": "a", "tokens": 100}], "engine": "vllm-0"}


@pytest.fixture
def keys(tmp_path):
    """A file of keys, and one of an operator."""
    key, entry = new_key()
    with changing(tmp_path / "keys.json", create=True) as content:
        content.tenants["acme"] = TenantEntry([entry], operator=True)
    return tmp_path / "keys.json", key


def test_each_address_is_told_once_a_minute_and_the_rest_counted(caplog):
    now = [0.0]
    refusals = Refusals(lambda: now[0])
    for _ in range(5):
        refusals.add("10.0.0.1", shown=True)
    refusals.add("10.0.0.2", shown=False)
    assert [record.getMessage() for record in caplog.records] == [
        "refused 10.0.0.1: a key that is not known",
        "refused 10.0.0.2: no key",
    ]
    now[0] += SECONDS
    refusals.add("10.0.0.1", shown=True)
    assert [record.getMessage() for record in caplog.records][2:] == [
        "4 more requests without a key that is known, since the last such lines",
        "refused 10.0.0.1: a key that is not known",
    ]


def test_many_addresses_do_not_fill_the_log(caplog):
    refusals = Refusals(lambda: 0.0)
    for number in range(10 * ADDRESSES):
        refusals.add(f"10.0.0.{number}", shown=True)
    assert len(caplog.records) == ADDRESSES


def test_a_refused_key_is_logged_with_the_peer_and_without_the_key(keys, caplog):
    path, key = keys
    wrong = key[:-4] + "AAAA"
    with serving(keys=path) as service:
        for _ in range(3):
            assert service.ask("POST", "/v1/align", ALIGN, wrong).status == 401
    told = [record for record in caplog.records if "127.0.0.1" in record.getMessage()]
    assert [record.levelno for record in told] == [logging.WARNING]
    assert wrong not in caplog.text
    assert wrong[-43:] not in caplog.text


def test_the_ways_to_give_a_key_are_lines_of_their_own_and_basic_is_said(keys):
    path, _ = keys
    with serving(keys=path) as service:
        connection = http.client.HTTPConnection("127.0.0.1", service.port, timeout=30)
        connection.request("GET", "/")
        reply = connection.getresponse()
        ways = [value for name, value in reply.getheaders() if name.lower() == "www-authenticate"]
        detail = reply.read()
        connection.close()
    assert [way.partition(" ")[0] for way in ways] == ["Basic", "Bearer"]
    assert all("," not in way for way in ways)
    assert b"Basic with the key as password" in detail


@pytest.mark.parametrize(
    ("sent", "status", "kind"),
    [
        (b"nonsense\r\n\r\n", 400, "bad-request"),
        (b"GET /" + b"a" * 25_000 + b" HTTP/1.1\r\n\r\n", 414, "too-long"),
        (b"GET / HTTP/1.1\r\nX: " + b"x" * 40_000 + b"\r\n\r\n", 431, "too-large"),
        (b"GET / HT", 408, "too-slow"),
    ],
)
def test_what_a_connection_refuses_is_counted(sent, status, kind):
    with serving(header_seconds=0.3) as service:
        with socket.create_connection(("127.0.0.1", service.port), timeout=30) as connection:
            connection.sendall(sent)
            assert connection.recv(100).startswith(b"HTTP/1.1 %d " % status)
        metrics = service.hub.metrics
        assert metrics.problems == {kind: 1}
        assert metrics.responses == {("none", "4xx"): 1}
        exposed = service.ask("GET", "/metrics").body.decode()
    assert f'kind="{kind}"}} 1.0' in exposed


@pytest.mark.parametrize("state", [State.STARTING, State.DRAINING])
def test_what_the_service_shows_of_itself_is_shown_while_it_starts_and_drains(state):
    with serving() as service:
        service.hub.state = state
        try:
            assert service.ask("GET", "/v1/stats").status == 503
            page, metrics = service.ask("GET", "/"), service.ask("GET", "/metrics")
        finally:
            service.hub.state = State.READY
    assert (page.status, metrics.status) == (200, 200)
    assert state.value.encode() in page.body
    assert b"contextpilot_ready 0.0" in metrics.body


def test_while_it_drains_metrics_still_take_a_key(keys):
    with serving(keys=keys[0]) as service:
        service.hub.state = State.DRAINING
        assert service.ask("GET", "/metrics").status == 401
        assert service.ask("GET", "/metrics", key=keys[1]).status == 200


def test_a_later_tenant_of_the_same_name_sees_nothing_of_the_one_before(keys):
    path, key = keys
    with serving(keys=path) as service:
        service.ask("POST", "/v1/align", ALIGN, key)
        assert [engine["name"] for engine in service.ask("GET", "/v1/engines", key=key).json()["engines"]] == ["vllm-0"]
        service.ask("POST", "/v1/align", ALIGN, key)  # figures that are not settled yet go, too
        service.hub.service.drop(["acme"])
        assert service.ask("GET", "/v1/engines", key=key).json()["engines"] == []
        assert service.hub.metrics.engines._size == 0


async def test_what_never_started_does_not_stop_in_the_audit_log(tmp_path, caplog):
    caplog.set_level(logging.INFO)
    settings = ServiceSettings(port=0, state=tmp_path)
    first, second = assemble(settings), assemble(settings)
    await first.start()
    with pytest.raises(SettingsError, match="another process uses it"):
        await second.start()
    await second.stop()
    acts = [record.audit["act"] for record in caplog.records if hasattr(record, "audit")]
    assert acts == ["service started"]
    await first.stop()
    acts = [record.audit["act"] for record in caplog.records if hasattr(record, "audit")]
    assert acts == ["service started", "service stopped"]
