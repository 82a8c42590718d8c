"""``contextpilot-rag serve``: every setting as an option, and refusals that say what to do."""

from __future__ import annotations

import argparse
import sys
from dataclasses import fields
from pathlib import Path

import pytest

from contextpilot_rag import cli
from contextpilot_rag.errors import SettingsError
from contextpilot_rag.serve_command import add_arguments, settings_of
from contextpilot_rag.service.settings import SECRETS, ServiceSettings


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
        option = f"--{setting.name.replace('_', '-')} "
        assert (option in shown.replace(",", " ").replace("]", " ")) == (setting.name not in SECRETS), option
    assert "CONTEXTPILOT_SERVE_SALT_SECRET" in shown
    assert "(default: 8765)" in shown


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--port", "x"], "--port"),
        (["--port", "70000"], "--port"),
        (["--rate", "-1"], "--rate"),
        (["--log-format", "xml"], "log_format"),
        (["--workers", "2"], "one process owns the index"),
        (["--tls-key", "k"], "tls_certificate"),
    ],
)
def test_what_cannot_be_is_refused(arguments, said):
    with pytest.raises(SettingsError, match=said):
        parsed(*arguments)


def test_refusals_are_one_line_and_a_status(capsys):
    assert cli.main(["serve", "--host", "0.0.0.0"]) == 1
    assert capsys.readouterr().err.startswith("contextpilot-rag: host: ")
    assert cli.main(["serve", "--workers", "4"]) == 1
    assert "--workers 4" in capsys.readouterr().err


def test_without_its_packages_it_says_which(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    for name in [name for name in sys.modules if name.startswith("contextpilot_rag.service.")]:
        if name.rpartition(".")[2] in {"process", "server", "protocol"}:
            monkeypatch.delitem(sys.modules, name)
    assert cli.main(["serve", "--port", "0"]) == 1
    assert 'pip install "contextpilot-rag[service]"' in capsys.readouterr().err
