"""A service that is killed at any moment and begins again: it may know less, and never says anything wrong."""

from __future__ import annotations

import http.client
import json
import random
import signal
import threading
import time

import pytest

from contextpilot_rag.remote.wire import AlignOut
from tests.service.harness import SECONDS, process
from tests.service.test_ledger import Talk
from tests.until import until

ROUNDS = 4
THREADS = 4
MARKER = ["marker-1", "marker-2", "marker-3"]


class Client:
    """Asks without pause, checks each answer, and keeps what it was told; the service may be gone at any moment."""

    def __init__(self, number, tickets):
        self.numbers = random.Random(number)
        self.name = f"client-{number}"
        self.talk = Talk(self.name, "m")
        self.tickets = tickets  # of all clients; one of the service's own may never come twice
        self.answered = self.hints = 0
        self.failures = []

    def run(self, port, ending):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=SECONDS)
        try:
            while not ending.is_set():
                if not self.turn(connection):
                    return
        except AssertionError as error:
            self.failures.append(error)
        finally:
            connection.close()

    def turn(self, connection):
        """One request and its report; False: the service is gone."""
        if len(self.talk.turns) > 30:
            self.talk.turns.clear()
        blocks = self.numbers.sample([f"{self.name}-{number}" for number in range(40)], 8)
        turn = self.talk.turn()
        body = {
            "blocks": [{"id": block, "tokens": 50} for block in blocks],
            "namespace": {"model": "m"},
            "conversation": {"id": turn.id, "next_label": turn.next_label},
            "key": f"{self.name} {self.answered}",
        }
        if turn.after:
            body["conversation"]["after"] = turn.after
        reply = ask(connection, "/v1/align", body)
        if reply is None:
            self.talk.fail_open(blocks)
            return False
        answer = AlignOut(
            **{**reply, "location_hints": {int(at): hint for at, hint in reply.get("location_hints", {}).items()}}
        )
        assert answer.key == body["key"]
        assert answer.ticket not in self.tickets, "a ticket was given twice"
        self.tickets.add(answer.ticket)
        self.talk.take(blocks, answer)
        self.hints += len(answer.location_hints)
        self.answered += 1
        report = {"ticket": answer.ticket, "usage": {"prompt_tokens": 500, "cached_tokens": 100}}
        reply = ask(connection, "/v1/observe", report)
        assert reply in (None, {"counted": True})
        return reply is not None


def ask(connection, path, body):
    """What was answered; None: nobody answers any more."""
    try:
        connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
        reply = connection.getresponse()
        content = reply.read()
    except (OSError, http.client.HTTPException):
        return None
    assert reply.status == 200, content
    return json.loads(content)


def marked(names=MARKER):
    return {"blocks": [{"id": name, "tokens": 100} for name in names], "namespace": {"model": "marked"}}


def predicted(service):
    return service.ask("POST", "/v1/predict", marked(MARKER[::-1])).json()["predicted_cached_tokens"]


def test_killed_under_load_again_and_again(tmp_path):
    state, tickets = tmp_path / "state", set()
    clients = [Client(number, tickets) for number in range(THREADS)]
    moments = random.Random()
    warm = False
    for number in range(ROUNDS):
        with process(tmp_path, "--state", str(state), "--snapshot-seconds", "0.1") as service:
            assert predicted(service) == (300 if warm else 0)
            ending = threading.Event()
            threads = [threading.Thread(target=client.run, args=(service.port, ending)) for client in clients]
            for thread in threads:
                thread.start()
            try:
                if number % 2:
                    assert service.ask("POST", "/v1/align", marked()).status == 200
                    until(lambda: (state / "snapshot").exists() and b"marker-3" in (state / "snapshot").read_bytes())
                    warm = True
                time.sleep(moments.uniform(0.0, 0.5))
                service.stop(signal.SIGKILL)
            finally:
                ending.set()
                for thread in threads:
                    thread.join(SECONDS)
            log = service.log.read_text()
            assert not [word for word in ("ERROR", "WARNING", "Traceback") if word in log], log
        assert not [failure for client in clients for failure in client.failures]
    assert warm
    assert all(client.answered > ROUNDS for client in clients)
    assert sum(client.hints for client in clients) > 0
    assert not list(state.glob("*damaged*"))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_an_orderly_end_saves(tmp_path, number):
    state = tmp_path / "state"
    with process(tmp_path, "--state", str(state)) as service:
        assert service.ask("POST", "/v1/align", marked()).status == 200
        salt = service.ask("GET", "/v1/namespaces/:marked").json()["cache_salt"]
        assert not (state / "snapshot").exists()
        assert service.stop(number) == 0
    with process(tmp_path, "--state", str(state)) as service:
        assert predicted(service) == 300
        assert service.ask("GET", "/v1/namespaces/:marked").json()["cache_salt"] == salt, "the secret is kept"


def test_a_damaged_snapshot_is_set_aside_and_the_next_one_counts(tmp_path):
    state = tmp_path / "state"
    with process(tmp_path, "--state", str(state)) as service:
        service.ask("POST", "/v1/align", marked())
        service.stop()
    raw = bytearray((state / "snapshot").read_bytes())
    raw[len(raw) // 2] ^= 0x10
    (state / "snapshot").write_bytes(raw)
    with process(tmp_path, "--state", str(state)) as service:
        assert service.ask("GET", "/readyz").status == 200
        assert predicted(service) == 0
        assert service.log.read_text().count("the snapshot cannot be used: its checksum is wrong") == 1
        service.ask("POST", "/v1/align", marked())
        service.stop()
    with process(tmp_path, "--state", str(state)) as service:
        assert predicted(service) == 300


def test_a_second_service_on_the_same_folder_is_refused(tmp_path):
    state = str(tmp_path / "state")
    with process(tmp_path, "--state", state) as service:
        with pytest.raises(AssertionError, match="another process uses it"), process(tmp_path, "--state", state):
            pass
        assert service.ask("GET", "/readyz").status == 200
