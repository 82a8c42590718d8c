"""A file of keys that changes under a running service."""

from __future__ import annotations

import json
import logging
import os
from pathlib import Path

import pytest

from contextpilot_rag.errors import SettingsError
from contextpilot_rag.remote.wire import AlignIn, BlockIn, NamespaceIn
from contextpilot_rag.service import gate
from contextpilot_rag.service.auth import OpenGate
from contextpilot_rag.service.core import Service
from contextpilot_rag.service.gate import FileGate, KeyWatch, enforce, gate_from, is_mounted
from contextpilot_rag.service.keyfile import TenantEntry, changing, new_key
from contextpilot_rag.service.problems import Unauthorized
from contextpilot_rag.service.settings import ServiceSettings
from tests.until import is_so


@pytest.fixture
def path(tmp_path):
    return tmp_path / "keys.json"


def add(path, tenant):
    key, entry = new_key()
    with changing(path, create=True) as content:
        content.tenants.setdefault(tenant, TenantEntry()).keys.append(entry)
    return f"Bearer {key}"


def remove(path, tenant):
    with changing(path) as content:
        del content.tenants[tenant]


def known(gate, header):
    try:
        return gate.identify(header).tenant
    except Unauthorized:
        return None


def ask(service, tenant, corpus=""):
    request = AlignIn([BlockIn(id="a", tokens=10)], NamespaceIn(corpus=corpus))
    return service.tenant(tenant).align(request)


def test_a_file_that_cannot_be_used_keeps_the_service_from_starting(path):
    with pytest.raises(SettingsError):
        FileGate(path)
    path.write_text("{")
    with pytest.raises(SettingsError):
        FileGate(path)


@pytest.mark.parametrize(
    ("given", "warned"),
    [
        ({}, False),
        ({"host": "::1"}, False),
        ({"host": "0.0.0.0"}, True),
        ({"host": "0.0.0.0", "tls_certificate": "cert.pem", "tls_key": "key.pem"}, False),
    ],
)
def test_keys_that_can_be_read_on_their_way_are_warned_about(path, caplog, given, warned):
    add(path, "acme")
    gate_from(ServiceSettings(keys=path, **given))
    assert ("unless something in front speaks TLS" in caplog.text) == warned


def test_keys_are_rotated_without_a_moment_when_none_counts(path):
    old = add(path, "acme")
    gate = FileGate(path)
    new = add(path, "acme")
    assert (known(gate, old), known(gate, new)) == ("acme", None)
    assert gate.reload()
    assert (known(gate, old), known(gate, new)) == ("acme", "acme")
    with changing(path) as content:
        del content.tenants["acme"].keys[0]
    assert gate.reload()
    assert (known(gate, old), known(gate, new)) == (None, "acme")


def test_what_did_not_change_is_not_read_again_unless_asked(path, caplog):
    add(path, "acme")
    gate = FileGate(path)
    with caplog.at_level(logging.INFO, "contextpilot_rag.audit"):
        assert not gate.reload()
        assert caplog.records == []
        assert gate.reload(force=True)
        assert len(caplog.records) == 1


def test_a_change_of_the_same_size_within_the_same_tick_is_seen(path):
    """Even where the new file has the old one's inode again."""
    first = add(path, "acme")
    gate = FileGate(path)
    status = path.stat()
    remove(path, "acme")
    second = add(path, "acme")
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert path.stat().st_size == status.st_size
    assert gate.reload()
    assert (known(gate, first), known(gate, second)) == (None, "acme")


@pytest.mark.parametrize("broken", ["{", '{"tenants": {"acme": {"admin": true}}}', None, "writable"])
def test_a_broken_file_leaves_the_one_before_in_force_and_is_logged_once(path, caplog, broken):
    header = add(path, "acme")
    whole = path.read_bytes()
    gate = FileGate(path)
    if broken is None:
        path.unlink()
    elif broken == "writable":
        path.chmod(0o666)
    else:
        path.write_text(broken)
    with caplog.at_level(logging.INFO):
        assert [gate.reload() for _ in range(3)] == [False] * 3
    errors = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert len(errors) == 1
    assert "stay in force" in errors[0].getMessage()
    assert known(gate, header) == "acme"
    path.write_bytes(whole.replace(b"acme", b"evil"))
    path.chmod(0o600)
    assert gate.reload()
    assert known(gate, header) == "evil"


def test_a_reload_is_audited_by_ids(path, caplog):
    old = add(path, "acme")
    gate = FileGate(path)
    remove(path, "acme")
    new = add(path, "globex")
    with caplog.at_level(logging.INFO, "contextpilot_rag.audit"):
        gate.reload()
    (record,) = caplog.records
    fields = record.audit
    assert fields["act"] == "keys reloaded"
    assert fields["keys_added"] == [new.split("_")[1]]
    assert fields["keys_removed"] == [old.split("_")[1]]
    assert fields["tenants_removed"] == ["acme"]
    assert old.split("_", 2)[2] not in caplog.text


def test_what_a_tenant_had_goes_with_it(path):
    add(path, "acme"), add(path, "globex")
    gate, service = FileGate(path), Service(ServiceSettings(), "secret")
    ask(service, "acme"), ask(service, "globex")
    enforce(gate, service)
    assert set(service.tenants) == {"acme", "globex"}
    remove(path, "acme")
    gate.reload()
    enforce(gate, service)
    assert set(service.tenants) == {"globex"}
    assert set(service.pools()) == {("tenant", "globex")}
    assert ask(service, "acme").predicted_cached_tokens == 0  # whoever has the name later finds nothing of before
    assert ask(service, "globex").predicted_cached_tokens == 10


def test_without_keys_nothing_is_dropped():
    service = Service(ServiceSettings(), "secret")
    ask(service, "")
    enforce(OpenGate(), service)
    assert ask(service, "").predicted_cached_tokens == 10


async def test_the_service_looks_by_itself(path):
    add(path, "acme")
    gate, service = FileGate(path), Service(ServiceSettings(), "secret")
    watch = KeyWatch(gate, service, seconds=0.02)
    await watch.start()
    try:
        header = add(path, "globex")
        await is_so(lambda: known(gate, header) == "globex")
        ask(service, "globex", "handbook")
        assert ("corpus", "handbook") not in service.pools()
        with changing(path) as content:
            content.shared_corpora["handbook"] = ["acme", "globex"]
        await is_so(lambda: service.sharing.get("handbook") == {"acme", "globex"})
        ask(service, "globex", "handbook")
        assert ("corpus", "handbook") in service.pools()
        with changing(path) as content:
            del content.shared_corpora["handbook"], content.tenants["globex"]
        await is_so(lambda: not service.sharing and "globex" not in service.tenants)
        assert known(gate, header) is None
        assert ("corpus", "handbook") not in service.pools()
    finally:
        await watch.stop()


async def test_a_hangup_reads_the_file_though_it_looks_as_before(path, caplog):
    add(path, "acme")
    watch = KeyWatch(FileGate(path), Service(ServiceSettings(), "secret"), seconds=3600)
    with caplog.at_level(logging.INFO, "contextpilot_rag.audit"):
        await watch.start()
        try:
            watch.reload()
            await is_so(lambda: "keys reloaded" in caplog.text)
        finally:
            await watch.stop()


async def test_what_comes_back_of_tenants_that_are_no_more_goes_at_the_start(path):
    add(path, "acme")
    service = Service(ServiceSettings(), "secret")
    ask(service, "gone")
    service.pool("corpus", "handbook")
    watch = KeyWatch(FileGate(path), service)
    await watch.start()
    await watch.stop()
    assert (service.tenants, service.pools()) == ({}, {})


async def test_a_look_that_fails_is_not_the_last(path, caplog, monkeypatch):
    header = add(path, "acme")
    gate = FileGate(path)
    failing = iter([OSError("disk")])
    reload = gate.reload

    def fail_once(*, force=False):
        for error in failing:
            raise error
        return reload(force=force)

    monkeypatch.setattr(gate, "reload", fail_once)
    watch = KeyWatch(gate, Service(ServiceSettings(), "secret"), seconds=0.01)
    await watch.start()
    try:
        path.write_text(json.dumps({"tenants": {}}))
        await is_so(lambda: known(gate, header) is None)
    finally:
        await watch.stop()
    assert "tried again" in caplog.text


def test_a_file_that_is_mounted_by_itself_is_warned_about(path, monkeypatch, caplog, tmp_path):
    add(path, "acme")
    gate_from(ServiceSettings(keys=path))
    assert caplog.text == ""
    mounts = tmp_path / "mountinfo"
    mounts.write_text(f"36 35 98:0 / / rw - ext3 x rw\n37 36 98:0 /k.json {path} ro,relatime - ext3 /dev/root rw\n")
    monkeypatch.setattr(gate, "_MOUNTS", mounts)
    gate_from(ServiceSettings(keys=path))
    assert f"{path} is mounted as a file" in caplog.text
    assert "mount its folder" in caplog.text


def test_what_is_mounted_by_itself_is_known(tmp_path, monkeypatch):
    spaced = tmp_path / "a b.json"
    spaced.touch()
    assert not is_mounted(spaced)
    escaped = str(spaced).replace(" ", "\\040")
    mounts = tmp_path / "mountinfo"
    mounts.write_text(f"37 36 98:0 / {escaped} rw - ext3 x rw\n")
    monkeypatch.setattr(gate, "_MOUNTS", mounts)
    assert is_mounted(spaced)
    (tmp_path / "link").symlink_to(spaced)
    assert is_mounted(tmp_path / "link")
    assert not is_mounted(tmp_path)
    monkeypatch.setattr(gate, "_MOUNTS", tmp_path / "none")
    assert is_mounted(Path("/"))
    assert not is_mounted(spaced)
