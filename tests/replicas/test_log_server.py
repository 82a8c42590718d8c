"""The log server of these tests, and that it breaks as they say it does."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import unittest
from pathlib import Path

import pytest
import redis

from tests import ports
from tests.replicas import binary, log_server
from tests.replicas.guarded import Guarded
from tests.replicas.log_server import LogServer, User
from tests.until import until

ROOT = Path(__file__).parents[2]


def runs(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def fill(client):
    for number in range(200):
        client.set(number, bytes(100_000))


def test_a_server_answers_at_its_address(log_server):
    assert log_server.url == f"redis://127.0.0.1:{log_server.port}/0"
    with redis.Redis.from_url(log_server.url) as client:
        assert client.ping()


@pytest.mark.parametrize("end", ["kill", "stop"])
def test_what_is_persistent_survives(tmp_path, end):
    with LogServer(tmp_path, persistent=True) as server:
        client, port = server.client(), server.port
        entry = client.xadd("log", {"a": "b"})
        getattr(server, end)()
        with pytest.raises(redis.ConnectionError):
            client.ping()
        server.start()
        assert server.port == port
        assert client.xrange("log") == [(entry, {b"a": b"b"})]


@pytest.mark.parametrize("end", ["kill", "stop"])
def test_what_is_not_persistent_starts_again_empty(log_server, end):
    client, port = log_server.client(), log_server.port
    client.xadd("log", {"a": "b"})
    getattr(log_server, end)()
    log_server.start()
    assert log_server.port == port
    assert client.xlen("log") == 0


def test_a_server_that_is_started_twice_runs_once(log_server):
    client = log_server.client()
    client.set("a", "b")
    log_server.start()
    assert client.get("a") == b"b"


def test_a_server_that_ended_by_itself_is_started_again(log_server):
    client = log_server.client()
    client.shutdown(nosave=True)
    until(lambda: not log_server.process.alive)
    log_server.start()
    assert client.ping()


def test_a_paused_server_does_not_answer_and_answers_again(log_server):
    client = log_server.client(socket_timeout=0.1)
    assert client.ping()
    log_server.pause()
    with pytest.raises(redis.TimeoutError):
        client.ping()
    log_server.resume()
    until(lambda: log_server.client().ping())


def test_a_paused_server_can_be_stopped(log_server):
    log_server.pause()
    log_server.stop()
    assert not log_server.process.alive


def test_a_full_server_refuses_writes_and_keeps_what_it_has(tmp_path):
    with LogServer(tmp_path, maxmemory="3mb") as server:
        client = server.client()
        client.set("first", "kept")
        with pytest.raises(redis.exceptions.OutOfMemoryError):
            fill(client)
        assert client.get("first") == b"kept"


def test_a_user_may_do_what_its_rules_say_and_no_more(tmp_path):
    user = User("replica", "pass:word@/", ("~cp:*", "&*", "+xadd", "+xrange"))
    with LogServer(tmp_path, users=[user]) as server:
        with redis.Redis.from_url(server.url_of(user)) as client:
            client.xadd("cp:log", {"a": "b"})
            assert len(client.xrange("cp:log")) == 1
            for forbidden in (lambda: client.xadd("other", {"a": "b"}), lambda: client.delete("cp:log")):
                with pytest.raises(redis.exceptions.NoPermissionError):
                    forbidden()
        with redis.Redis.from_url(server.url) as nobody, pytest.raises(redis.AuthenticationError):
            nobody.xrange("cp:log")
        assert server.client().keys() == [b"cp:log"]
        assert server.client(user).xrange("cp:log")


def test_a_port_that_is_taken_is_left_for_another(tmp_path, monkeypatch, log_server):
    offered = iter([log_server.port, log_server.port])
    monkeypatch.setattr("tests.replicas.log_server.free_port", lambda host: next(offered, None) or ports.free_port())
    log_server.client().set("whose", "first")
    with LogServer(tmp_path) as other:
        assert other.port != log_server.port
        assert other.client().get("whose") is None


def test_a_server_that_does_not_start_says_why(tmp_path):
    with pytest.raises(RuntimeError, match="no-such-option"):
        LogServer(tmp_path, args=["--no-such-option", "1"])


def test_nothing_outlives_whoever_started_it(tmp_path):
    code = f"""
import os, pathlib, threading
from tests.replicas.log_server import LogServer
made = []
thread = threading.Thread(target=lambda: made.append(LogServer(pathlib.Path({str(tmp_path)!r}))))
thread.start()
thread.join()
made[0].pause()
print(made[0].process.pid, flush=True)
threading.Event().wait(60)
"""
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, cwd=ROOT) as process:
        pid = int(process.stdout.readline())
        assert runs(pid)  # though the thread that started it has ended
        process.kill()
    until(lambda: not runs(pid))


def test_a_life_is_bounded(tmp_path):
    with Guarded(["sleep", "60"], tmp_path / "log", life=0.1) as process:
        assert process.wait() == 128 + signal.SIGKILL


def test_a_process_says_how_it_ended_and_what_it_said(tmp_path):
    with Guarded(["sh", "-c", "echo out; echo err >&2; exit 3"], tmp_path / "log") as process:
        assert process.wait() == 3
    assert (tmp_path / "log").read_text() == "out\nerr\n"
    with Guarded(["no-such-program"], tmp_path / "log") as process:
        assert process.wait() == 127
    with Guarded(["sleep", "60"], tmp_path / "log") as process:
        assert process.stop() == 128 + signal.SIGTERM


def test_without_a_server_tests_are_skipped(tmp_path, monkeypatch):
    monkeypatch.setattr(binary, "NAMED", None)
    monkeypatch.setattr(binary, "packaged", lambda: None)
    monkeypatch.setattr(binary.shutil, "which", lambda name: None)
    with pytest.raises(unittest.SkipTest, match="needs a Valkey or Redis server"):
        LogServer(tmp_path)
    monkeypatch.setattr(binary, "NAMED", "no-such-program")
    with pytest.raises(FileNotFoundError, match="CONTEXTPILOT_TEST_LOG_SERVER names 'no-such-program'"):
        log_server.log_server_binary()
