"""A pilot in step with an engine: what it expects is what the engine reports, whatever happens to either."""

from __future__ import annotations

import pytest

from tests.engines.event_proxy import EventProxy, Plan

from .followed import Followed, off_by, until
from .stream import replayed, resident
from .traffic import made_up, needs_traces, recorded
from .under_test import BLOCK, CAPACITY

CLOSE = 0.02  # of the cached tokens


@needs_traces
@pytest.mark.parametrize("order", ["balanced", "throughput"])
def test_what_is_expected_is_reported_and_what_the_mirror_says_is_there(engine, order):
    """300 questions, a cache of four prompts; after each 50, a few prompts are sent again as they were."""
    outcomes = []
    with Followed(engine, order=order, min_gain=0.1) as live:
        for number, question in enumerate(recorded(300, top=None), 1):
            outcomes.append(live.ask(question))
            if number % 50 == 0:
                probe(live, outcomes)
        assert off_by(outcomes) <= CLOSE
        assert sum(one.expected is None for one in outcomes) <= 1  # nothing was known before the first answer
        tokens, reported = sum(one.tokens for one in outcomes), sum(one.reported for one in outcomes)
        assert 5 * tokens / len(outcomes) > CAPACITY * BLOCK
        assert reported > 0.05 * tokens
        assert any(one.prompt.changed for one in outcomes)
        assert live.status.kv_blocks <= CAPACITY
        assert live.status.calibration == pytest.approx(1, abs=CLOSE)


def probe(live, outcomes):
    """Some that have just been sent, some that are about to be evicted, some that are gone. Each changes the cache."""
    looked_at = [outcomes[-back] for back in (2, 3, 4, 5, 30) if back <= len(outcomes)]
    found = []
    for one in looked_at:
        live.settle()
        said = live.resident(one.messages)
        found.append(live.engine.chat(one.messages)[1])
        assert found[-1] == said
    live.settle()
    assert len(set(found)) > 1


def test_one_that_is_killed_is_forgotten_and_learnt_again(engine):
    questions = made_up(60)
    with Followed(engine) as live:
        for question in questions[:20]:
            last = live.ask(question)
        assert last.expected > 0
        before = live.status
        assert before.kv_blocks > 0
        engine.kill()
        if engine.name == "fake":  # a real one takes longer to come back than it takes to notice
            engine.start()
        else:
            until(lambda: not live.status.alive, lambda: f"{live.status}", 60)
            assert live.status.kv_blocks == 0
            assert live.status.tree_blocks == 0
            engine.start()
        until(lambda: live.status.alive and live.status.level == "events", lambda: f"{live.status}", 60)
        until(lambda: live.status.kv_blocks == 0, lambda: f"{live.status}", 60)
        again = [live.ask(question) for question in questions[20:]]
        assert again[0].reported == 0
        assert not again[0].expected
        assert off_by(again) <= CLOSE
        assert again[-1].reported > 0


def test_a_tenants_prompts_are_found_by_that_tenant_alone(engine):
    question = made_up(1)[0]
    with Followed(engine, salt_secret="s3cret") as live:
        first, second = (live.ask(question, namespace="tenant-a") for _ in range(2))
        assert not first.expected
        assert first.reported == 0
        # The question is the same one, too, which nobody expects.
        assert second.tokens - 3 * BLOCK < second.expected <= second.reported < second.tokens
        other, nobody = live.ask(question, namespace="tenant-b"), live.ask(question)
        assert not other.expected
        assert other.reported == 0
        assert not nobody.expected
        assert nobody.reported == 0
        again = live.ask(question, namespace="tenant-a")
        assert (again.expected, again.reported) == (second.expected, second.reported)


def test_events_that_are_dropped_doubled_and_delayed_are_made_good_by_one_replay(engine):
    questions = made_up(80)
    with EventProxy(engine.events, engine.replay) as proxy:
        at = {"events": proxy.events, "replay": proxy.replay}
        with Followed(engine, at) as live:
            live.ask(questions[0])
            begun = proxy.seen
            proxy.plan = Plan(
                drop=set(range(begun, begun + 200, 5)),
                double=set(range(begun + 1, begun + 200, 4)),
                delay={number: 1 + number % 3 for number in range(begun + 2, begun + 200, 6)},
            )
            for question in questions[1:40]:
                live.ask(question, settle=False)
            until(lambda: proxy.dropped > 3 and proxy.doubled > 3 and proxy.delayed > 3, lambda: f"{vars(proxy)}")
            proxy.let_go()
            live.settle()
            assert live.status.lost == 0
            assert live.status.kv_blocks == len(resident([one for m in replayed(engine) for one in m.events]))
            after = [live.ask(question) for question in questions[40:]]
            assert off_by(after) <= CLOSE
            assert any(one.reported > 3 * BLOCK for one in after)


def test_a_listener_that_comes_late_learns_all_from_a_replay(engine):
    questions = made_up(80)
    with Followed(engine) as live:
        for question in questions[:20]:
            live.ask(question)
        with Followed(engine) as late:
            late.settle()
            assert late.status.kv_blocks == live.status.kv_blocks > 0
            outcomes = [late.ask(question) for question in questions[20:]]
        # It knows which KV blocks are there; of which prompts they are it learns as these come.
        assert all((one.expected or 0) <= one.reported for one in outcomes)
        assert off_by(outcomes[20:]) <= CLOSE
