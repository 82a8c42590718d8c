"""What is said of failures: a line for each outage and one for its end, whatever else goes on."""

from __future__ import annotations

import logging
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextpilot_rag import AsyncContextPilot, ContextPilot, LocalIndex
from contextpilot_rag.errors import IndexRefused, IndexUnreachable
from contextpilot_rag.failing import Failures

DOWN = IndexUnreachable("nobody there")


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def failures(clock) -> Failures:
    return Failures(raises=False, clock=clock)


@pytest.fixture
def said(caplog):
    def lines() -> list[str]:
        found = [record.getMessage().split(" (said")[0] for record in caplog.records]
        caplog.clear()
        return found

    return lines


def test_each_outage_has_its_line_and_so_has_its_end(failures, clock, said):
    for begins in (0, 100, 5_000):
        clock.now = begins
        for _ in range(56):
            failures.note(DOWN, "align")
        assert said() == ["failed open: nobody there; requests go out all the same"]
        clock.now += 12
        for _ in range(3):
            failures.answered("align")
        assert said() == ["the index answers again after 12 s; 56 requests went out as retrieved"]
    assert failures.count == 3 * 56


def test_both_are_warnings(failures, caplog):
    failures.note(DOWN, "align")
    failures.answered("align")
    assert [record.levelno for record in caplog.records] == [logging.WARNING] * 2


def test_one_that_comes_and_goes_is_spoken_of_once_a_minute(failures, clock, said):
    for tenth in range(1_800):
        clock.now = tenth / 10
        failures.note(DOWN, "align")
        failures.answered("align")
    assert len(said()) == 2 * 3


def test_a_blip_hides_no_outage_that_follows_it(failures, clock, said):
    failures.note(DOWN, "align")
    failures.answered("align")
    assert len(said()) == 2
    for second in range(10, 70):
        clock.now = second
        failures.note(DOWN, "align")
    assert said() == ["failed open: nobody there; requests go out all the same"]
    clock.now = 80
    failures.answered("align")
    assert said() == ["the index answers again after 70 s; 60 requests went out as retrieved"]


def test_a_long_outage_is_said_once_however_seldom_it_is_noticed(failures, clock, said):
    for number in range(50):
        clock.now = 200.0 * number
        failures.note(DOWN, "align")
        failures.note(DOWN, "observe")
    assert len(said()) == 1


def test_all_that_fails_with_an_index_is_one_outage(failures, clock, said):
    for clock.now, part in enumerate(("observe", "align", "observe", "predict", "tree", "salt", "sent")):
        failures.note(DOWN, part)
    assert len(said()) == 1
    failures.answered("observe")  # it was never asked: the request had gone out as retrieved
    assert said() == []
    clock.now = 12
    failures.answered("align")
    assert said() == ["the index answers again after 11 s; 1 request went out as retrieved"]
    for part in ("observe", "predict", "tree", "salt", "sent"):
        failures.answered(part)
    assert said() == []


def test_what_never_works_does_not_hide_what_fails_later(failures, clock, said):
    for second in range(300):
        clock.now = second
        failures.answered("align")
        failures.note(NotImplementedError("an old index"), "predict")
    assert len(said()) == 1
    clock.now = 300
    failures.note(DOWN, "align")
    assert said() == ["failed open: nobody there; requests go out all the same"]
    clock.now = 302
    failures.answered("align")
    assert said() == ["the index answers again after 2 s; 1 request went out as retrieved"]


def test_what_failed_once_and_was_not_tried_again_hides_nothing(failures, clock, said):
    failures.note(DOWN, "salt")
    clock.now = 100
    failures.note(DOWN, "observe")
    clock.now = 100.25
    failures.answered("observe")
    clock.now = 200
    failures.note(DOWN, "salt")
    assert len([line for line in said() if line.startswith("failed open")]) == 3


def test_what_is_not_the_indexs_is_said_again_after_a_minute_without(failures, clock, said):
    for second in range(100):
        clock.now = second
        failures.note(ValueError("a tokenizer"))
        failures.answered("align")
    assert said() == ["failed open: a tokenizer; requests go out all the same"]
    clock.now = 200
    failures.note(ValueError("a tokenizer"))
    assert said() == ["failed open: a tokenizer; requests go out all the same"]


def test_what_is_not_the_indexs_hides_no_outage(failures, clock, said):
    """But for the minute in which one line is enough."""
    for second in range(120):
        clock.now = second
        failures.note(ValueError("a tokenizer"))
        failures.note(DOWN, "align")
        assert bool(said()) == (second in {0, 60})
    failures.answered("align")
    assert said() == ["the index answers again after 119 s; 120 requests went out as retrieved"]


def test_a_line_is_a_line_where_the_failure_is_one_of_ours(failures, caplog, clock):
    for error in (DOWN, IndexRefused("401 no such key", 401), RuntimeError("a bug")):
        clock.now += 100
        error.__cause__ = OSError("below")
        failures.note(error, "align")
        failures.answered("align")
    shown = [bool(record.exc_info) for record in caplog.records if record.getMessage().startswith("failed")]
    assert shown == [False, False, True]


def test_what_is_raised_is_not_logged(clock, said):
    failures = Failures(raises=True, clock=clock)
    failures.note(DOWN, "align")
    failures.answered("align")
    assert said() == []


@given(
    st.lists(
        st.tuples(st.sampled_from(["align", "observe", "predict", "other"]), st.booleans(), st.floats(0, 40)),
        max_size=60,
    )
)
def test_never_more_than_a_pair_of_lines_a_minute(events):
    lines: list[tuple[float, str]] = []
    clock = Clock()
    failures = Failures(raises=False, clock=clock)
    handler = logging.Handler()
    handler.emit = lambda record: lines.append((clock.now, record.getMessage()))
    logger = logging.getLogger("contextpilot_rag")
    logger.addHandler(handler)
    try:
        for part, fails, wait in events:
            clock.now += wait
            if fails:
                failures.note(DOWN, part)
            elif part != "other":
                failures.answered(part)
    finally:
        logger.removeHandler(handler)
    assert failures.count == sum(fails for _, fails, _ in events)
    for word in ("failed open", "the index answers"):
        of_kind = [at for at, line in lines if line.startswith(word)]
        most = max((sum(at <= other < at + 60 for other in of_kind) for at in of_kind), default=0)
        assert most <= (1 if word == "failed open" else 2)
    if any(fails for _, fails, _ in events):
        assert lines[0][1].startswith("failed open")


def test_threads_say_it_once(failures, said):
    def fail() -> None:
        for _ in range(500):
            failures.note(DOWN, "align")

    threads = [threading.Thread(target=fail) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(said()) == 1
    failures.answered("align")
    assert said()[0].endswith("; 4,000 requests went out as retrieved")


class Flickering(LocalIndex):
    """An index in the process that can be broken."""

    broken = False

    def align(self, request):
        if self.broken:
            raise RuntimeError("disk on fire")
        return super().align(request)


async def test_pilots_say_when_any_index_comes_back(said):
    index = Flickering()
    pilot = AsyncContextPilot(index)
    for number, align in enumerate((pilot.align, pilot.blocking.align)):
        pilot.blocking._failures._outage._next = -1.0  # as if a minute had gone
        for index.broken in (False, True, True, False, False):
            answer = align(["one", "two"], "?")
            await answer if number == 0 else answer
        first, second = said()
        assert first.startswith("failed open: disk on fire")
        assert second.endswith("; 2 requests went out as retrieved")


def test_a_pilot_says_that_its_reports_arrive_again(said, monkeypatch):
    pilot = ContextPilot()
    prompt = pilot.align(["one"])
    monkeypatch.setattr(pilot.index, "observe", lambda *_: 1 / 0)
    pilot.observe(prompt, {"usage": {"prompt_tokens": 9}})
    monkeypatch.undo()
    pilot.observe(prompt, {"usage": {"prompt_tokens": 9}})
    first, second = said()
    assert first.startswith("failed open: division by zero")
    assert second.startswith("the index answers again after ")
