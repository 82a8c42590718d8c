"""``contextpilot-rag keys``: what it prints, what it changes, what it refuses."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from contextpilot_rag.cli import main
from contextpilot_rag.service.gate import FileGate
from contextpilot_rag.service.keyfile import KEY, read


@pytest.fixture
def keys(tmp_path, capsys):
    """Run the command on a file; returns its status, output and error stream."""

    def run(*arguments, file=tmp_path / "keys.json"):
        status = main(["keys", arguments[0], *([] if file is None else ["--file", str(file)]), *arguments[1:]])
        output = capsys.readouterr()
        return status, output.out.strip(), output.err.strip()

    run.path = tmp_path / "keys.json"
    return run


def test_a_key_is_printed_once_and_lets_in(keys):
    status, key, told = keys("add", "--tenant", "acme", "--note", "for the web server")
    assert status == 0
    form = KEY.fullmatch(key)
    assert form is not None
    assert FileGate(keys.path).identify(f"Bearer {key}").tenant == "acme"
    assert "key added" in told
    assert form[1] in told
    secret = key.removeprefix(f"cpk_{form[1]}_")
    assert secret not in told
    assert secret not in keys.path.read_text()
    _, listed, _ = keys("list")
    assert form[1] in listed
    assert "for the web server" in listed
    assert secret not in listed
    assert read(keys.path)[0].tenants["acme"].keys[0].sha256 not in listed


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no full device")
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_key_that_cannot_be_shown_is_none(keys, monkeypatch, unbuffered):
    monkeypatch.setenv("PYTHONUNBUFFERED", unbuffered)
    keys("add", "--tenant", "acme")
    before = keys.path.read_text()
    new = keys.path.with_name("new.json")
    for file in (keys.path, new):
        command = [sys.executable, "-m", "contextpilot_rag", "keys", "add", "--tenant", "t", "--file", str(file)]
        with Path("/dev/full").open("w", encoding="ascii") as full:
            ended = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, check=False, timeout=60)
        assert (ended.returncode, b"No space left" in ended.stderr, b"key added" in ended.stderr) == (1, True, False)
    assert keys.path.read_text() == before
    assert not new.exists()


def test_options_are_the_tenants(keys):
    keys("add", "--tenant", "acme", "--operator", "--rate", "5")
    _, key, _ = keys("add", "--tenant", "acme")
    caller = FileGate(keys.path).identify(f"Bearer {key}")
    assert (caller.operator, caller.rate) == (True, 5.0)
    _, key, _ = keys("add", "--tenant", "acme", "--no-operator", "--rate", "0")
    caller = FileGate(keys.path).identify(f"Bearer {key}")
    assert (caller.operator, caller.rate) == (False, 0.0)
    assert "no limit" in keys("list")[1]


def test_keys_are_rotated(keys):
    _, old, _ = keys("add", "--tenant", "acme")
    _, new, _ = keys("add", "--tenant", "acme")
    status, _, told = keys("remove", old.split("_")[1])
    assert status == 0
    assert "key removed" in told
    gate = FileGate(keys.path)
    assert gate.identify(f"Bearer {new}").tenant == "acme"
    assert read(keys.path)[0].ids() == {new.split("_")[1]}


def test_a_tenant_without_keys_stays_until_it_is_removed(keys):
    _, key, _ = keys("add", "--tenant", "acme")
    keys("add", "--tenant", "globex")
    keys("share", "handbook", "acme", "globex")
    keys("remove", key.split("_")[1])
    assert "acme: no keys" in keys("list")[1]
    status, _, told = keys("remove", "--tenant", "acme")
    assert status == 0
    assert "tenant removed" in told
    content, _ = read(keys.path)
    assert set(content.tenants) == {"globex"}
    assert content.shared_corpora == {"handbook": ["globex"]}


def test_corpora_are_shared_and_shared_no_longer(keys):
    for tenant in ("acme", "globex", "initech"):
        keys("add", "--tenant", tenant)
    status, said, told = keys("share", "handbook", "acme", "globex")
    assert status == 0
    assert said == "handbook is shared by acme, globex"
    assert "corpus shared" in told
    keys("share", "handbook", "initech", "acme")
    assert "corpus handbook: shared by acme, globex, initech" in keys("list")[1]
    assert keys("unshare", "handbook", "globex")[1] == "handbook is shared by acme, initech"
    assert keys("unshare", "handbook")[1] == "handbook is shared by nobody"
    assert read(keys.path)[0].shared_corpora == {}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("remove", "nokey"), "no key has the id 'nokey'"),
        (("remove", "--tenant", "nobody"), "there is no tenant 'nobody'"),
        (("share", "handbook", "acme", "nobody"), "there is no tenant 'nobody'"),
        (("share", "", "acme"), "shared_corpora"),
        (("unshare", "handbook"), "no corpus 'handbook' is shared"),
        (("add", "--tenant", ""), "tenant ''"),
        (("add", "--tenant", "a\nb"), "tenant"),
        (("add", "--tenant", "\udc80"), "no valid text"),
        (("add", "--tenant", "acme", "--rate", "-1"), "--rate"),
        (("add", "--tenant", "acme", "--rate", "nan"), "--rate"),
        (("add", "--tenant", "acme", "--rate", "inf"), "--rate"),
        (("add", "--tenant", "acme", "--rate", "1e300"), "tenant 'acme'"),
        (("add", "--tenant", "acme", "--note", "x" * 2_000), "tenant 'acme'"),
    ],
)
def test_what_cannot_be_is_an_error_and_changes_nothing(keys, arguments, said):
    keys("add", "--tenant", "acme")
    before = keys.path.read_bytes()
    status, out, told = keys(*arguments)
    assert (status, out) == (1, "")
    assert told.startswith("contextpilot-rag: ")
    assert said in told
    assert keys.path.read_bytes() == before


def test_who_does_not_share_cannot_stop(keys):
    keys("add", "--tenant", "acme"), keys("add", "--tenant", "globex")
    keys("share", "handbook", "acme")
    status, _, told = keys("unshare", "handbook", "globex")
    assert status == 1
    assert "does not share" in told


def test_only_add_makes_the_file(keys):
    for arguments in (("list",), ("remove", "x"), ("share", "c", "t"), ("unshare", "c")):
        status, _, told = keys(*arguments)
        assert status == 1
        assert str(keys.path) in told
        assert not keys.path.exists()


def test_the_file_may_be_named_by_the_environment(keys, monkeypatch):
    status, _, told = keys("list", file=None)
    assert status == 1
    assert "--file" in told
    monkeypatch.setenv("CONTEXTPILOT_SERVE_KEYS", str(keys.path))
    assert keys("add", "--tenant", "acme", file=None)[0] == 0
    assert keys("list", file=None)[1].startswith("acme")


def test_what_was_done_is_logged_as_the_service_logs(keys, monkeypatch):
    _, _, told = keys("add", "--tenant", "acme")
    assert re.match(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3}Z INFO    contextpilot_rag.audit  key added: ", told)
    monkeypatch.setenv("CONTEXTPILOT_SERVE_LOG_FORMAT", "json")
    _, _, told = keys("add", "--tenant", "acme")
    assert json.loads(told)["audit"]["act"] == "key added"
    before = keys.path.read_bytes()
    monkeypatch.setenv("CONTEXTPILOT_SERVE_LOG_FORMAT", "xml")
    status, _, told = keys("add", "--tenant", "acme")
    assert (status, keys.path.read_bytes()) == (1, before)
    assert "'xml' is neither 'json' nor 'text'" in told


def test_notes_cannot_write_to_the_terminal(keys):
    keys("add", "--tenant", "acme", "--note", "\x1b[31mred\nline")
    listed = keys("list")[1]
    assert "\x1b" not in listed
    assert len(listed.splitlines()) == 2


@pytest.mark.parametrize("arguments", [[], ["keys"], ["keys", "remove"], ["keys", "remove", "x", "--tenant", "y"]])
def test_usage_errors(arguments, capsys):
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2
    assert "usage" in capsys.readouterr().err
