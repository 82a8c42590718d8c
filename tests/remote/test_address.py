from __future__ import annotations

import logging
import ssl

import pytest

from contextpilot_rag import AsyncContextPilot, ContextPilot, LocalIndex, RemoteIndex, Settings
from contextpilot_rag.adapter import Adapter
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


@pytest.mark.parametrize(
    "address",
    [
        f"http://me:{KEY}@index:99999",
        f"http://me:{KEY}@[::1",
        f"htps://me:{KEY}@index",
        f"me:{KEY}@index",
        f"http://me:{KEY}@",
        f"http://me:{KEY}@in dex",
    ],
)
def test_a_password_in_an_address_that_is_none_is_not_shown(address):
    for make in (RemoteIndex, ContextPilot):
        with pytest.raises(SettingsError) as raised:
            make(address)
        assert KEY not in str(raised.value)


@pytest.mark.parametrize("address", [5, None, b"http://index"])
def test_an_address_is_a_text(address):
    with pytest.raises(SettingsError, match="must be a text"):
        RemoteIndex(address)


@pytest.mark.parametrize("key", ["two words", "line\n", "clé", "tab\t", b"bytes", 5])
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
        {"verify": ""},
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


@pytest.mark.parametrize("index", ["embeded", "localhost:8765", "", 5])
def test_what_is_no_index_is_named(index):
    with pytest.raises(SettingsError, match="unknown index"):
        ContextPilot(index)


def test_an_index_made_by_hand_has_key_and_timeout_of_the_environment(monkeypatch):
    monkeypatch.setenv("CONTEXTPILOT_API_KEY", KEY)
    monkeypatch.setenv("CONTEXTPILOT_INDEX_TIMEOUT", "0.2")
    monkeypatch.setenv("CONTEXTPILOT_MIN_GAIN", "of no interest to an index")
    index = RemoteIndex("http://index")
    assert (index._key, index._timeout) == (KEY, 0.2)
    index = RemoteIndex("http://index", api_key="", timeout=1)
    assert (index._key, index._timeout) == ("", 1)
    monkeypatch.setenv("CONTEXTPILOT_INDEX_TIMEOUT", "soon")
    with pytest.raises(SettingsError, match="CONTEXTPILOT_INDEX_TIMEOUT"):
        RemoteIndex("http://index")
    monkeypatch.setenv("CONTEXTPILOT_API_KEY", f"{KEY} ")
    with pytest.raises(SettingsError, match="api_key must be plain ASCII") as raised:
        RemoteIndex("http://index", timeout=1)
    assert KEY not in str(raised.value)


@pytest.mark.parametrize("make", [ContextPilot, AsyncContextPilot])
@pytest.mark.parametrize("given", [{"api_key": KEY}, {"index_timeout": 0.2}])
def test_what_would_not_reach_an_index_given_as_an_object_is_refused(make, given):
    for index in (RemoteIndex("http://index"), LocalIndex()):
        with pytest.raises(SettingsError, match=f"{next(iter(given))}: .*give it to the index") as raised:
            make(index, **given)
        assert KEY not in str(raised.value)


def test_what_would_not_reach_an_index_is_said(caplog, monkeypatch):
    def said() -> list[str]:
        found = [record.getMessage().split(":")[0] for record in caplog.records]
        caplog.clear()
        return found

    ContextPilot(LocalIndex(), max_blocks=7, order="throughput")
    assert said() == ["max_blocks"]
    ContextPilot(api_key=KEY, index_timeout=1)
    assert said() == ["api_key, index_timeout"]
    settings = Settings(api_key=KEY)
    ContextPilot(RemoteIndex("http://index"), settings=settings)
    assert said() == ["api_key"]
    ContextPilot(LocalIndex(), settings=settings)
    ContextPilot("embedded", settings=settings)
    monkeypatch.setenv("CONTEXTPILOT_API_KEY", KEY)
    ContextPilot(RemoteIndex("http://index"), settings=settings)
    ContextPilot(RemoteIndex("http://index"))
    ContextPilot()
    assert said() == []


def test_the_environment_says_where_the_index_is(caplog, monkeypatch):
    monkeypatch.setenv("CONTEXTPILOT_INDEX", "http://index:8765")
    monkeypatch.setenv("CONTEXTPILOT_API_KEY", KEY)
    for pilot in (ContextPilot(), AsyncContextPilot().blocking, Adapter().pilot):
        assert repr(pilot.index) == "RemoteIndex('http://index:8765')"
        assert pilot.index._key == KEY
        assert pilot._made is pilot.index  # so it is closed with the pilot
        assert pilot.settings.index == "http://index:8765"
    assert not caplog.records
    ContextPilot(capacity_tokens=5_000)
    assert [record.getMessage().split(":")[0] for record in caplog.records] == ["capacity_tokens"]


def test_what_the_code_says_of_the_index_wins(monkeypatch):
    monkeypatch.setenv("CONTEXTPILOT_INDEX", "http://index:8765")
    own = LocalIndex()
    assert ContextPilot(own).index is own
    assert isinstance(ContextPilot("embedded").index, LocalIndex)
    assert ContextPilot("embedded").settings.index == "embedded"
    assert str(ContextPilot("http://other")._made) == "RemoteIndex('http://other')"
    assert isinstance(ContextPilot(settings=Settings()).index, LocalIndex)
    assert ContextPilot(settings=Settings(index="http://third")).settings.index == "http://third"


@pytest.mark.parametrize("address", ["localhost:8765", "http://", f"http://me:{KEY}@index"])
def test_a_wrong_address_in_the_environment_is_named(address, monkeypatch):
    monkeypatch.setenv("CONTEXTPILOT_INDEX", address)
    with pytest.raises(SettingsError, match="CONTEXTPILOT_INDEX") as raised:
        ContextPilot()
    assert KEY not in str(raised.value)


def test_settings_of_an_index_that_is_elsewhere_are_noticed(caplog, monkeypatch):
    ContextPilot("http://index:8765", order="throughput")
    assert not caplog.records
    ContextPilot("http://index:8765", capacity_tokens=5_000)
    monkeypatch.setenv("CONTEXTPILOT_MAX_BLOCKS", "7")
    ContextPilot("http://index:8765")
    messages = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert [message.split(":")[0] for message in messages] == ["capacity_tokens", "max_blocks"]
