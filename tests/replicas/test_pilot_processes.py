"""Application processes as replicas, with a real server: they share orders, are forked, and are killed."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import threading
import warnings

import pytest

from contextpilot_rag import ContextPilot
from tests.until import until

from .log_server import LogServer, User
from .pilots import in_step, settled

TEXTS = [f"text {number} " * 60 for number in range(12)]
CHILD = """
import json, sys
from contextpilot_rag import ContextPilot

address, texts, wanted = sys.argv[1], json.loads(sys.argv[2]), json.loads(sys.argv[3])
with ContextPilot(address, salt_secret="shared") as pilot:
    assert pilot.replica.ready(20)
    order = pilot.align(texts).order
    pilot.align(wanted, namespace="acme")
    print(json.dumps([order, pilot.failures, pilot.extra_body("acme")]))
"""


def pilot_at(address: str) -> ContextPilot:
    return ContextPilot(address, salt_secret="shared")


def test_two_processes_share_their_orders(log_server):
    with pilot_at(log_server.url) as pilot:
        pilot.align(TEXTS[:3])
        settled(pilot)
        given = [log_server.url, json.dumps(TEXTS[2::-1]), json.dumps(TEXTS[3:6])]
        done = subprocess.run(
            [sys.executable, "-c", CHILD, *given], capture_output=True, check=False, text=True, timeout=60
        )
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout) == [[2, 1, 0], 0, pilot.extra_body("acme")]
        again = pilot.prepare(TEXTS[3:6], namespace="acme")
        until(lambda: pilot.predict(again))  # what it told when it was closed
        assert pilot.align(TEXTS[5:2:-1], namespace="acme").order == (2, 1, 0)


def test_a_server_that_is_killed_and_comes_back_empty_is_told_anew(log_server, caplog):
    with caplog.at_level(logging.INFO, "contextpilot_rag"), pilot_at(log_server.url) as one:
        with pilot_at(log_server.url) as other:
            one.align(TEXTS[:3])
            in_step(one, other)
            log_server.kill()
            other.align(TEXTS[3:6])
            assert one.align(TEXTS[2::-1]).order == (2, 1, 0)
            until(lambda: not one.replica.status.joined and not other.replica.status.joined)
            log_server.start()
            until(lambda: one.predict(one.prepare(TEXTS[3:6])))
            in_step(one, other)
        with pilot_at(log_server.url) as late:
            assert late.replica.ready(20)
            for texts in (TEXTS[:3], TEXTS[3:6]):
                until(lambda texts=texts: late.predict(late.prepare(texts)))
        assert one.failures == 0
    said = [record.message for record in caplog.records if record.message.startswith("replica: the log c")]
    assert len(said) == 4  # for each, that it is away, and that it is back


def test_a_password_is_shown_nowhere(log_server, tmp_path, caplog):
    user = User("replica", "hunter2hunter2", ("~contextpilot*", "+@all"))
    with LogServer(tmp_path / "users", users=[user]) as server, caplog.at_level(logging.DEBUG):
        with pilot_at(server.url_of(user)) as pilot:
            assert pilot.replica.ready(20)
            server.kill()
            pilot.align(TEXTS[:3])
            until(lambda: pilot.replica.status.why)
            shown = [
                caplog.text,
                repr(pilot.settings),
                repr(pilot.replica),
                repr(pilot.replica.status),
                repr(pilot.index),
            ]
        assert not any("hunter2" in text for text in shown)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_forked_workers_are_replicas_of_their_own(log_server):
    """As with a server that loads the application first, and forks its workers from it."""
    with pilot_at(log_server.url) as pilot:
        assert pilot.replica.ready(20)
        pilot.align(TEXTS[:3])
        settled(pilot)
        children = []
        for worker in range(2):
            child = os.fork()
            if child == 0:
                status = 1
                try:
                    status = _work_as(pilot, worker)
                finally:
                    os._exit(status)
            children.append(child)
        for child in children:
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        for worker in range(2):
            sent = pilot.prepare(TEXTS[3 + 3 * worker : 6 + 3 * worker])
            until(lambda sent=sent: pilot.predict(sent))
        assert pilot.replica.status.joined
        assert pilot.align(TEXTS[9:]).rule == "nothing_gained"


def _work_as(pilot: ContextPilot, worker: int) -> int:
    alone = threading.active_count() == 1
    known = pilot.align(TEXTS[2::-1]).order == (2, 1, 0)
    pilot.align(TEXTS[3 + 3 * worker : 6 + 3 * worker])
    other = pilot.prepare(TEXTS[6 - 3 * worker : 9 - 3 * worker])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        until(lambda: pilot.predict(other))
        pilot.close()
    return 0 if alone and known and pilot.failures == 0 else 2
