"""Watching: which level an engine is followed at, and what is said about it."""

from __future__ import annotations

import pytest

from contextpilot_rag.engines.engine import Engine
from contextpilot_rag.engines.watching import UNCOVERED, Watching
from contextpilot_rag.types import Usage

COLD = Usage(prompt_tokens=1_000, cached_tokens=0)


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def watching(clock):
    return Watching(Engine("http://127.0.0.1:8000", events="tcp://127.0.0.1:5557"), clock, patience=10.0)


def test_an_engine_without_events_is_followed_by_what_it_reports(clock):
    watching = Watching(Engine("http://127.0.0.1:8000"), clock)
    assert watching.level == "model"
    watching.answered(Usage(prompt_tokens=10), 16)  # it says nothing of its cache
    assert watching.level == "model"
    watching.answered(Usage(prompt_tokens=10, cached_tokens=0), 16)  # zero is a report
    assert watching.level == "usage"
    assert watching.why == ""
    assert watching.to_say() is None


def test_one_that_stops_to_report_is_followed_by_its_capacity_again(clock):
    watching = Watching(Engine("http://127.0.0.1:8000"), clock)
    watching.answered(COLD, 16)
    for _ in range(32):
        watching.answered(Usage(prompt_tokens=10), 16)
    assert watching.level == "model"


def test_events_count_once_they_are_complete(watching):
    assert watching.level == "model"
    watching.flowing(0)
    assert watching.level == "events"
    watching.answered(COLD, 16)
    watching.broken(0, "nobody listens there")
    assert watching.level == "usage"
    assert watching.why == "nobody listens there"
    watching.flowing(0)
    assert watching.level == "events"


def test_all_ranks_have_to_be_in_step(clock):
    watching = Watching(Engine("http://127.0.0.1:8000", events="tcp://127.0.0.1:5557", ranks=2), clock)
    watching.flowing(0)
    assert watching.level == "model"
    watching.flowing(1)
    assert watching.level == "events"


def test_an_outage_is_said_once_and_so_is_its_end(watching):
    watching.broken(0, "nobody listens there")
    assert watching.to_say() == (True, "nobody listens there")
    assert watching.to_say() is None
    watching.broken(0, "nobody listens there")
    assert watching.to_say() is None
    watching.flowing(0)
    assert watching.to_say() == (False, "followed by its cache events again")
    assert watching.to_say() is None
    watching.broken(0, "nobody listens there")
    assert watching.to_say() == (True, "nobody listens there")


def test_silence_after_new_tokens_is_spoken_of(watching, clock):
    watching.flowing(0)
    watching.answered(COLD, 16)
    clock.now = 9.9
    assert watching.to_say() is None
    clock.now = 10.0
    complaint, what = watching.to_say()
    assert complaint
    assert "no cache event came" in what
    assert watching.level == "usage"
    watching.event()
    assert watching.to_say() == (False, "followed by its cache events again")
    assert watching.level == "events"


def test_an_engine_that_told_of_prompts_before_it_answered_them_is_not_silent(watching, clock):
    watching.flowing(0)
    watching.event(3)
    for _ in range(3):
        watching.answered(COLD, 16)
    clock.now = 100.0
    assert watching.to_say() is None
    watching.event(10_000)
    for _ in range(64):
        watching.answered(COLD, 16)
    clock.now = 200.0
    assert watching.to_say() is None
    watching.answered(COLD, 16)  # of so many, one must have been told of after all others were answered
    clock.now = 300.0
    assert watching.to_say() is not None


@pytest.mark.parametrize(
    "usage",
    [None, Usage(), Usage(prompt_tokens=1_000), Usage(prompt_tokens=1_000, cached_tokens=990)],
    ids=["nothing", "no counts", "not reported", "a hit"],
)
def test_silence_means_nothing_where_nothing_new_was_stored(watching, clock, usage):
    watching.flowing(0)
    watching.answered(usage, 16)
    clock.now = 100.0
    assert watching.to_say() is None


def test_token_ids_that_are_not_the_engines_are_spoken_of(watching):
    watching.flowing(0)
    watching.judged(0, 7)
    assert watching.to_say() is None  # too few to judge
    watching.judged(0, 12)
    complaint, what = watching.to_say()
    assert complaint
    assert "chat template" in what
    assert watching.level == "model"
    watching.judged(60, 12)
    assert watching.level == "events"
    assert watching.to_say() == (False, "followed by its cache events again")


def test_a_few_prompts_that_are_unlike_are_no_complaint(watching):
    watching.flowing(0)
    for times in range(1, 40):
        watching.judged(3 * times, times)
        assert watching.level == "events"


def test_an_engine_that_comes_back_begins_anew(watching, clock):
    watching.flowing(0)
    watching.answered(COLD, 16)
    watching.gone()
    clock.now = 100.0
    assert watching.to_say() is None
    assert watching.level == "model"


def test_prompts_that_are_not_found_are_spoken_of_with_the_reason_that_most_have(watching):
    watching.flowing(0)
    watching.answered(COLD, 16)
    for why in ("unlike", "failed", "failed"):
        watching.covered(why, "404")
    assert (watching.level, watching.to_say()) == ("events", None)  # too few to judge
    watching.covered("failed", "/tokenize is answered with 404")
    complaint, what = watching.to_say()
    assert complaint
    assert what.startswith(UNCOVERED["failed"])
    assert "answered with 404" in what
    assert (watching.level, watching.why) == ("usage", what)
    for _ in range(20):
        watching.covered("unlike")
    assert watching.why == UNCOVERED["unlike"]
    for _ in range(9):
        watching.covered()
    assert watching.level == "events"


def test_a_reason_that_changes_is_said_but_not_each_time(watching):
    watching.flowing(0)
    for _ in range(40):
        watching.covered("messages")
        watching.to_say()
    assert watching.to_say() is None
    for _ in range(40):
        watching.covered()
    assert watching.to_say() == (False, "followed by its cache events again")


def test_half_of_the_prompts_is_enough(watching):
    watching.flowing(0)
    for _ in range(40):
        watching.covered("unlike")
        watching.covered()
    assert watching.level == "events"


def test_where_somebody_else_listens_it_matters_only_who_covers(clock):
    for covers, level, why in ((True, "model", UNCOVERED["size"]), (False, "model", "")):
        watching = Watching(Engine("http://127.0.0.1:8000"), clock, covers=covers)
        for _ in range(4):
            watching.covered("size")
        assert (watching.level, watching.why) == (level, why)
