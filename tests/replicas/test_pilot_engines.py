"""Replicas that know the engines: one tree for each engine, the same in all processes."""

from __future__ import annotations

import pytest

from contextpilot_rag.engines.fleet import Fleet
from contextpilot_rag.engines.kv import Cleared
from tests.until import until

from .pilots import in_memory, in_step, settled

TEXTS = [f"text {number} " * 60 for number in range(12)]
ENGINES = ["http://127.0.0.1:9", "http://127.0.0.1:19"]  # where nobody listens
NAMES = ["127.0.0.1:9", "127.0.0.1:19"]


@pytest.fixture
def pilots(monkeypatch):
    with in_memory(monkeypatch) as make:
        yield make


def at(pilot, name, blocks, **more):
    """Tokens of a request that an engine would find in its cache, as a pilot believes."""
    return pilot.index._members[name].lane.index.predict(pilot.prepare(blocks, **more).request)


def test_what_one_process_sent_to_an_engine_the_others_know_of_that_engine(pilots):
    first, second = pilots(engines=ENGINES), pilots(engines=ENGINES[::-1])
    assert isinstance(first.index, Fleet)
    sent = first.align(TEXTS[:3])
    in_step(first, second)
    (other,) = {*NAMES} - {sent.engine}
    assert at(second, sent.engine, TEXTS[:3]) > 0
    assert at(second, other, TEXTS[:3]) == at(first, other, TEXTS[:3]) == 0
    again = second.align(TEXTS[2::-1])
    assert (again.engine, again.order) == (sent.engine, (2, 1, 0))
    assert first.replica.status.joined


def test_an_engine_that_restarts_is_empty_here_and_nobody_else_is_told(pilots):
    """They hear it from the engine; told by the log, they would forget what was sent there since."""
    first, second = pilots(engines=ENGINES[:1]), pilots(engines=ENGINES[:1])
    (name,) = NAMES[:1]
    first.align(TEXTS[:3])
    in_step(first, second)
    first.index.events(name, 0, [Cleared()])
    assert at(first, name, TEXTS[:3]) == 0
    in_step(first, second)
    assert at(second, name, TEXTS[:3]) > 0
    first.align(TEXTS[3:6])
    in_step(first, second)
    assert at(first, name, TEXTS[3:6]) == at(second, name, TEXTS[3:6]) > 0


def test_what_is_forgotten_is_forgotten_of_all_engines_by_all(pilots):
    first, second = pilots(engines=ENGINES), pilots(engines=ENGINES)
    for start in range(0, 9, 3):
        first.align(TEXTS[start : start + 3], namespace="acme")
    in_step(first, second)
    second.forget("acme")
    in_step(second, first)
    for pilot in (first, second):
        for name in NAMES:
            assert not any(at(pilot, name, [text], namespace="acme") for text in TEXTS)


def test_where_somebody_else_chooses_one_tree_is_shared(pilots):
    first = pilots(engines=ENGINES, routing="external")
    second = pilots()
    sent = first.align(TEXTS[:3])
    assert sent.engine is None
    in_step(first, second)
    assert second.align(TEXTS[2::-1]).order == (2, 1, 0)


def test_an_engine_that_joins_later_is_fed_too(pilots):
    first, second = pilots(engines=ENGINES), pilots(engines=ENGINES[:1])
    first.engines.remove(NAMES[0])  # else it depends on what is known of a dead engine where later prompts go
    assert first.align(TEXTS[:3]).engine == NAMES[1]
    in_step(first, second)
    second.engines.add(ENGINES[1])
    in_step(first, second)
    first.align(TEXTS[3:6])
    in_step(first, second)
    assert at(second, NAMES[1], TEXTS[3:6]) > 0
    until(lambda: at(second, NAMES[1], TEXTS[:3]))


def test_an_engine_that_leaves_and_comes_back_is_known_as_the_others_know_it(pilots):
    first, second = pilots(engines=ENGINES[:1]), pilots(engines=ENGINES[:1])
    first.align(TEXTS[:3])
    in_step(first, second)
    second.engines.remove(NAMES[0])
    first.align(TEXTS[3:6])
    in_step(first, second)
    second.engines.add(ENGINES[0])
    for texts in (TEXTS[:3], TEXTS[3:6]):
        until(lambda texts=texts: at(second, NAMES[0], texts))
    first.align(TEXTS[6:9])
    in_step(first, second)
    assert at(second, NAMES[0], TEXTS[6:9]) > 0


def test_reports_go_on_pruning_where_events_are_followed(pilots):
    pilot = pilots(engines=ENGINES[:1])
    lane = pilot.index._members[NAMES[0]].lane
    assert lane.index.terms.usage
    lane.resize(10_000, 16, "events")
    assert (lane.index.terms.usage, lane.index.terms.kv_block_tokens) == (True, 16)
    settled(pilot)
