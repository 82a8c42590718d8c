"""Keys, rates, isolation and the audit log, over HTTP."""

from __future__ import annotations

import base64
import logging
import os
import signal
import socket
import sys

import pytest

from contextpilot_rag.service.keyfile import TenantEntry, changing, new_key
from tests.until import until

from .harness import process, serving

_BLOCKS = [{"id": "a", "tokens": 100}, {"id": "b", "tokens": 100}]
A = {"blocks": _BLOCKS, "namespace": {"corpus": "c"}}
B = {**A, "blocks": _BLOCKS[::-1]}
OPERATIONS = [
    ("POST", "/v1/align", A),
    ("POST", "/v1/align/batch", {"requests": [A]}),
    ("POST", "/v1/predict", A),
    ("POST", "/v1/sent", {**A, "order": [0, 1]}),
    ("POST", "/v1/observe", {"ticket": "x" * 20}),
    ("POST", "/v1/plan", {"requests": [A]}),
    ("GET", "/v1/plan", None),
    ("GET", "/v1/namespaces", None),
    ("DELETE", "/v1/namespaces", None),
    ("GET", "/v1/stats", None),
    ("GET", "/v1/engines", None),
    ("GET", "/metrics", None),
    ("GET", "/", None),
]


def add(path, tenant, **more):
    key, entry = new_key()
    with changing(path, create=True) as content:
        kept = content.tenants.setdefault(tenant, TenantEntry(**more))
        kept.keys.append(entry)
    return key


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return tmp_path_factory.mktemp("keys") / "keys.json"


@pytest.fixture(scope="module")
def keys(path):
    made = {name: add(path, name) for name in ("acme", "globex")}
    made["root"] = add(path, "root", operator=True)
    made["slow"] = add(path, "slow", rate=0.01)
    with changing(path) as content:
        content.shared_corpora["handbook"] = ["acme", "globex"]
    return made


@pytest.fixture(scope="module")
def running(path, keys):
    with serving(keys=path, burst=3) as served:
        yield served


@pytest.mark.parametrize(("method", "where", "body"), OPERATIONS)
@pytest.mark.parametrize(
    "header", [None, "", "Bearer", "Bearer cpk_x_" + "A" * 43, "Basic ====", "Bearer " + "x" * 5000]
)
def test_nothing_is_answered_without_a_key(running, method, where, body, header):
    reply = running.ask(method, where, body, **({} if header is None else {"Authorization": header}))
    assert reply.status == 401
    assert reply.headers["content-type"] == "application/problem+json"
    assert "Bearer" in reply.headers["www-authenticate"]
    assert reply.json()["status"] == 401


@pytest.mark.parametrize("raw", [b"Bearer \xff\xfe", b"Bearer \xc3\xbc" * 10, b"Basic \xff==", b"\x80"])
def test_a_header_that_is_no_ascii_is_401(running, raw):
    with socket.create_connection(("127.0.0.1", running.port), 30) as connection:
        connection.sendall(
            b"GET /v1/stats HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAuthorization: " + raw + b"\r\n\r\n"
        )
        assert connection.recv(1_000).startswith(b"HTTP/1.1 401 ")


def test_health_needs_no_key(running):
    assert [running.ask("GET", where).status for where in ("/healthz", "/readyz")] == [200, 200]


def test_browsers_ask_for_the_key_as_a_password(running, keys):
    words = base64.b64encode(f"me:{keys['acme']}".encode()).decode()
    assert running.ask("GET", "/v1/stats", Authorization=f"Basic {words}").status == 200


def test_what_takes_an_operator_is_refused_to_others(running, keys):
    for where in ("/metrics", "/"):
        assert running.ask("GET", where, key=keys["root"]).status == 200
        assert running.ask("GET", where, key=keys["acme"]).status == 403


def test_the_same_tenant_matches_and_another_does_not(running, keys):
    acme, globex = keys["acme"], keys["globex"]
    first = running.ask("POST", "/v1/align", A, acme).json()
    assert running.ask("POST", "/v1/align", B, globex).json()["order"] == [0, 1]
    second = running.ask("POST", "/v1/align", B, acme).json()
    assert second["order"] == [1, 0]
    assert running.ask("POST", "/v1/predict", A, globex).json()["predicted_cached_tokens"] == 100 * 2
    for key, status in ((globex, 404), (acme, 200)):
        assert running.ask("POST", "/v1/observe", {"ticket": first["ticket"]}, key).status == status
    assert running.ask("DELETE", "/v1/namespaces", key=globex).json()["forgotten"] >= 1
    assert running.ask("POST", "/v1/predict", A, acme).json()["predicted_cached_tokens"] == 200


def test_namespaces_and_plans_of_others_cannot_be_seen(running, keys):
    running.ask("POST", "/v1/align", {**A, "namespace": {"corpus": "acme-only"}}, keys["acme"])
    for name, status in (("acme", 200), ("globex", 404), ("root", 404)):
        assert running.ask("GET", "/v1/namespaces/::acme-only/tree", key=keys[name]).status == status
        found = running.ask("GET", "/v1/namespaces/::acme-only", key=keys[name]).json()
        assert (found.get("tree_blocks", 0) > 0) == (status == 200)
    job = running.ask("POST", "/v1/plan", {"requests": [A]}, keys["acme"]).json()["id"]
    seen = {name: running.ask("GET", "/v1/namespaces", key=keys[name]).body for name in ("acme", "globex")}
    assert (b"acme-only" in seen["acme"], b"acme-only" in seen["globex"]) == (True, False)
    for name, status in (("globex", 404), ("root", 404), ("acme", 200)):
        assert running.ask("GET", f"/v1/plan/{job}", key=keys[name]).status == status
        if status == 404:
            assert running.ask("GET", f"/v1/plan/{job}/result", key=keys[name]).status == status
            assert running.ask("DELETE", f"/v1/plan/{job}", key=keys[name]).status == status
    assert running.ask("GET", "/v1/plan", key=keys["globex"]).json()["jobs"] == []
    assert running.ask("DELETE", f"/v1/plan/{job}", key=keys["acme"]).status == 200


def test_a_tenant_with_all_the_plans_it_may_have_takes_none_from_another(path, keys):
    with serving(keys=path, tenant_plans=2) as served:
        batch = {"requests": [A]}
        asked = [served.ask("POST", "/v1/plan", batch, keys["acme"]).status for _ in range(3)]
        assert asked == [202, 202, 429]
        assert served.ask("POST", "/v1/plan", batch, keys["globex"]).status == 202


def test_a_shared_corpus_and_only_that(running, keys):
    shared = {**A, "namespace": {"corpus": "handbook"}}
    salts = {}
    for name, predicted in (("acme", 0), ("globex", 200), ("root", 0)):
        found = running.ask("POST", "/v1/align", shared, keys[name]).json()
        assert found["predicted_cached_tokens"] == predicted
        salts[name] = found["cache_salt"]
    assert salts["acme"] == salts["globex"] != salts["root"]
    assert running.ask("DELETE", "/v1/namespaces/::handbook", key=keys["acme"]).status == 403
    running.ask("DELETE", "/v1/namespaces", key=keys["acme"])
    assert running.ask("POST", "/v1/predict", shared, keys["globex"]).json()["predicted_cached_tokens"] == 200


def test_the_rate_is_the_tenants_and_refusals_say_when(running, keys):
    statuses = [running.ask("POST", "/v1/predict", A, keys["slow"]).status for _ in range(5)]
    assert statuses == [200, 200, 200, 429, 429]
    reply = running.ask("POST", "/v1/predict", A, keys["slow"])
    assert 1 <= int(reply.headers["retry-after"]) <= 101
    assert reply.json()["type"].endswith("too-many")
    assert running.ask("POST", "/v1/predict", A, keys["acme"]).status == 200


def test_a_batch_costs_what_it_holds(path, keys):
    slow = keys["slow"]
    with serving(keys=path, burst=3) as served:
        assert served.ask("POST", "/v1/align/batch", {"requests": [A] * 9}, slow).status == 200
        assert served.ask("POST", "/v1/predict", A, slow).status == 429
    with serving(keys=path, burst=3) as served:
        assert served.ask("POST", "/v1/align/batch", {"requests": [A] * 2}, slow).status == 200
        assert served.ask("POST", "/v1/predict", A, slow).status == 200
        assert served.ask("POST", "/v1/predict", A, slow).status == 429


def test_administrative_acts_are_audited_with_who_did_them(running, keys, caplog):
    caplog.set_level(logging.INFO, "contextpilot_rag.audit")
    acme, root = keys["acme"], keys["root"]
    for asked in (
        "/v1/namespaces/::c",
        "/v1/namespaces",
        "/v1/conversations/talk",
        "/v1/namespaces/::c/conversations/t",
    ):
        running.ask("DELETE", asked, key=acme)
    running.ask("DELETE", "/v1/namespaces/::handbook", key=acme)
    running.ask("GET", "/", key=acme)
    running.ask("GET", "/", key=root)
    found = [record.audit for record in caplog.records]
    assert {(one["tenant"], one["key"]) for one in found} == {("acme", acme.split("_")[1])}
    assert [(one["act"], one["result"]) for one in found] == [
        ("namespace forgotten", "done"),
        ("all namespaces forgotten", "done"),
        ("conversation forgotten", "done"),
        ("conversation forgotten", "done"),
        ("namespace forgotten", "refused"),
        ("operator's act", "refused"),
    ]


@pytest.mark.skipif(sys.platform == "win32", reason="no SIGHUP")
def test_a_running_service_takes_keys_and_loses_them(tmp_path):
    path = tmp_path / "keys.json"
    old = add(path, "acme")
    with process(tmp_path, "--keys", str(path), "--log-format", "json") as served:
        assert served.ask("POST", "/v1/align", A, old).status == 200
        new = add(path, "acme")
        with changing(path) as content:
            content.tenants["acme"].keys.pop(0)
        os.kill(served.popen.pid, signal.SIGHUP)
        until(lambda: served.ask("GET", "/v1/stats", key=new).status == 200)
        assert served.ask("GET", "/v1/stats", key=old).status == 401
        assert served.ask("POST", "/v1/align", B, new).json()["order"] == [1, 0]  # the tenant is the same
        assert served.stop() == 0
        log = served.log.read_text()
    for said in ("service started", "keys reloaded", "service stopped", new.split("_")[1], old.split("_")[1]):
        assert said in log
    for key in (old, new):
        assert key.split("_", 2)[2] not in log


def test_what_a_tenant_had_leaves_the_disk_with_it(tmp_path):
    path, state = tmp_path / "keys.json", tmp_path / "state"
    acme, globex = add(path, "acme"), add(path, "globex")
    snapshot = state / "snapshot"

    def holds():
        return {name for name in ("of-acme", "of-globex") if name.encode() in snapshot.read_bytes()}

    with serving(keys=path, state=state, snapshot_seconds=3600.0) as served:
        for key, name in ((acme, "of-acme"), (globex, "of-globex")):
            assert served.ask("POST", "/v1/align", {"blocks": [{"id": name, "tokens": 9}]}, key).status == 200
        served.ask("DELETE", "/v1/namespaces/::none", key=globex)  # has a snapshot written soon
        until(lambda: snapshot.exists() and holds() == {"of-acme", "of-globex"})
        with changing(path) as content:
            del content.tenants["acme"]
        served.server.reload()
        until(lambda: holds() == {"of-globex"})


def test_a_file_of_keys_that_is_broken_keeps_the_service_from_starting(tmp_path):
    path = tmp_path / "keys.json"
    path.write_text("{")
    path.chmod(0o600)
    with pytest.raises(AssertionError, match="no file of keys"), process(tmp_path, "--keys", str(path)):
        pass
