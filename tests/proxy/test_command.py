"""``contextpilot-rag proxy``: every setting as an option, what it says, and how it begins and ends."""

from __future__ import annotations

import argparse
import json
import socket
from dataclasses import fields
from email.utils import parsedate_to_datetime

import pytest

from contextpilot_rag import cli
from contextpilot_rag.proxy.life import assemble
from contextpilot_rag.proxy.settings import SECRETS, ProxySettings, option_of
from contextpilot_rag.proxy_command import GROUPS, add_arguments, pilot_settings_of, settings_of
from contextpilot_rag.service.keyfile import TenantEntry, changing, new_key
from contextpilot_rag.settings import Settings
from contextpilot_rag.testing import FakeEngine

from .harness import Raw, told
from .running import living, process

ENGINE = "http://127.0.0.1:9"
BODY = {"model": "m", "messages": [{"role": "user", "content": "Where do slices start?"}]}


def options(*arguments):
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    return parser.parse_args(arguments)


def posted(raw):
    """What clients have sent; the proxy looks how an engine is, besides."""
    return [request for request in raw.received if request.line.startswith(b"POST")]


def test_without_options_all_is_as_the_settings_have_it():
    assert settings_of(options()) == ProxySettings()
    assert pilot_settings_of(options()) == Settings(dedup="blocks+chunks")
    assert pilot_settings_of(options()).order_hint is False


def test_options_are_the_settings():
    found = options(
        "--upstream", "http://a:1 name=a", "--upstream", "http://b:2", "--port", "9", "--open", "--host", "0.0.0.0",
        "--lists", "numbered,headed", "--no-tool-results", "--max-body", "none", "--order", "throughput",
        "--dedup", "blocks", "--index", "http://index:8765", "--order-hint", "yes",
    )  # fmt: skip
    settings = settings_of(found)
    assert [engine.name for engine in settings.engines] == ["a", "b:2"]
    assert settings == ProxySettings(
        upstreams="http://a:1 name=a\nhttp://b:2", port=9, open=True, host="0.0.0.0", lists="numbered,headed",
        tool_results=False,
    )  # fmt: skip
    assert pilot_settings_of(found) == Settings(
        order="throughput", dedup="blocks", index="http://index:8765", order_hint=True
    )


def test_an_option_wins_over_the_environment(monkeypatch):
    monkeypatch.setenv("CONTEXTPILOT_PROXY_PORT", "1")
    monkeypatch.setenv("CONTEXTPILOT_DEDUP", "off")
    assert (settings_of(options()).port, pilot_settings_of(options()).dedup) == (1, "off")
    found = options("--port", "2", "--dedup", "blocks")
    assert (settings_of(found).port, pilot_settings_of(found).dedup) == (2, "blocks")


def test_every_setting_but_secrets_is_an_option_with_its_meaning(capsys):
    with pytest.raises(SystemExit):
        options("--help")
    shown = capsys.readouterr().out
    for setting in fields(ProxySettings):
        option = f"{option_of(setting.name)} "
        assert (option in shown.replace(",", " ").replace("]", " ")) == (setting.name not in SECRETS), option
    assert "CONTEXTPILOT_PROXY_SALT_SECRET" in shown
    assert "(default: 8766)" in shown
    assert "OPENAI_BASE_URL" in shown
    assert "``" not in shown
    names = [name for group in GROUPS.values() for name in group]
    assert sorted(names) == sorted({field.name for field in fields(ProxySettings)} - SECRETS)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "--upstream URL (or CONTEXTPILOT_PROXY_UPSTREAMS) is needed"),
        (["--upstream", "nowhere"], "--upstream: "),
        (["--upstream", ENGINE, "--port", "x"], "--port: 'x' is not a whole number"),
        (["--upstream", ENGINE, "--min-gain", "2"], "--min-gain: '2' is not a number from 0 to 1"),
        (["--upstream", ENGINE, "--host", "0.0.0.0"], "--host 0.0.0.0: others can reach this proxy"),
        (["--upstream", ENGINE, "--keys", "/nowhere.json"], "/nowhere.json"),
    ],
)
def test_refusals_are_one_line_and_a_status(arguments, said, capsys):
    assert cli.main(["proxy", *arguments]) == 1
    shown = capsys.readouterr().err
    assert shown.startswith("contextpilot-rag: ")
    assert said in shown
    assert shown.count("\n") == 1


def test_where_logs_are_json_so_is_the_refusal(capsys):
    assert cli.main(["proxy", "--log-format", "json"]) == 1
    assert json.loads(capsys.readouterr().err)["message"].startswith("--upstream URL")


def test_a_process_says_where_clients_go_and_ends_in_order():
    with FakeEngine() as engine, process("proxy", "--port", "0", "--upstream", engine.base_url) as proxy:
        assert proxy.lines == [
            f"contextpilot-rag proxy: {proxy.address}/v1 -> {engine.base_url}\n",
            f"OPENAI_BASE_URL={proxy.address}/v1\n",
        ]
        assert proxy.ask("POST", "/v1/chat/completions", BODY).json()["object"] == "chat.completion"
        assert proxy.ask("GET", "/v1/models").json()["data"][0]["id"] == "fake-engine"
        assert proxy.ask("GET", "/contextpilot/health").status == 200
        assert proxy.stop() == (0, "")


def test_where_logs_are_json_so_is_the_line_that_says_it_is_ready():
    given = {"CONTEXTPILOT_PROXY_UPSTREAMS": f"{ENGINE} api_key=hidden", "CONTEXTPILOT_PROXY_LOG_FORMAT": "json"}
    with process("proxy", "--port", "0", lines=1, **given) as proxy:
        record = json.loads(proxy.lines[0])
        assert (record["address"], record["upstreams"]) == (proxy.address, [f"{ENGINE}/v1"])
        status, rest = proxy.stop()
        assert status == 0
        assert "hidden" not in proxy.lines[0] + rest


def test_what_it_did_is_counted():
    with FakeEngine() as engine, living(upstreams=engine.base_url) as proxy:
        assert proxy.ask("POST", "/v1/chat/completions", BODY).status == 200
        assert proxy.ask("GET", "/contextpilot/ready").json() == {"status": "ready", "alive": 1}
        (upstream,) = proxy.ask("GET", "/contextpilot/upstreams").json()["upstreams"]
        assert upstream["alive"]
        metrics = proxy.ask("GET", "/contextpilot/metrics").body.decode()
    assert 'contextpilot_proxy_requests_total{api="chat",outcome=' in metrics


def test_tenants_have_salts_and_nobody_has_none():
    with FakeEngine() as engine, living(upstreams=engine.base_url) as proxy:
        for key in ("a", "b", "a", None):
            proxy.ask("POST", "/v1/chat/completions", BODY, key=key)
        a, b, again, none = (request.cache_salt for request in engine.requests)
    assert a == again
    assert len({a, b, None}) == 3
    assert none is None


def test_salts_are_the_same_after_a_restart_where_a_secret_is_set():
    salts = []
    for _ in range(2):
        with FakeEngine() as engine, living(upstreams=engine.base_url, salt_secret="s") as proxy:
            proxy.ask("POST", "/v1/chat/completions", BODY, key="a")
            salts.append(engine.requests[0].cache_salt)
    assert salts[0] == salts[1]


def test_keys_are_asked_for_and_go_no_further(tmp_path):
    key, entry = new_key()
    with changing(tmp_path / "keys.json", create=True) as file:
        file.tenants["acme"] = TenantEntry(keys=[entry])
    with Raw() as raw, living(upstreams=raw.url, keys=tmp_path / "keys.json", operator_metrics=True) as proxy:
        assert proxy.ask("POST", "/v1/chat/completions", BODY).status == 401
        assert proxy.ask("POST", "/v1/chat/completions", BODY, key="sk-other").status == 401
        assert proxy.ask("POST", "/v1/chat/completions", BODY, key=key).status == 200
        (sent,) = posted(raw)
        assert key.encode() not in sent.head + sent.body
        assert b"cache_salt" in sent.body
        assert proxy.ask("GET", "/contextpilot/health").status == 200
        assert proxy.ask("GET", "/contextpilot/metrics").status == 401
        assert proxy.ask("GET", "/contextpilot/metrics", key=key).status == 403


def test_a_clients_own_salt_is_refused_by_name():
    with Raw() as raw, living(upstreams=raw.url) as proxy:
        reply = proxy.ask("POST", "/v1/chat/completions", {**BODY, "cache_salt": "mine"}, key="a")
        assert (reply.status, reply.json()["error"]["param"]) == (400, "cache_salt")
        assert not posted(raw)


def test_a_cloud_is_asked_nothing_but_what_clients_ask():
    with Raw() as raw:
        with living(upstreams=f"{raw.url} cloud=openai") as proxy:
            assert len(proxy.life.parts.pilot.engines) == 0
            assert proxy.ask("GET", "/contextpilot/upstreams").json()["upstreams"][0]["alive"]
            assert proxy.ask("POST", "/v1/chat/completions", BODY, key="a").status == 200
        assert [request.line for request in raw.received] == [b"POST /v1/chat/completions HTTP/1.1"]
        assert b"cache_salt" not in raw.last.body


def test_an_upstream_that_is_gone_is_shown_so():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with living(upstreams=f"http://127.0.0.1:{port} cloud=openai") as proxy:
        assert proxy.ask("GET", "/v1/models").status == 502
        assert proxy.ask("GET", "/contextpilot/ready").status == 503


def test_an_answers_date_is_its_upstreams():
    then = b"Sun, 06 Nov 1994 08:49:37 GMT"
    answer = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\ndate: " + then + b"\r\n\r\n"
    with (
        Raw(answer) as raw,
        living(upstreams=raw.url) as proxy,
        socket.create_connection(("127.0.0.1", proxy.port), 20) as client,
    ):
        client.sendall(b"GET /x HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
        head = told(client, b"\r\n\r\n")
        assert head.lower().count(b"\r\ndate: ") == 1
        assert then in head
        assert parsedate_to_datetime(proxy.ask("GET", "/contextpilot/health").headers["date"])


def test_what_is_no_request_is_refused_in_openais_words():
    with (
        Raw() as raw,
        living(upstreams=raw.url) as proxy,
        socket.create_connection(("127.0.0.1", proxy.port), 20) as client,
    ):
        client.sendall(b"NONSENSE\r\n\r\n")
        head, _, body = told(client, b"}}").partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 400 ")
        assert json.loads(body)["error"]["type"] == "invalid_request_error"


def test_the_pilots_settings_count_and_it_always_fails_open():
    life = assemble(ProxySettings(upstreams=ENGINE), Settings(salt_secret="mine", dedup="blocks"))
    try:
        settings = life.parts.pilot.settings
        assert (settings.salt_secret, settings.dedup, settings.on_error) == ("mine", "blocks", "open")
        assert [engine.name for engine in life.parts.pilot.engines] == ["127.0.0.1:9"]
    finally:
        life.parts.pilot.blocking.close()
