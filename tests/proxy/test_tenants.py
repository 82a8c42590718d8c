"""Who asks: tenants by their headers, and what of these is forwarded."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextpilot_rag.proxy.problems import Foreign, Misdirected, NoKey, TooOften, Unusable
from contextpilot_rag.proxy.salts import salted
from contextpilot_rag.proxy.settings import ProxySettings
from contextpilot_rag.proxy.tenants import Tenants, secret_of
from contextpilot_rag.proxy.words import Edit
from contextpilot_rag.service.keyfile import TenantEntry, changing, new_key

HOST = (b"host", b"127.0.0.1:8766")


def tenants(secret="s", **given):
    return Tenants(ProxySettings(**given), secret)


@pytest.fixture
def keyed(tmp_path):
    """Tenants by a file of keys, and a key of acme's."""
    key, entry = new_key()
    with changing(tmp_path / "keys.json", create=True) as file:
        file.tenants["acme"] = TenantEntry(keys=[entry], operator=True)
        other, entry = new_key()
        file.tenants["globex"] = TenantEntry(keys=[entry])
    return tenants(keys=tmp_path / "keys.json"), key.encode(), other.encode()


def test_who_shows_the_same_key_is_the_same_tenant():
    asked = tenants()
    headers = [HOST, (b"authorization", b"Bearer sk-a"), (b"accept", b"*/*")]
    name, forwarded = asked.of(headers)
    assert forwarded == headers
    assert asked.of([HOST, (b"authorization", b"Bearer sk-a")])[0] == name
    others = [
        [(b"authorization", b"Bearer sk-b")],
        [(b"x-api-key", b"Bearer sk-a")],
        [(b"api-key", b"Bearer sk-a")],
        [(b"authorization", b"Bearer sk-a"), (b"x-api-key", b"k")],
        [],
    ]
    names = {name, *(asked.of([HOST, *shown])[0] for shown in others)}
    assert len(names) == 6
    assert asked.of([HOST])[0] == ""


def test_a_name_tells_nothing_of_the_key_and_is_another_with_another_secret():
    headers = [HOST, (b"authorization", b"Bearer sk-secret")]
    name = tenants().of(headers)[0]
    assert len(name) == 32
    assert int(name, 16)
    assert tenants("s").of(headers)[0] == name
    assert tenants("t").of(headers)[0] != name


@given(
    st.lists(st.binary(max_size=6), min_size=3, max_size=3),
    st.lists(st.binary(max_size=6), min_size=3, max_size=3),
)
def test_two_sets_of_keys_never_meet(one, other):
    names = (b"authorization", b"x-api-key", b"api-key")
    asked = tenants()
    first, second = (asked.of([HOST, *zip(names, values, strict=True)])[0] for values in (one, other))
    assert (first == second) is (one == other)


def test_the_secret_is_the_one_that_was_set_or_one_of_this_process():
    assert secret_of(ProxySettings(salt_secret="mine")) == "mine"
    assert secret_of(ProxySettings()) != secret_of(ProxySettings())


@pytest.mark.parametrize("form", [b"x-contextpilot-key", b"authorization", b"basic", b"x-api-key"])
def test_a_key_of_ours_says_who_asks_and_goes_no_further(keyed, form):
    asked, key, _ = keyed
    shown = {
        b"authorization": (b"authorization", b"Bearer " + key),
        b"basic": (b"authorization", b"Basic " + base64.b64encode(b"acme:" + key)),
    }.get(form, (form, key))
    name, forwarded = asked.of([(b"accept", b"*/*"), shown])
    assert (name, forwarded) == ("acme", [(b"accept", b"*/*")])


def test_beside_a_key_of_ours_the_upstreams_passes(keyed):
    asked, key, _ = keyed
    theirs = (b"authorization", b"Bearer sk-upstream")
    assert asked.of([(b"x-contextpilot-key", key), theirs]) == ("acme", [theirs])


@pytest.mark.parametrize("shown", [[], [(b"authorization", b"Bearer sk-a")], [(b"x-contextpilot-key", b"cpk_no")]])
def test_without_a_known_key_nobody_is_served(keyed, shown):
    with pytest.raises(NoKey, match="x-contextpilot-key") as raised:
        keyed[0].of(shown)
    assert raised.value.status == 401
    assert raised.value.headers["www-authenticate"].startswith("Bearer")


def test_operators_are_told_from_others(keyed):
    asked, key, other = keyed
    assert asked.operator([(b"x-contextpilot-key", key)])
    assert not asked.operator([(b"x-contextpilot-key", other)])
    with pytest.raises(NoKey):
        asked.operator([])
    assert tenants().operator([HOST])


def test_keys_of_ours_go_no_further_even_where_none_are_asked_for():
    key = new_key()[0].encode()
    shown = [HOST, (b"authorization", b"Bearer " + key), (b"x-contextpilot-key", b"anything")]
    assert tenants().of(shown)[1] == [HOST]


def test_a_header_may_say_who_asks():
    asked = tenants(tenant_by="header", tenant_header="X-Tenant")
    assert asked.of([HOST, (b"x-tenant", b" acme ")]) == ("acme", [HOST])
    for missing in ([HOST], [HOST, (b"x-tenant", b" ")]):
        with pytest.raises(NoKey, match="x-tenant"):
            asked.of(missing)
    with pytest.raises(Unusable, match="two x-tenant headers"):
        asked.of([HOST, (b"x-tenant", b"a"), (b"x-tenant", b"b")])


def test_a_tenant_may_ask_so_often():
    asked = tenants(rate=0.001, burst=2)
    shown = [HOST, (b"authorization", b"Bearer sk-a")]
    for _ in range(2):
        asked.of(shown)
    with pytest.raises(TooOften) as raised:
        asked.of(shown)
    assert (raised.value.status, raised.value.problem()["error"]["type"]) == (429, "rate_limit_error")
    assert int(raised.value.headers["retry-after"]) > 500
    assert asked.of([HOST, (b"authorization", b"Bearer sk-b")])[0], "others are served"


def test_a_rate_of_the_file_of_keys_counts(tmp_path):
    key, entry = new_key()
    with changing(tmp_path / "keys.json", create=True) as file:
        file.tenants["acme"] = TenantEntry(keys=[entry], rate=0.001)
    asked = tenants(keys=tmp_path / "keys.json", burst=1)
    shown = [(b"x-contextpilot-key", key.encode())]
    assert asked.of(shown)[0] == "acme"
    with pytest.raises(TooOften):
        asked.of(shown)
    assert not asked.operator(shown), "looking costs nothing"


def test_all_may_be_nobodys():
    headers = [HOST, (b"authorization", b"Bearer sk-a")]
    assert tenants(tenant_by="nobody").of(headers) == ("", headers)


@pytest.mark.parametrize("name", [b"authorization", b"x-api-key", b"api-key", b"host", b"x-contextpilot-key"])
def test_what_says_who_asks_may_stand_once(name):
    value = HOST[1] if name == b"host" else b"a"
    with pytest.raises(Unusable, match=f"two {name.decode()} headers"):
        tenants().of([(name, value), (name, value)])


@pytest.mark.parametrize("host", [b"evil.example", b"evil.example:8766", None])
def test_a_web_page_cannot_ask_a_proxy_on_loopback(host, tmp_path):
    headers = [] if host is None else [(b"host", host)]
    with pytest.raises(Misdirected):
        tenants().of(headers)
    assert tenants(check_host=False).of(headers)[0] == ""
    assert tenants(host="0.0.0.0", open=True).of(headers)[0] == ""


@pytest.mark.parametrize("origin", [b"https://evil.example", b"http://localhost.evil.example", b"null", b"", b"x"])
def test_a_page_of_another_site_cannot_ask_a_proxy_on_loopback(origin, tmp_path):
    headers = [HOST, (b"origin", origin), (b"authorization", b"Bearer sk-a")]
    with pytest.raises(Foreign) as raised:
        tenants().of(headers)
    assert raised.value.status == 403
    with pytest.raises(Foreign):
        tenants().operator(headers)
    assert tenants(check_host=False).of(headers)[1] == headers
    assert tenants(host="0.0.0.0", open=True).of(headers)[1] == headers


@pytest.mark.parametrize(
    "origin", [b"http://localhost:3000", b"https://127.0.0.1", b"http://[::1]:8080", b"tauri://localhost", b"app://x"]
)
def test_pages_of_this_machine_and_applications_can_ask(origin):
    headers = [HOST, (b"origin", origin)]
    assert tenants().of(headers) == ("", headers)


def test_a_password_that_a_browser_keeps_is_of_no_use_to_pages_of_other_sites(keyed):
    asked, key, _ = keyed
    basic = (b"authorization", b"Basic " + base64.b64encode(b"acme:" + key))
    for origin in (b"https://evil.example", b"null", b"http://localhost:3000"):
        with pytest.raises(Foreign):
            asked.of([HOST, basic, (b"origin", origin)])
        assert asked.of([HOST, (b"x-contextpilot-key", key), (b"origin", origin)])[0] == "acme"
    assert asked.of([HOST, basic, (b"origin", b"http://127.0.0.1:8766")])[0] == "acme"
    assert asked.of([HOST, basic])[0] == "acme"


def test_a_tenants_name_is_no_longer_than_a_name():
    asked = tenants(tenant_by="header", tenant_header="x-tenant")
    assert asked.of([HOST, (b"x-tenant", b"a" * 256)])[0] == "a" * 256
    with pytest.raises(Unusable, match="256 characters"):
        asked.of([HOST, (b"x-tenant", b"a" * 257)])


def test_a_tenants_requests_get_its_salt():
    assert salted({"model": "m"}, "s", "refuse", "") == [Edit(("cache_salt",), "s")]
    assert salted({"cache_salt": None}, "s", "refuse", "") == [Edit(("cache_salt",), "s")]
    assert salted({}, None, "refuse", "") == []


@pytest.mark.parametrize("cloud", ["openai", "anthropic"])
def test_a_cloud_gets_no_salt(cloud):
    assert salted({}, "s", "refuse", cloud) == []
    assert salted({"cache_salt": "own"}, "s", "refuse", cloud) == []


def test_a_clients_own_salt_is_refused_kept_or_replaced():
    body = {"cache_salt": "own", "extra_key": "x"}
    with pytest.raises(Unusable) as raised:
        salted(body, "s", "refuse", "")
    assert raised.value.param == "cache_salt"
    assert salted(body, "s", "keep", "") == []
    assert salted(body, "s", "replace", "") == [Edit(("cache_salt",), "s")]
    assert salted(body, None, "refuse", "") == []
