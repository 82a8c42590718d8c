"""A replica that joins when the log has been compacted, or that was away for long, knows what the others know."""

from __future__ import annotations

import pytest

from contextpilot_rag.remote.wire import TurnIn
from contextpilot_rag.replicas.pace import Pace
from contextpilot_rag.replicas.replica import Replica
from contextpilot_rag.service import replicas
from contextpilot_rag.types import Namespace
from tests.replicas.memory_log import MemoryLog
from tests.service.test_replicas_shown import replica
from tests.until import until


@pytest.fixture
def paced(monkeypatch):
    """Sets the pace of replicas that are made from now on."""

    def set_pace(**given):
        pace = Pace(**given)
        monkeypatch.setattr(replicas, "Replica", lambda log, names, sink, _: Replica(log, names, sink, pace))

    return set_pace


def asked(service, names, **more):
    given = {"blocks": [{"id": name, "tokens": 100} for name in names], **more}
    reply = service.ask("POST", "/v1/align", given)
    assert reply.status == 200, reply.body
    return reply.json()


def predicted(service, names):
    given = {"blocks": [{"id": name, "tokens": 100} for name in names]}
    return service.ask("POST", "/v1/predict", given).json()["predicted_cached_tokens"]


def knows(service, answer):
    ledgers = service.hub.service.tenant("").ledgers
    return ledgers.knows(Namespace(), TurnIn("talk", answer["turn"], 9))


def status(service):
    return service.hub.replicas.status()


def test_what_stands_in_a_snapshot_alone_is_known_to_one_that_joins_and_is_added_to(paced):
    paced(compact_entries=2)
    log = MemoryLog()
    with replica(log) as first:
        asked(first, "abc")
        one = asked(first, "xyz", conversation={"id": "talk"})
        until(lambda: not status(first).pending)
        asked(first, "k")
        until(lambda: status(first).compacted)
        two = asked(first, "xw", conversation={"id": "talk", "after": one["turn"], "next_label": 4})
        with replica(log) as late:
            until(lambda: predicted(late, "cba") == predicted(late, "zxy") == 300)
            until(lambda: knows(late, two))
            three = asked(late, "wz", conversation={"id": "talk", "after": two["turn"], "next_label": 5})
            assert three["labels"] == [4, 3]
            assert len(three["location_hints"]) == 2
            until(lambda: knows(first, three))


def test_one_that_was_alone_for_long_takes_in_what_it_did_itself_and_tells_it_later(paced):
    paced(alone_seconds=0.05, retry_seconds=0.02)
    log = MemoryLog()
    with replica(log) as first, replica(log) as second:
        one = asked(first, "abc", conversation={"id": "talk"})
        until(lambda: knows(second, one))
        log.away = True
        until(lambda: not status(first).joined and not status(second).joined)
        two = asked(second, "ad", conversation={"id": "talk", "after": one["turn"], "next_label": 4})
        asked(first, "xyz")
        until(lambda: first.hub.service.tenant("").stats().tree_blocks == 6)
        assert not knows(first, two)
        log.away = False
        until(lambda: knows(first, two))
        for service in (first, second):
            until(lambda service=service: predicted(service, "zyx") == 300)
        assert knows(second, two)
        three = asked(first, "db", conversation={"id": "talk", "after": two["turn"], "next_label": 5})
        assert len(three["location_hints"]) == 2


def test_a_log_that_lost_everything_goes_on_from_what_one_of_them_knows(paced):
    paced(retry_seconds=0.02)
    log = MemoryLog()
    with replica(log) as first, replica(log) as second:
        one = asked(first, "abc", conversation={"id": "talk"})
        until(lambda: knows(second, one))
        log.lose_everything()
        two = asked(second, "bd", conversation={"id": "talk", "after": one["turn"], "next_label": 4})
        assert two["location_hints"]
        until(lambda: knows(first, two))
        assert knows(second, two)
        with replica(log) as late:
            until(lambda: knows(late, two))
            until(lambda: predicted(late, "cba") == 300)
