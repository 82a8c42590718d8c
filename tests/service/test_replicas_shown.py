"""What a replica shows of how it stands to the others."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from contextpilot_rag import replicas
from contextpilot_rag.replicas.status import REJECTIONS
from contextpilot_rag.service.life import assemble
from contextpilot_rag.service.settings import ServiceSettings
from tests.replicas.memory_log import MemoryLog
from tests.service.harness import serving
from tests.service.test_metrics import parsed
from tests.until import until

GIVEN = {"blocks": [{"id": "a", "tokens": 100}]}


@pytest.fixture
def log():
    return MemoryLog()


def replica(log):
    settings = ServiceSettings(port=0, salt_secret="s")
    return serving(settings, assemble(settings, log=log))


def shown(service):
    return parsed(service.ask("GET", "/metrics").body)


def test_metrics_say_what_was_told_and_taken_in(log):
    with replica(log) as first, replica(log) as second:
        for service in (first, second):
            assert service.ask("POST", "/v1/align", GIVEN).status == 200
        for service in (first, second):
            until(lambda service=service: shown(service)["replica_applied_total", ()] == 4)
            samples = shown(service)
            assert samples["replica_joined", ()] == samples["replica_spaces", ()] == 1
            assert samples["replica_appended_total", ()] >= 2  # what was not taken for certain is told again
            assert samples["replica_pending_records", ()] == samples["replica_outages_total", ()] == 0
            assert samples["replica_behind_seconds", ()] >= 0


def test_all_reasons_to_reject_are_there_before_anything_was_rejected_so_that_an_alert_sees_the_first(log):
    sources = "".join(path.read_text(encoding="utf-8") for path in Path(replicas.__file__).parent.glob("*.py"))
    given = set(re.findall(r"Rejected\(\"(\w+)\"\)|rejected\[\"(\w+)\"\]", sources))
    assert {"".join(reason) for reason in given} == set(REJECTIONS)
    with replica(log) as service:
        found = {labels: value for (name, labels), value in shown(service).items() if name == "replica_rejected_total"}
    assert found == {(("reason", reason),): 0 for reason in REJECTIONS}


def test_one_that_is_alone_says_so_everywhere_and_is_ready_all_the_same(log):
    with replica(log) as service:
        until(lambda: shown(service)["replica_joined", ()] == 1)
        assert b"joined, 0 records" in service.ask("GET", "/").body
        log.away = True
        until(lambda: shown(service)["replica_joined", ()] == 0)
        assert shown(service)["replica_outages_total", ()] == 1
        assert service.ask("GET", "/readyz").status == 200
        for path in ("/readyz", "/healthz"):
            assert service.ask("GET", path).json() == {"state": "ready", "replica": "alone"}
        assert b"alone: " in service.ask("GET", "/").body
        assert service.ask("POST", "/v1/align", GIVEN).status == 200
        log.away = False
        until(lambda: service.ask("GET", "/healthz").json()["replica"] == "joined")


def test_without_replicas_nothing_is_said_of_any():
    with serving() as service:
        assert service.ask("GET", "/healthz").json() == {"state": "ready"}
        assert b"contextpilot_replica" not in service.ask("GET", "/metrics").body
        assert b"Replica" not in service.ask("GET", "/").body


def test_what_is_not_known_is_waited_for_but_not_for_long(log):
    with replica(log) as first, replica(log) as second:
        assert first.ask("POST", "/v1/align", GIVEN).status == 200
        unknown = {"ticket": "a-ticket-that-nobody-has", "usage": {"prompt_tokens": 1}}
        turn = {"id": "talk", "after": "an-answer-that-nobody-gave", "next_label": 2}
        assert second.ask("POST", "/v1/observe", unknown).status == 404
        answer = second.ask("POST", "/v1/align", GIVEN | {"conversation": turn}).json()
        assert answer["labels"] == [2]
        log.away = True
        until(lambda: not second.hub.replicas.status().joined)
        assert second.ask("POST", "/v1/observe", unknown).status == 404


def test_what_nobody_knows_is_not_told_to_be_forgotten(log):
    with replica(log) as service:
        until(lambda: shown(service)["replica_joined", ()] == 1)
        for path in ("/v1/namespaces/nobody", "/v1/namespaces/nobody?conversations=true", "/v1/namespaces"):
            assert service.ask("DELETE", path).json()["forgotten"] == 0
        assert service.ask("DELETE", "/v1/namespaces/nobody/conversations/c").json()["forgotten"] == 0
        assert service.ask("DELETE", "/v1/conversations/c").json()["forgotten"] == 0
        assert shown(service)["replica_spaces", ()] == 0


def test_what_one_forgets_does_not_stay_on_the_disk_of_another(log, tmp_path):
    settings = ServiceSettings(port=0, salt_secret="s", state=tmp_path / "state", snapshot_seconds=1_000.0)
    with replica(log) as first, serving(settings, assemble(settings, log=log)) as second:
        first.ask("POST", "/v1/align", GIVEN | {"conversation": {"id": "talk"}})
        ledgers, saved = second.hub.service.tenant("").ledgers, tmp_path / "state" / "snapshot"
        until(lambda: len(ledgers))
        assert first.ask("DELETE", "/v1/conversations/talk").json()["forgotten"] == 1
        until(lambda: not len(ledgers) and saved.exists() and b"talk" not in saved.read_bytes())
