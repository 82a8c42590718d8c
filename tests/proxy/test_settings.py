"""The proxy's settings: what they take, what they refuse and how they say it, and what they do not show."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest

from contextpilot_rag.errors import SettingsError
from contextpilot_rag.proxy.settings import PREFIX, ProxySettings, kinds
from contextpilot_rag.settings import Settings


def test_without_anything_it_can_be_made():
    settings = ProxySettings()
    assert (settings.port, settings.tenant_by, settings.engines, settings.cloud) == (8766, "authorization", (), "")


def test_every_setting_has_a_variable():
    environ = {
        "UPSTREAMS": "http://a:1 name=a\nhttp://b:2", "HOST": "localhost", "PORT": "9", "OPEN": "yes",
        "TENANT_BY": "nobody", "LISTS": "numbered", "LABELS": "renumber", "TOOL_RESULTS": "no", "MAX_BODY": "none",
        "TLS_CERTIFICATE": "c.pem", "TLS_KEY": "k.pem", "WINDOW": "8", "CHECK_HOST": "",
    }  # fmt: skip
    found = ProxySettings.from_env({PREFIX + name: text for name, text in environ.items()})
    assert found == ProxySettings(
        upstreams="http://a:1 name=a\nhttp://b:2", host="localhost", port=9, open=True, tenant_by="nobody",
        lists="numbered", labels="renumber", tool_results=False, tls_certificate=Path("c.pem"),
        tls_key=Path("k.pem"), window=8,
    )  # fmt: skip
    assert [engine.name for engine in found.engines] == ["a", "b:2"]
    assert found.known_lists == {"numbered"}
    assert set(kinds()) == {field.name for field in fields(ProxySettings)}


def test_a_keyword_wins_over_the_environment():
    assert ProxySettings.from_env({f"{PREFIX}PORT": "1"}, port=2).port == 2


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"port": 70_000}, "^port: .*65535"),
        ({"keys": 3}, "^keys: a path, not int"),
        ({"lists": "numbered, heded"}, "^--lists: 'heded' is none of 'numbered', 'headed'$"),
        ({"upstreams": "nowhere"}, "^--upstream: .*'nowhere'"),
        ({"upstreams": "http://a:1 nam=x"}, "^--upstream: .*did you mean 'name'"),
        ({"upstreams": "http://a:1, http://a:1"}, "^--upstream: two engines are called 'a:1'"),
        ({"upstreams": "http://a:1 cloud=openia"}, "^--upstream: .*one of openai, anthropic"),
        ({"upstreams": "http://a:1 cloud=openai cloud=openai"}, "^--upstream: .*given once"),
        ({"upstreams": "http://a:1, https://api.openai.com"}, "^--upstream: .*all of one cloud"),
        ({"upstreams": "https://api.openai.com events=tcp://a:1"}, "^--upstream: a cloud publishes no"),
        ({"tls_key": "k"}, "^--tls-certificate FILE is missing"),
        ({"tls_certificate": "k"}, "^--tls-key FILE is missing"),
        ({"tenant_by": "key"}, "^--tenant-by key needs --keys FILE"),
        ({"tenant_by": "nobody", "keys": "k"}, "^--tenant-by nobody: the file of --keys"),
        ({"tenant_by": "header"}, "go together"),
        ({"tenant_header": "x-tenant"}, "go together"),
        ({"tenant_by": "header", "tenant_header": "x tenant"}, "^--tenant-header: 'x tenant' is no name"),
    ],
)
def test_what_cannot_be_is_refused(given, said):
    with pytest.raises(SettingsError, match=said):
        ProxySettings(**given)


def test_an_unknown_setting_is_refused():
    with pytest.raises(SettingsError, match="did you mean 'port'"):
        ProxySettings.from_env({}, prt=1)


def test_keys_say_who_a_tenant_is():
    assert ProxySettings(keys="k.json").tenant_by == "key"


@pytest.mark.parametrize(
    ("line", "cloud"),
    [
        ("https://api.openai.com/v1", "openai"),
        ("https://API.OPENAI.COM", "openai"),
        ("https://api.anthropic.com", "anthropic"),
        ("https://gateway:1 cloud=anthropic", "anthropic"),
        ("https://api.openai.com.example.org", ""),
        ("http://engine:8000", ""),
    ],
)
def test_a_cloud_is_known_by_its_address_or_by_name(line, cloud):
    settings = ProxySettings(upstreams=line)
    assert settings.cloud == cloud
    assert len(settings.engines) == 1


def test_secrets_are_not_shown():
    settings = ProxySettings(upstreams="http://user:hidden@a:1 api_key=hidden name=b", salt_secret="hidden")
    assert "hidden" not in repr(settings)
    assert "name='b'" in repr(settings)
    with pytest.raises(SettingsError) as raised:
        ProxySettings(salt_secret=b"hidden")
    assert "hidden" not in str(raised.value)


def test_a_misspelt_variable_is_told_and_the_pilots_settings_take_none_of_them_for_theirs(caplog):
    environ = {f"{PREFIX}PORTT": "9000", f"{PREFIX}DEDUP": "off"}
    assert ProxySettings.from_env(environ) == ProxySettings()
    assert Settings.from_env(environ) == Settings()
    told = {record.getMessage() for record in caplog.records}
    assert told == {
        "environment variable CONTEXTPILOT_PROXY_PORTT is no setting; did you mean CONTEXTPILOT_PROXY_PORT?",
        "environment variable CONTEXTPILOT_PROXY_DEDUP is no setting; did you mean CONTEXTPILOT_DEDUP?",
    }
