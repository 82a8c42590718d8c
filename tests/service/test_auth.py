"""From a header to a tenant: whatever is sent, it is a known caller or a 401."""

from __future__ import annotations

import base64
import hmac
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextpilot_rag.service import gate as gate_module
from contextpilot_rag.service.auth import Caller, OpenGate, shown_key
from contextpilot_rag.service.gate import FileGate, gate_from
from contextpilot_rag.service.keyfile import TenantEntry, changing, new_key
from contextpilot_rag.service.problems import Unauthorized
from contextpilot_rag.service.settings import ServiceSettings


def basic(password: str, name: str = "anybody") -> str:
    return "Basic " + base64.b64encode(f"{name}:{password}".encode()).decode()


@pytest.fixture(scope="module")
def keys(tmp_path_factory):
    """A file with two keys of acme, one of globex, one of the operator; the path and the keys."""
    path = tmp_path_factory.mktemp("keys") / "keys.json"
    made = {name: new_key() for name in ("acme", "acme2", "globex", "root")}
    with changing(path, create=True) as content:
        content.tenants["acme"] = TenantEntry([made["acme"][1], made["acme2"][1]], rate=3.0)
        content.tenants["globex"] = TenantEntry([made["globex"][1]])
        content.tenants["root"] = TenantEntry([made["root"][1]], operator=True)
        content.shared_corpora["handbook"] = ["acme", "globex"]
    return path, {name: key for name, (key, _) in made.items()}


@pytest.fixture(scope="module")
def gate(keys):
    return FileGate(keys[0])


def test_keys_are_their_tenants(gate, keys):
    _, key = keys
    assert gate.identify(f"Bearer {key['acme']}") == Caller("acme", False, 3.0, key["acme"].split("_")[1])
    assert gate.identify(f"Bearer {key['globex']}").tenant == "globex"
    assert gate.identify(f"Bearer {key['root']}").operator
    assert gate.sharing == {"handbook": frozenset({"acme", "globex"})}
    assert gate.tenants == {"acme", "globex", "root"}


def test_two_keys_of_a_tenant_count_at_once(gate, keys):
    _, key = keys
    one, two = gate.identify(f"Bearer {key['acme']}"), gate.identify(f"Bearer {key['acme2']}")
    assert one.tenant == two.tenant == "acme"
    assert one.key_id != two.key_id


@pytest.mark.parametrize("form", ["Bearer {}", "bearer {}", "BEARER   {} ", " Bearer {}", "Bearer \t{}"])
def test_ways_to_write_bearer(gate, keys, form):
    assert gate.identify(form.format(keys[1]["acme"])).tenant == "acme"


@pytest.mark.parametrize("name", ["", "acme", "globex", "a b", "ü"[:0]])
def test_browsers_send_the_key_as_a_password(gate, keys, name):
    assert gate.identify(basic(keys[1]["acme"], name)).tenant == "acme"


@pytest.mark.parametrize(
    "header",
    [
        None,
        "",
        " ",
        "Bearer",
        "Bearer ",
        "Basic",
        "Basic ",
        "Basic ====",
        "Basic ü",
        "Basic YQ",
        "Basic YTpi",
        "Basic " + base64.b64encode(b"\xff:\xff").decode(),
        "Basic " + "QUFB" * 300,
        "Digest {acme}",
        "{acme}",
        "Bearer{acme}",
        "Bearer {acme} {acme}",
        "Bearer {acme}x",
        "Bearer x{acme}",
        "Bearer {acme}\n",
        "Bearer {acme}\x00",
        "Bearer {acme},",
        'Bearer "{acme}"',
        "Bearer cpk_{globex_id}_{acme_secret}",
        "Bearer cpk_{acme_id}_" + "A" * 43,
        "Bearer cpk_unknown_" + "A" * 43,
        "Bearer cpk__" + "A" * 43,
        "Bearer cpk_{acme_id}_",
        "Bearer cpk_{acme_id}_" + "ü" * 43,
        "Bearer " + "\u0661" * 43,
        "Bearer " + "x" * 100_000,
        "Bearer \udc80",
    ],
)
def test_anything_else_is_nobody(gate, keys, header):
    if header is not None:
        _, acme_id, secret = keys[1]["acme"].split("_", 2)
        names = {
            "acme": keys[1]["acme"],
            "acme_id": acme_id,
            "acme_secret": secret,
            "globex_id": keys[1]["globex"].split("_")[1],
        }
        for name, value in names.items():
            header = header.replace(f"{{{name}}}", value)
    with pytest.raises(Unauthorized) as caught:
        gate.identify(header)
    assert caught.value.status == 401
    assert any("Bearer" in way for way in caught.value.headers["WWW-Authenticate"])
    assert keys[1]["acme"] not in str(caught.value)


@given(
    st.text() | st.text().map("Bearer {}".format) | st.binary().map(lambda b: f"Basic {base64.b64encode(b).decode()}")
)
def test_no_header_breaks_it(gate, header):
    with pytest.raises(Unauthorized):
        gate.identify(header)


@given(st.text())
def test_what_is_shown_comes_back(key):
    assert shown_key(f"Bearer {key}") in {key.strip(" \t"), None}


def test_a_key_that_is_one_character_off_is_nobodys(gate, keys):
    key = keys[1]["acme"]
    for place in range(len(key)):
        other = "B" if key[place] != "B" else "C"
        with pytest.raises(Unauthorized):
            gate.identify(f"Bearer {key[:place]}{other}{key[place + 1 :]}")


def test_known_and_unknown_ids_and_no_keys_cost_one_hash_and_one_comparison(gate, keys, monkeypatch):
    """Counted, not timed: which of the three it was cannot be told from the work."""
    done = []

    def compare(one, other):
        done.append(("compare", len(one), len(other)))
        return same(one, other)

    def digest(key):
        done.append(("hash",))
        return real(key)

    real, same = gate_module.sha256_of, hmac.compare_digest
    monkeypatch.setattr(gate_module.hmac, "compare_digest", compare)
    monkeypatch.setattr(gate_module, "sha256_of", digest)
    work = []
    for header in (f"Bearer {keys[1]['acme'][:-43]}{'A' * 43}", "Bearer cpk_nobody_" + "A" * 43, "Bearer x", None):
        done.clear()
        with pytest.raises(Unauthorized):
            gate.identify(header)
        work.append(list(done))
    assert work == [[("hash",), ("compare", 32, 32)]] * 4


def test_all_who_are_refused_are_told_the_same(gate, keys):
    told = set()
    for header in (None, "Bearer x", f"Bearer {keys[1]['acme'][:-1]}", "Bearer cpk_nobody_" + "A" * 43):
        with pytest.raises(Unauthorized) as caught:
            gate.identify(header)
        told.add(str(caught.value))
    assert len(told) == 1


def test_without_a_file_everybody_is_one_tenant(keys):
    gate = gate_from(ServiceSettings())
    assert isinstance(gate, OpenGate)
    assert gate.identify(None) == gate.identify("Bearer x") == Caller("", operator=True)
    assert (gate.tenants, dict(gate.sharing), gate.reload(force=True)) == (None, {}, False)
    assert isinstance(gate_from(ServiceSettings(keys=keys[0])), FileGate)


def test_neither_keys_nor_hashes_are_shown_by_repr(gate, keys):
    shown = repr(gate) + repr(gate.identify(f"Bearer {keys[1]['acme']}"))
    for tenant in json.loads(keys[0].read_text())["tenants"].values():
        for entry in tenant["keys"]:
            assert entry["sha256"] not in shown
    for key in keys[1].values():
        assert key.split("_", 2)[2] not in shown
