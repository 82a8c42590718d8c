"""``contextpilot-rag serve``: every setting as an option, and refusals that say what to do."""

from __future__ import annotations

import argparse
import json
import logging
import sys
from dataclasses import fields
from pathlib import Path

import pytest

from contextpilot_rag import cli
from contextpilot_rag.engines.engine import engines_of
from contextpilot_rag.errors import SettingsError
from contextpilot_rag.proxy.settings import ProxySettings
from contextpilot_rag.serve_command import DECIDED, GROUPS, add_arguments, proxy_variables, settings_of
from contextpilot_rag.service.settings import SECRETS, ServiceSettings, option_of
from tests.service.harness import process


def parsed(*arguments):
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    return settings_of(parser.parse_args(arguments))


def test_without_options_all_is_as_the_settings_have_it():
    assert parsed() == ServiceSettings()


def test_options_are_the_settings():
    found = parsed(
        "--port", "9", "--keys", "k.json", "--capacity-tokens", "100", "--rate", "1.5", "--no-operator-metrics",
        "--tenant-labels", "--log-format", "json",
    )  # fmt: skip
    assert found == ServiceSettings(
        port=9, keys=Path("k.json"), capacity_tokens=100, rate=1.5, operator_metrics=False, tenant_labels=True,
        log_format="json",
    )  # fmt: skip


def test_engines_are_given_one_at_a_time_and_their_keys_are_not_shown(monkeypatch):
    first, second = "http://a:8000 events=tcp://a:5557 replay=tcp://a:5558", "http://b:8000 api_key=hidden name=b"
    found = parsed("--engine", first, "--engine", second)
    assert [engine.name for engine in engines_of(found.engines)] == ["a:8000", "b"]
    assert "a:8000" in repr(found)
    assert "hidden" not in repr(found)
    monkeypatch.setenv("CONTEXTPILOT_SERVE_ENGINES", f"{first}, {second}")
    assert engines_of(parsed().engines) == engines_of(found.engines)
    assert engines_of(parsed("--engine", first).engines) == engines_of(first)


def test_none_can_be_said(monkeypatch):
    monkeypatch.setenv("CONTEXTPILOT_SERVE_CAPACITY_TOKENS", "5")
    assert parsed().capacity_tokens == 5
    assert parsed("--capacity-tokens", "none").capacity_tokens is None


def test_an_option_wins_over_the_environment(monkeypatch):
    monkeypatch.setenv("CONTEXTPILOT_SERVE_PORT", "1")
    assert (parsed().port, parsed("--port", "2").port) == (1, 2)


def test_every_setting_but_secrets_is_an_option_with_its_meaning(capsys):
    with pytest.raises(SystemExit):
        parsed("--help")
    shown = capsys.readouterr().out
    for setting in fields(ServiceSettings):
        option = f"{option_of(setting.name)} "
        assert (option in shown.replace(",", " ").replace("]", " ")) == (setting.name not in SECRETS), option
    assert "CONTEXTPILOT_SERVE_SALT_SECRET" in shown
    assert "(default: 8765)" in shown


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--port", "x"], "^--port: 'x' is not a whole number from 0 to 65535$"),
        (["--port", "70000"], "^--port: '70000' is not a whole number from 0 to 65535$"),
        (["--rate", "-1"], "^--rate: '-1' is not a number, 0 or more$"),
        (["--capacity-tokens", "x"], "^--capacity-tokens: 'x' is neither a whole number, 1 or more, nor 'none'$"),
        (["--drain-seconds", "0"], "^--drain-seconds: '0' is not a number above 0$"),
        (["--engine", "nowhere"], "^--engine: .*'nowhere'"),
        (["--engine", "http://a:1 event=tcp://a:2"], "^--engine: .*did you mean 'events'"),
        (["--engine", "http://a:1", "--engine", "http://a:1"], "^--engine: two engines are called 'a:1'"),
        (["--workers", "2"], "a process has one index.*--replicate"),
        (["--tls-key", "k"], "^--tls-certificate FILE is missing"),
        (["--tls-certificate", "k"], "^--tls-key FILE is missing"),
    ],
)
def test_what_cannot_be_is_refused(arguments, said):
    with pytest.raises(SettingsError, match=said):
        parsed(*arguments)


def test_refusals_are_one_line_and_a_status(capsys):
    assert cli.main(["serve", "--host", "0.0.0.0"]) == 1
    said = capsys.readouterr().err
    assert said.startswith("contextpilot-rag: --host 0.0.0.0: ")
    assert "--keys FILE" in said
    assert cli.main(["serve", "--workers", "4"]) == 1
    assert "--workers 4" in capsys.readouterr().err


def test_where_logs_are_json_so_is_the_refusal(capsys, monkeypatch):
    assert cli.main(["serve", "--host", "0.0.0.0", "--log-format", "json"]) == 1
    monkeypatch.setenv("CONTEXTPILOT_SERVE_LOG_FORMAT", "json")
    assert cli.main(["serve", "--port", "x"]) == 1
    printed = capsys.readouterr()
    first, second = map(json.loads, printed.err.splitlines())
    assert first["message"].startswith("--host 0.0.0.0: ")
    assert (second["level"], second["message"][:8]) == ("error", "--port: ")
    assert printed.out == ""


def test_where_logs_are_json_so_is_the_line_that_says_it_is_ready(tmp_path):
    for log_format in ("json", "text"):
        with process(tmp_path, "--log-format", log_format) as service:
            assert service.stop() == 0
            assert service.popen.stdout is not None
            printed = service.popen.stdout.read()
            logged = service.log.read_text()
        if log_format == "json":
            records = [json.loads(line) for line in logged.splitlines()]
            assert [record["address"] for record in records if "address" in record] == [service.address]
        else:
            assert "ready on" not in logged
        assert printed == b"", "what was read before was the line itself"


def test_a_misspelt_variable_is_told(monkeypatch, caplog):
    monkeypatch.setenv("CONTEXTPILOT_SERVE_PORTT", "9000")
    monkeypatch.setenv("CONTEXTPILOT_SERVE_SOMETHING_ELSE_ALTOGETHER", "9000")
    monkeypatch.setenv("CONTEXTPILOT_SERVE_PROT", "9000")
    assert parsed().port == 8765
    assert sorted(record.getMessage() for record in caplog.records) == [
        f"environment variable CONTEXTPILOT_SERVE_{name} is no setting; did you mean CONTEXTPILOT_SERVE_PORT?"
        for name in ("PORTT", "PROT")
    ]


@pytest.mark.parametrize(
    ("arguments", "command", "said"),
    [
        (["serve", "--prt", "3"], "serve", "unrecognized arguments: --prt 3; did you mean --port?"),
        (["serve", "--hots=::1"], "serve", "did you mean --host?"),
        (["serve", "--log-format", "xml"], "serve", "'xml'"),
        (["serve", "extra"], "serve", "unrecognized arguments: extra\n"),
        (["keys", "add", "--tenant", "a", "--raet", "3"], "keys add", "did you mean --rate?"),
        (["keys", "list", "--fil", "a", "--verbose"], "keys list", "unrecognized arguments: --verbose\n"),
        (["--versoin"], "", "usage"),
        (["proxy", "http://a:1"], "proxy", "did you mean --upstream http://a:1?"),
    ],
)
def test_an_unknown_option_is_told_with_the_commands_own_usage(capsys, arguments, command, said):
    with pytest.raises(SystemExit) as caught:
        cli.main(arguments)
    assert caught.value.code == 2
    told = capsys.readouterr().err
    assert told.startswith(f"usage: contextpilot-rag {command}")
    assert said in told
    assert len(told.splitlines()) < 8


def test_variables_of_a_proxy_that_do_not_count_are_told(caplog, monkeypatch):
    monkeypatch.setattr(logging.getLogger("contextpilot_rag"), "propagate", True)
    environ = {
        "CONTEXTPILOT_PROXY_KEYS": "keys.json", "CONTEXTPILOT_PROXY_TENANT_BY": "key", "CONTEXTPILOT_PROXY_PORT": "",
        "CONTEXTPILOT_PROXY_WINDOW": "4", "CONTEXTPILOT_ORDER": "fixed",
    }  # fmt: skip
    left = proxy_variables(environ)
    assert left == {"CONTEXTPILOT_PROXY_WINDOW": "4", "CONTEXTPILOT_ORDER": "fixed"}
    assert ProxySettings.from_env(left).window == 4, "a variable that does not count refuses nothing either"
    assert {record.getMessage() for record in caplog.records} == {
        "CONTEXTPILOT_PROXY_KEYS does not count for `serve`: CONTEXTPILOT_SERVE_KEYS does",
        "CONTEXTPILOT_PROXY_TENANT_BY does not count for `serve`: the service tells tenants apart itself, by its keys",
    }


def test_what_the_service_decides_of_a_proxy_are_settings_of_it():
    assert set(DECIDED) <= {setting.name for setting in fields(ProxySettings)}
    shared = {setting.name for setting in fields(ServiceSettings)} & {setting.name for setting in fields(ProxySettings)}
    limits = {"salt_secret", "max_body", *GROUPS["limits of connections"]}
    assert shared - limits <= set(DECIDED)


def test_every_setting_is_under_one_heading():
    listed = [name for names in GROUPS.values() for name in names]
    assert sorted(listed) == sorted(setting.name for setting in fields(ServiceSettings) if setting.name not in SECRETS)


def test_help_speaks_of_options(capsys):
    with pytest.raises(SystemExit):
        parsed("--help")
    shown = " ".join(capsys.readouterr().out.split())
    assert "with it and --tls-key the service speaks TLS" in shown
    assert "requests a second of each tenant" in shown
    assert "None" not in shown
    for title in GROUPS:
        assert f"{title}:" in shown
    assert "these matter first: --state" in shown


def test_without_its_packages_it_says_which(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    for name in [name for name in sys.modules if name.startswith("contextpilot_rag.service.")]:
        if name.rpartition(".")[2] in {"process", "server", "protocol"}:
            monkeypatch.delitem(sys.modules, name)
    assert cli.main(["serve", "--port", "0"]) == 1
    assert "the service needs uvicorn: pip install 'contextpilot-rag[service]'" in capsys.readouterr().err
