"""The file of keys: what is taken, what is refused and how it is said, and how it is changed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading

import pytest

from contextpilot_rag.errors import SettingsError
from contextpilot_rag.service import keyfile
from contextpilot_rag.service.keyfile import KEY, KeyEntry, TenantEntry, changing, decode, new_key, read, sha256_of

HASH = "0" * 64


def tenant(**given):
    return {"tenants": {"acme": {"keys": [{"id": "k1", "sha256": HASH}], **given}}}


def put(path, content):
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    path.chmod(0o600)
    return path


def test_a_whole_file(tmp_path):
    content = {
        "tenants": {
            "acme": {
                "keys": [
                    {"id": "k1", "sha256": HASH, "created": "2026-11-30T07:00:00Z", "note": "the first"},
                    {"id": "k2", "sha256": "1" * 64},
                ],
                "operator": True,
                "rate": None,
            },
            "globex": {"rate": 2.5},
        },
        "shared_corpora": {"handbook": ["acme", "globex"]},
    }
    found, status = read(put(tmp_path / "keys.json", content))
    assert status.st_size > 0
    assert found.ids() == {"k1", "k2"}
    assert found.tenants["acme"].operator
    assert found.tenants["acme"].keys[0].created.year == 2026
    assert found.tenants["globex"] == TenantEntry(rate=2.5)
    assert found.shared_corpora == {"handbook": ["acme", "globex"]}


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "no file of keys"),
        ("{", "no file of keys"),
        ("[]", "Expected `object`"),
        ("null", "Expected `object`"),
        (b"\xff".decode("latin-1"), "no file of keys"),
        ("[" * 100_000, "no file of keys"),
        ('{"tenants": {"acme": {"rate": NaN}}}', "NaN is no number"),
        ('{"tenants": {}, "tenants": {}}', "'tenants' stands twice"),
        ('{"tenants": {"acme": {}, "acme": {}}}', "'acme' stands twice"),
        ({"tenant": {}}, "unknown field `tenant`"),
        (tenant(admin=True), "tenant 'acme': Object contains unknown field `admin`"),
        (tenant(rate=-1), "tenant 'acme'"),
        (tenant(rate="fast"), "tenant 'acme'"),
        (tenant(operator=1), "tenant 'acme'"),
        ({"tenants": {"": {}}}, "tenant ''"),
        ({"tenants": {"a\nb": {}}}, "a name without control characters"),
        ({"tenants": {"a" * 257: {}}}, "tenant"),
        ({"tenants": {"acme": {"keys": [{"id": "k_1", "sha256": HASH}]}}}, "keys[0].id"),
        (
            {"tenants": {"acme": {"keys": [{"id": "k1\n", "sha256": HASH}]}}},
            "Expected 1 to 32 letters or digits - at `$[...].keys[0].id`",
        ),
        (
            {"tenants": {"acme": {"keys": [{"id": "k1", "sha256": HASH[1:]}]}}},
            "Expected 64 lower-case hexadecimal digits",
        ),
        ({"tenants": {"acme": {"keys": [{"id": "k1", "sha256": HASH + "\n"}]}}}, "keys[0].sha256"),
        ({"tenants": {"acme": {"keys": [{"id": "k1"}]}}}, "`sha256`"),
        ({"tenants": {"acme": {"keys": [{"id": "k1", "sha256": HASH, "created": "today"}]}}}, "keys[0].created"),
        (
            {
                "tenants": {
                    "acme": {"keys": [{"id": "k1", "sha256": HASH}]},
                    "b": {"keys": [{"id": "k1", "sha256": HASH}]},
                }
            },
            "two keys have the id k1 (of 'acme' and 'b')",
        ),
        ({"tenants": {"acme": {}}, "shared_corpora": {"handbook": ["acme", "acmee"]}}, "'acmee' is no tenant"),
        ({"tenants": {"acme": {}}, "shared_corpora": {"handbook": []}}, "shared_corpora"),
        ({"tenants": {"acme": {}}, "shared_corpora": {"": ["acme"]}}, "shared_corpora"),
    ],
)
def test_what_is_no_file_of_keys_is_refused_and_said_where(tmp_path, content, said):
    path = put(tmp_path / "keys.json", content)
    with pytest.raises(SettingsError) as caught:
        read(path)
    assert said in str(caught.value)
    assert str(path) in str(caught.value)


def test_what_cannot_be_read_is_refused(tmp_path, monkeypatch):
    with pytest.raises(SettingsError, match="No such file"):
        read(tmp_path / "none.json")
    with pytest.raises(SettingsError, match="cannot be read"):
        read(tmp_path)
    with pytest.raises(SettingsError, match="no regular file"):
        read(type(tmp_path)("/dev/null"))
    monkeypatch.setattr(keyfile, "_MOST_BYTES", 20)
    with pytest.raises(SettingsError, match="more than 20 bytes"):
        read(put(tmp_path / "keys.json", tenant()))


@pytest.mark.parametrize("mode", [0o620, 0o602, 0o622])
def test_a_file_that_others_may_write_to_is_refused(tmp_path, mode):
    path = put(tmp_path / "keys.json", tenant())
    path.chmod(mode)
    with pytest.raises(SettingsError, match="chmod go-w"):
        read(path)


@pytest.mark.parametrize(("mode", "warned"), [(0o600, False), (0o640, False), (0o644, True), (0o400, False)])
def test_a_file_that_everybody_may_read_is_warned_about(tmp_path, caplog, mode, warned):
    path = put(tmp_path / "keys.json", tenant())
    path.chmod(mode)
    read(path)
    assert ("everybody may read" in caplog.text) == warned


def test_keys_are_long_random_and_not_in_the_file():
    keys = [new_key("n") for _ in range(50)]
    assert len({key for key, _ in keys}) == len({entry.id for _, entry in keys}) == 50
    for key, entry in keys:
        form = KEY.fullmatch(key)
        assert form is not None
        assert form[1] == entry.id
        assert entry.sha256 == sha256_of(key).hex()
        assert key.split("_", 2)[2] not in repr(entry)


def test_the_hash_is_pinned():
    """Files written by one version are read by the next."""
    assert sha256_of("cpk_k1_" + "A" * 43).hex() == "8ba2075ce3ef03f83bf37d3d259f41369a6ba28c51bffe3d8c62e6d7d0c741fc"


def test_changes_are_written_as_a_whole_for_the_owner_alone(tmp_path):
    path = tmp_path / "keys.json"
    with changing(path, create=True) as content:
        content.tenants["acme"] = TenantEntry([KeyEntry("k1", HASH)])
    assert path.stat().st_mode & 0o777 == 0o600
    first = path.stat().st_ino
    with changing(path) as content:
        content.tenants["acme"].keys.append(KeyEntry("k2", HASH))
    assert path.stat().st_ino != first
    assert read(path)[0].ids() == {"k1", "k2"}
    assert [entry.name for entry in tmp_path.iterdir()] == ["keys.json"]


def test_a_group_that_could_read_it_still_can(tmp_path):
    path = put(tmp_path / "keys.json", tenant())
    path.chmod(0o640)
    with changing(path) as content:
        content.tenants["acme"].rate = 1.0
    assert path.stat().st_mode & 0o777 == 0o640


def test_what_stands_behind_a_link_is_changed(tmp_path):
    path = put(tmp_path / "keys.json", tenant())
    link = tmp_path / "link.json"
    link.symlink_to(path)
    with changing(link) as content:
        content.tenants["acme"].rate = 1.0
    assert link.is_symlink()
    assert read(path)[0].tenants["acme"].rate == 1.0


def test_nothing_is_changed_if_the_change_fails_or_would_not_be_of_the_form(tmp_path):
    path = put(tmp_path / "keys.json", tenant())
    before = path.read_bytes()
    with pytest.raises(RuntimeError), changing(path) as content:  # noqa: PT012
        content.tenants.clear()
        raise RuntimeError
    for name, said in (("", "changed like this"), ("a\nb", "changed like this"), ("\udc80", "no valid text")):
        with pytest.raises(SettingsError, match=said), changing(path) as content:
            content.tenants[name] = TenantEntry()
    with pytest.raises(SettingsError, match="no such file of keys"), changing(tmp_path / "none.json"):
        pass
    with pytest.raises(SettingsError, match="cannot be written"), changing(tmp_path / "no" / "keys.json", create=True):
        pass
    assert path.read_bytes() == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["keys.json"]


def test_a_file_that_is_broken_is_not_replaced(tmp_path):
    path = put(tmp_path / "keys.json", "{")
    with pytest.raises(SettingsError), changing(path, create=True) as content:
        content.tenants["acme"] = TenantEntry()
    assert path.read_text() == "{"


def test_many_change_it_at_once_and_nothing_is_lost(tmp_path):
    path = put(tmp_path / "keys.json", {"tenants": {}})
    failures = []

    def add(name):
        try:
            for turn in range(5):
                with changing(path) as content:
                    content.tenants[f"{name}-{turn}"] = TenantEntry()
        except Exception as error:  # noqa: BLE001
            failures.append(error)

    threads = [threading.Thread(target=add, args=(str(n),)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not failures
    assert len(read(path)[0].tenants) == 20


def test_two_processes_that_make_the_file_do_not_lose_each_others_keys(tmp_path):
    """One of them may be told that the other was first; whoever was told nothing has a key that counts."""
    path = tmp_path / "keys.json"
    command = [sys.executable, "-m", "contextpilot_rag", "keys", "add", "--file", str(path), "--tenant"]
    running = [subprocess.Popen([*command, name], stdout=subprocess.PIPE, stderr=subprocess.PIPE) for name in "abcd"]
    ends = [process.communicate(timeout=60) for process in running]
    made = [out.decode().strip() for process, (out, _) in zip(running, ends, strict=True) if process.returncode == 0]
    assert made
    assert {KEY.fullmatch(key)[1] for key in made} == read(path)[0].ids()
    assert [entry.name for entry in tmp_path.iterdir()] == ["keys.json"]


def test_decoding_shows_no_hash():
    with pytest.raises(SettingsError) as caught:
        decode(json.dumps(tenant(rate=[]) | {"x": HASH}).encode(), "here")
    assert HASH not in str(caught.value)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes with names here")
def test_a_pipe_is_refused_without_waiting_for_a_writer(tmp_path):
    path = tmp_path / "keys.json"
    os.mkfifo(path)
    with pytest.raises(SettingsError, match="no regular file"):
        read(path)
