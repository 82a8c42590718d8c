from __future__ import annotations

import asyncio
import gc
import logging
import os
import random
import re
import stat
import time

import msgspec
import pytest

from contextpilot_rag import Namespace
from contextpilot_rag.errors import SettingsError
from contextpilot_rag.remote import wire
from contextpilot_rag.service import saved, snapshot, snapshot_file
from contextpilot_rag.service.auth import OpenGate
from contextpilot_rag.service.core import Service
from contextpilot_rag.service.settings import ServiceSettings
from contextpilot_rag.service.snapshot import Changes, Snapshots
from tests.until import is_so


class Gate(OpenGate):
    def __init__(self, tenants=None, sharing=None):
        self.tenants = tenants
        self.sharing = sharing or {}


def make(folder, gate=None, seconds=1_000.0, **limits):
    changes = Changes()
    service = Service(ServiceSettings(**limits), "the-secret", watchers=[changes])
    gate = gate or Gate()
    service.share(gate.sharing)
    return service, Snapshots(service, gate, changes, folder, seconds)


def request(ids, namespace=None, **more):
    blocks = [wire.BlockIn(id=name, tokens=100) for name in ids]
    return wire.AlignIn(blocks, namespace or wire.NamespaceIn(), **more)


def fill(service, requests=200, tenants=("",), seed=0):
    numbers = random.Random(seed)
    for number in range(requests):
        ids = numbers.sample([f"b{place}" for place in range(300)], 10)
        given = request(
            ids,
            wire.NamespaceIn(model=str(number % 3)),
            budget=wire.BudgetIn("throughput" if number % 2 else "balanced"),
            conversation=wire.TurnIn(f"c{number}") if number % 5 == 0 else None,
        )
        service.tenant(tenants[number % len(tenants)]).align(given)


def known(service):
    """All that outlives a process, as bytes to be compared."""
    return [msgspec.msgpack.encode(part) for part in saved.dump(service)]


async def restarted(folder, gate=None, **limits):
    service, snapshots = make(folder, gate, **limits)
    await snapshots.start()
    await snapshots.stop()
    return service


async def left(folder, **how):
    """A folder that a service has left behind."""
    service, snapshots = make(folder)
    await snapshots.start()
    fill(service, **how)
    await snapshots.stop()
    return service


async def test_what_was_known_is_known_again(tmp_path):
    before = await left(tmp_path)
    after = await restarted(tmp_path)
    assert known(after) == known(before)
    again = request(["b1", "b2"], wire.NamespaceIn(model="1"))
    assert after.tenant("").predict(again) == before.tenant("").predict(again)
    assert len(after.tenant("").ledgers) == 40
    assert len(after.tenant("").tickets) == 0
    assert not list(tmp_path.glob("*damaged*"))


async def test_a_start_says_what_it_begins_with(tmp_path, caplog):
    caplog.set_level(logging.INFO)
    await restarted(tmp_path / "new")
    assert "there is no snapshot in" in caplog.text
    before = await left(tmp_path)
    sizes = before.tenant("").stats()
    written = time.time() - 40
    os.utime(tmp_path / "snapshot", (written, written))
    await restarted(tmp_path)
    (told,) = [record for record in caplog.records if hasattr(record, "restored")]
    assert re.fullmatch(
        rf"restored {sizes.namespaces} namespaces, {sizes.tree_blocks} blocks and 40 conversations from a snapshot, "
        r"4\d s old",
        told.getMessage(),
    )


async def test_others_have_their_turn_while_it_is_written(tmp_path):
    service, snapshots = make(tmp_path)
    fill(service, 2_000)
    saving, turns, source = asyncio.create_task(snapshots.save()), 0, random.Random(1)
    while not saving.done():
        fill(service, 1, seed=source.random())
        turns += 1
        await asyncio.sleep(0)
    assert await saving
    assert turns > len(known(service)) / 2, "a turn for each part of it"
    after = await restarted(tmp_path)
    assert after.tenant("").stats().tree_blocks > 1_000


async def test_smaller_limits_are_respected(tmp_path):
    await left(tmp_path)
    after = await restarted(
        tmp_path, tenant_blocks=50, tenant_namespaces=2, tenant_conversations=3, history_requests=5, capacity_tokens=900
    )
    stats = after.tenant("").stats()
    assert 0 < stats.tree_blocks <= 50
    assert 0 < stats.tree_tokens <= 900 * stats.namespaces
    assert len(after.tenant("").ledgers) == 3


def flipped(raw, at):
    return raw[:at] + bytes([raw[at] ^ 1]) + raw[at + 1 :]


def other_version(raw):
    magic = len(snapshot_file._MAGIC)
    return raw[:magic] + (7).to_bytes(2, "big") + raw[magic + 2 :]


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda raw: b"", "does not begin"),
        (lambda raw: b"not a snapshot" * 100, "does not begin"),
        (lambda raw: raw[:30], "does not begin"),
        (lambda raw: raw[:-1], "bytes where there should be"),
        (lambda raw: raw[: len(raw) // 2], "bytes where there should be"),
        (lambda raw: raw + b"x", "bytes where there should be"),
        (lambda raw: flipped(raw, 3), "does not begin"),
        (lambda raw: flipped(raw, 40), "checksum"),
        (lambda raw: flipped(raw, 1_000), "checksum"),
        (lambda raw: flipped(raw, len(raw) - 1), "checksum"),
        (other_version, "of version 7"),
    ],
)
async def test_a_damaged_file_is_set_aside_and_the_service_starts_empty(tmp_path, caplog, damage, reason):
    await left(tmp_path)
    file = tmp_path / "snapshot"
    damaged = damage(file.read_bytes())
    file.write_bytes(damaged)
    caplog.clear()
    after = await restarted(tmp_path)
    assert known(after) == []
    assert (tmp_path / "snapshot.damaged-1").read_bytes() == damaged
    assert not file.exists()
    (line,) = [record for record in caplog.records if record.name == "contextpilot_rag.service"]
    assert line.levelno == logging.ERROR
    assert reason in line.message
    assert "snapshot.damaged-1" in line.message
    assert "starts empty" in line.message


async def write(folder, *messages):
    writer = snapshot_file.SnapshotWriter(folder / "snapshot")
    for message in messages:
        writer.write(snapshot_file.frame(message))
    writer.finish()


@pytest.mark.parametrize(
    "messages",
    [
        [b""],
        [b"\xc1"],
        [msgspec.msgpack.encode(["unheard of", 1])],
        [msgspec.msgpack.encode(["tree", [], [], [], [], []])],
        [msgspec.msgpack.encode(["pool", "tenant", "", []]), msgspec.msgpack.encode(["tree", [], [], [], [], []])],
        [msgspec.msgpack.encode(["pool", "house", "", []])],
    ],
)
async def test_a_whole_file_that_makes_no_sense_is_set_aside(tmp_path, messages):
    await write(tmp_path, *messages)
    assert known(await restarted(tmp_path)) == []
    assert (tmp_path / "snapshot.damaged-1").exists()


async def test_what_was_read_before_the_damage_does_not_stay(tmp_path):
    service, _ = make(tmp_path)
    fill(service)
    await write(tmp_path, *known(service), msgspec.msgpack.encode(["pool", "tenant", "x", []]), b"\x95")
    assert known(await restarted(tmp_path)) == []
    bad = msgspec.msgpack.encode(["tree", [1], [1], [0], [2], [0, 0]])
    head = msgspec.msgpack.encode(["namespace", "", "", "", ""])
    await write(tmp_path, *known(service), msgspec.msgpack.encode(["pool", "tenant", "x", []]), head, bad)
    after = await restarted(tmp_path)
    assert after.tenant("").stats().tree_blocks == 0
    assert len(after.tenant("").ledgers) == 0


async def test_few_damaged_files_are_kept(tmp_path):
    for number in range(6):
        (tmp_path / "snapshot").write_bytes(b"%d" % number)
        await restarted(tmp_path)
    kept = sorted(path.name for path in tmp_path.glob("snapshot.damaged-*"))
    assert kept == ["snapshot.damaged-4", "snapshot.damaged-5", "snapshot.damaged-6"]
    assert (tmp_path / "snapshot.damaged-6").read_bytes() == b"5"
    (tmp_path / "snapshot").mkdir()
    await restarted(tmp_path)
    assert (tmp_path / "snapshot.damaged-7").is_dir()


@pytest.mark.parametrize("step", ["fsync", "replace", "write"])
async def test_what_cannot_be_written_leaves_what_was_there(tmp_path, monkeypatch, caplog, step):
    before = known(await left(tmp_path))

    def full(*_):
        raise OSError(28, "No space left on device")

    service, snapshots = make(tmp_path)
    await snapshots.start()
    fill(service, 10, seed=5)
    with monkeypatch.context() as patched:
        if step == "write":
            patched.setattr(snapshot_file.SnapshotWriter, "write", full)
        else:
            patched.setattr(snapshot_file.os if step == "fsync" else type(tmp_path), step, full)
        assert not await snapshots.save()
    assert "no snapshot could be written" in caplog.text
    assert sorted(path.name for path in tmp_path.iterdir()) == ["lock", "snapshot"]
    os.close(snapshots._lock)  # as if it were killed now
    snapshots._lock = None
    snapshots._task.cancel()
    assert known(await restarted(tmp_path)) == before


async def test_a_write_that_failed_is_made_good(tmp_path, monkeypatch):
    service, snapshots = make(tmp_path)
    await snapshots.start()
    fill(service)
    with monkeypatch.context() as patched:
        patched.setattr(snapshot_file, "sync_folder", lambda _: (_ for _ in ()).throw(OSError(5, "broken")))
        assert not await snapshots.save()
    await snapshots.stop()
    assert known(await restarted(tmp_path)) == known(service)


async def test_what_a_killed_process_left_half_written_is_no_matter(tmp_path):
    before = known(await left(tmp_path))
    (tmp_path / "snapshot.new").write_bytes(b"half")
    service, snapshots = make(tmp_path)
    await snapshots.start()
    assert known(service) == before
    fill(service, 1)
    await snapshots.stop()
    assert not (tmp_path / "snapshot.new").exists()
    assert known(await restarted(tmp_path)) == known(service)


async def test_only_its_owner_may_read_it_and_it_holds_no_text_and_no_secret(tmp_path):
    folder = tmp_path / "state" / "deep"
    service, snapshots = make(folder)
    await snapshots.start()
    answer = service.tenant("t").align(wire.AlignIn([wire.BlockIn(text="a text of its own")], wire.NamespaceIn("x")))
    await snapshots.stop()
    raw = (folder / "snapshot").read_bytes()
    assert answer.cache_salt
    for hidden in ("text of its own", "the-secret", answer.cache_salt, answer.ticket):
        assert hidden.encode() not in raw
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    for file in folder.iterdir():
        assert stat.S_IMODE(file.stat().st_mode) == 0o600


async def test_a_folder_belongs_to_one_service(tmp_path):
    _, first = make(tmp_path)
    await first.start()
    _, second = make(tmp_path)
    with pytest.raises(SettingsError, match="another process uses it; each service has a folder of its own"):
        await second.start()
    await second.stop()
    await first.stop()
    await restarted(tmp_path)


async def test_a_folder_that_cannot_be_used_is_an_error(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    with pytest.raises(SettingsError, match=r"--state .*file"):
        await restarted(tmp_path / "file")
    with pytest.raises(SettingsError, match=r"--state .*file/below: Not a directory"):
        await restarted(tmp_path / "file" / "below")

    def refused(_):
        raise PermissionError(13, "Permission denied")

    await left(tmp_path)
    monkeypatch.setattr(snapshot_file, "read", refused)
    with pytest.raises(SettingsError, match=r"--state .*snapshot: Permission denied"):
        await restarted(tmp_path)
    assert (tmp_path / "snapshot").exists(), "what cannot be read now may be fine"
    monkeypatch.setattr(snapshot.os, "access", lambda *_: False)
    with pytest.raises(SettingsError, match="this process may not read and write there"):
        await restarted(tmp_path)


async def test_tenants_that_are_no_more_do_not_come_back(tmp_path):
    await left(tmp_path, tenants=("acme", "globex"))
    after = await restarted(tmp_path, Gate(frozenset({"acme", "new"})))
    assert set(after.tenants) == {"acme"}
    assert {name for _, name in after.pools()} == {"acme"}
    assert after.tenant("acme").stats().tree_blocks > 0
    assert len(after.tenant("acme").ledgers) > 0


WIKI = wire.NamespaceIn(corpus="wiki")


@pytest.mark.parametrize(
    ("members", "there"),
    [("ab", True), ("abc", True), ("bc", False), ("a", False), (None, False)],
)
async def test_a_shared_corpus_comes_back_unless_somebody_left(tmp_path, members, there):
    service, snapshots = make(tmp_path, Gate(sharing={"wiki": frozenset("ab")}))
    await snapshots.start()
    service.tenant("a").align(request("xy", WIKI))
    await snapshots.stop()
    after = await restarted(tmp_path, Gate(sharing={"wiki": frozenset(members)} if members else {}))
    assert after.tenant("b").predict(request("yx", WIKI)).predicted_cached_tokens == (200 if there else 0)


async def test_it_is_written_at_the_interval_and_only_if_something_changed(tmp_path):
    service, snapshots = make(tmp_path, seconds=0.02)
    file = tmp_path / "snapshot"
    await snapshots.start()
    await asyncio.sleep(0.1)
    assert not file.exists()
    fill(service)
    await is_so(file.exists)
    first = file.stat().st_ino, file.stat().st_mtime_ns
    await asyncio.sleep(0.1)
    assert (file.stat().st_ino, file.stat().st_mtime_ns) == first
    service.tenant("").align(request("xyz"))
    await is_so(lambda: b"xyz"[:1] + b"\xa1y" in file.read_bytes())
    await snapshots.stop()
    last = file.stat().st_ino
    await restarted(tmp_path)
    assert file.stat().st_ino == last


async def test_what_was_forgotten_leaves_the_disk_soon(tmp_path):
    service, snapshots = make(tmp_path, seconds=10_000)
    await snapshots.start()
    service.tenant("").align(request(["not-for-long"], wire.NamespaceIn("x")))
    service.tenant("").align(request(["in-a-talk"], conversation=wire.TurnIn("c")))
    await snapshots.save()
    file = tmp_path / "snapshot"
    assert b"not-for-long" in file.read_bytes()
    service.tenant("").forget(Namespace("x"))
    await is_so(lambda: b"not-for-long" not in file.read_bytes())
    service.tenant("").forget()
    service.tenant("").ledgers.forget()
    snapshots.soon()
    await is_so(lambda: b"in-a-talk" not in file.read_bytes())
    await snapshots.stop()


async def test_collections_go_on_as_they_were(tmp_path):
    await left(tmp_path)
    await restarted(tmp_path)
    assert gc.isenabled()
    gc.disable()
    try:
        await restarted(tmp_path)
        assert not gc.isenabled()
    finally:
        gc.enable()
