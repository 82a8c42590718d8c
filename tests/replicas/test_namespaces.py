"""Network namespaces, and real partitions between a process and the log server."""

from __future__ import annotations

import re
import subprocess
import sys
import time
import unittest
from pathlib import Path

import pytest

from tests.replicas import namespaces
from tests.replicas.log_server import LogServer
from tests.replicas.namespaces import Namespaced, ip, namespaces_permitted
from tests.until import until

ROOT = Path(__file__).parents[2]

# Counts at the server, for ever, in one connection.
ASKING = """
import socket, sys, time

sock = socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=20)
while True:
    time.sleep(0.02)
    sock.sendall(b"INCR a\\r\\n")
    sock.recv(100)
"""
CONNECTING = """
import socket, sys

try:
    socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=0.2).close()
    print("connected")
except OSError as error:
    print(type(error).__name__)
"""


@pytest.fixture
def apart():
    with Namespaced() as namespace:
        yield namespace


@pytest.fixture
def server(apart, tmp_path):
    with LogServer(tmp_path, hosts=("127.0.0.1", apart.host)) as server:
        yield server


def left(name):
    """Which parts of a namespace are there: itself, the bridge, the outer device."""
    process, number = name.removeprefix("cpr").split("n")
    return set(re.findall(rf"\bcpr{process}[nboi]{number}\b", ip("netns", "list") + ip("-o", "link")))


def test_what_runs_apart_passes_nothing_while_the_link_is_down(apart, server, tmp_path):
    client, address = server.client(), [apart.host, str(server.port)]
    client.set("a", 0)
    process = apart.start([sys.executable, "-c", ASKING, *address], tmp_path / "log")
    until(lambda: int(client.get("a")) > 2)
    apart.down()
    assert apart.run([sys.executable, "-c", CONNECTING, *address]).stdout == "TimeoutError\n"  # silence, and no refusal
    before = client.get("a")
    time.sleep(0.1)
    assert client.get("a") == before
    assert process.alive
    apart.up()
    until(lambda: client.get("a") > before)  # in the same connection
    assert apart.run([sys.executable, "-c", CONNECTING, *address]).stdout == "connected\n"


def test_a_server_apart_is_reached_and_silent_while_the_link_is_down(apart, tmp_path):
    code = "import http.server as h; h.HTTPServer(('', 8000), h.BaseHTTPRequestHandler).serve_forever()"
    apart.start([sys.executable, "-c", code], tmp_path / "log")

    def outcome():
        command = [sys.executable, "-c", CONNECTING, apart.address, "8000"]
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()

    until(lambda: outcome() == "connected")
    apart.down()
    assert outcome() == "TimeoutError"
    apart.up()
    until(lambda: outcome() == "connected")


def test_each_has_a_network_of_its_own(apart, tmp_path):
    with Namespaced() as other, LogServer(tmp_path, hosts=("127.0.0.1", apart.host, other.host)) as server:
        for one in (apart, other):
            command = [sys.executable, "-c", CONNECTING, one.host, str(server.port)]
            assert one.run(command).stdout == "connected\n"
        apart.down()
        assert other.run([sys.executable, "-c", CONNECTING, other.host, str(server.port)]).stdout == "connected\n"
        assert server.client().ping()


def test_nothing_is_left(tmp_path):
    with Namespaced() as namespace:
        process = namespace.start(["sleep", "60"], tmp_path / "log")
        name = namespace.name
    assert not process.alive
    assert not left(name)


def test_what_a_killed_process_left_is_taken_away_by_the_next():
    code = (
        "import os; from tests.replicas.namespaces import Namespaced; "
        "n = Namespaced(); print(n.name, flush=True); os._exit(1)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=False)
    name = done.stdout.strip()
    if not name:
        pytest.skip(f"needs network namespaces: {done.stderr.strip().splitlines()[-1]}")
    assert len(left(name)) == 3
    with Namespaced():
        assert not left(name)


def test_where_they_are_forbidden_tests_are_skipped(monkeypatch):
    def refused(command, **options):
        raise subprocess.CalledProcessError(1, command, stderr="Operation not permitted\n")

    monkeypatch.setattr(namespaces.shutil, "which", lambda name: "/sbin/ip")
    monkeypatch.setattr(namespaces.subprocess, "run", refused)
    with pytest.raises(unittest.SkipTest, match="needs network namespaces: Operation not permitted"):
        Namespaced()
    assert not namespaces_permitted.__wrapped__()
    monkeypatch.setattr(namespaces.shutil, "which", lambda name: None)
    with pytest.raises(unittest.SkipTest, match="needs the ip command"):
        Namespaced()
