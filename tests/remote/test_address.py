from __future__ import annotations

import logging
import ssl

import pytest

from contextpilot_rag import AsyncContextPilot, ContextPilot, RemoteIndex
from contextpilot_rag.errors import SettingsError
from contextpilot_rag.remote.address import Address

KEY = "cpk_secret-Value_0123456789"


@pytest.mark.parametrize(
    ("given", "shown", "authority"),
    [
        ("http://localhost:8765", "http://localhost:8765", "localhost:8765"),
        ("HTTP://Index.Example/", "http://index.example", "index.example"),
        ("https://index.example:443", "https://index.example", "index.example"),
        ("https://index.example:8443/a/b/", "https://index.example:8443/a/b", "index.example:8443"),
        ("http://[::1]:8765", "http://[::1]:8765", "[::1]:8765"),
    ],
)
def test_addresses(given, shown, authority):
    address = Address.of(given)
    assert (str(address), address.authority) == (shown, authority)


@pytest.mark.parametrize(
    "address",
    [
        "index:8765",
        "ftp://index",
        "http://",
        "http://index:port",
        "http://index:99999",
        "http://[::1",
        "http://in dex",
        "http://index\r\nx: y",
        "http://índex",
        "http://index?tenant=acme",
        "http://index#x",
        "",
    ],
)
def test_addresses_that_are_none(address):
    with pytest.raises(SettingsError):
        RemoteIndex(address)
    with pytest.raises(SettingsError):
        ContextPilot(address)


def test_a_password_in_an_address_is_refused_and_not_shown():
    with pytest.raises(SettingsError, match="give the key as api_key") as raised:
        RemoteIndex(f"http://me:{KEY}@index")
    assert KEY not in str(raised.value)


@pytest.mark.parametrize("key", ["two words", "line\n", "clé", "tab\t", b"bytes", None])
def test_keys_that_cannot_be_sent_are_refused_and_not_shown(key):
    with pytest.raises(SettingsError, match="api_key must be plain ASCII") as raised:
        RemoteIndex("http://index", api_key=key)
    assert "two" not in str(raised.value)


@pytest.mark.parametrize(
    "wrong",
    [
        {"timeout": 0},
        {"timeout": float("nan")},
        {"timeout": float("inf")},
        {"timeout": "1"},
        {"timeout": True},
        {"timeout": 1e12},
        {"patience": -1},
        {"engine": ""},
        {"engine": "e" * 257},
        {"connections": 0},
        {"connections": 1.5},
        {"verify": True},
        {"verify": False},
        {"verify": "/no/such/file"},
    ],
)
def test_wrong_arguments_are_named(wrong):
    with pytest.raises(SettingsError, match=next(iter(wrong))):
        RemoteIndex("https://index", **wrong)


def test_certificates_are_for_https():
    with pytest.raises(SettingsError, match="https"):
        RemoteIndex("http://index", verify=ssl.create_default_context())


def test_a_pilot_takes_an_address_with_the_key_and_timeout_of_its_settings(monkeypatch):
    monkeypatch.setenv("CONTEXTPILOT_API_KEY", KEY)
    monkeypatch.setenv("CONTEXTPILOT_INDEX_TIMEOUT", "0.2")
    for index in (ContextPilot("http://index:8765").index, AsyncContextPilot("http://index:8765").blocking.index):
        assert isinstance(index, RemoteIndex)
        assert (index._key, index._timeout) == (KEY, 0.2)
        assert KEY not in repr(index)


@pytest.mark.parametrize("index", ["embeded", "localhost:8765", "", 5, None])
def test_what_is_no_index_is_named(index):
    with pytest.raises(SettingsError, match="unknown index"):
        ContextPilot(index)


def test_settings_of_an_index_that_is_elsewhere_are_noticed(caplog, monkeypatch):
    ContextPilot("http://index:8765", order="throughput")
    assert not caplog.records
    ContextPilot("http://index:8765", capacity_tokens=5_000)
    monkeypatch.setenv("CONTEXTPILOT_MAX_BLOCKS", "7")
    ContextPilot("http://index:8765")
    messages = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert [message.split(":")[0] for message in messages] == ["capacity_tokens", "max_blocks"]
