"""How replicas are asked for, what is refused, and what is shown of the log's address."""

from __future__ import annotations

import argparse
import logging

import pytest

from contextpilot_rag import serve_command
from contextpilot_rag.errors import SettingsError
from contextpilot_rag.service.secret import secret_of
from contextpilot_rag.service.settings import ServiceSettings

URL = "redis://replica:pass-word@log.example:7000/0?prefix=shop"


def parsed(*arguments):
    parser = argparse.ArgumentParser()
    serve_command.add_arguments(parser)
    return serve_command.settings_of(parser.parse_args(arguments))


def test_the_address_comes_from_an_option_or_a_variable_and_its_password_is_never_shown():
    settings = ServiceSettings.from_env({"CONTEXTPILOT_SERVE_REPLICATE": URL})
    assert settings.replicate == URL
    assert "redis://log.example:7000/0" in repr(settings)
    assert "pass-word" not in repr(settings)
    assert "replicate=''" in repr(ServiceSettings())


@pytest.mark.parametrize("arguments", [["--replicate", URL], []])
def test_a_password_on_the_command_line_is_warned_of(arguments, caplog, monkeypatch):
    monkeypatch.setenv("CONTEXTPILOT_SERVE_REPLICATE", URL)
    with caplog.at_level(logging.WARNING, "contextpilot_rag"):
        assert parsed(*arguments).replicate == URL
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == len(arguments) / 2
    assert all("CONTEXTPILOT_SERVE_REPLICATE" in line and "pass-word" not in line for line in said)


@pytest.mark.parametrize("url", ["http://:pass-word@log", "redis://", "redis://a:pass-word@h/x", 7])
def test_an_address_that_is_none_is_refused_without_showing_it(url):
    with pytest.raises(SettingsError, match="replicate: ") as caught:
        ServiceSettings(replicate=url)
    assert "pass-word" not in str(caught.value)


def test_with_keys_replicas_need_a_secret_that_they_share(tmp_path):
    keys = tmp_path / "keys.json"
    with pytest.raises(SettingsError, match=r"--keys takes CONTEXTPILOT_SERVE_SALT_SECRET, .*openssl rand"):
        ServiceSettings(replicate=URL, keys=keys)
    assert secret_of(ServiceSettings(replicate=URL, keys=keys, salt_secret="mine")) == "mine"


def test_without_keys_and_a_secret_all_replicas_have_the_same_and_that_is_told(tmp_path, caplog):
    with caplog.at_level(logging.WARNING, "contextpilot_rag"):
        assert secret_of(ServiceSettings(replicate=URL, state=tmp_path)) == ""
    assert ["SALT_SECRET" in record.getMessage() for record in caplog.records] == [True]
    assert not list(tmp_path.iterdir())
    assert secret_of(ServiceSettings(replicate=URL, salt_secret="mine")) == "mine"
