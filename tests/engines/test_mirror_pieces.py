"""Mirror: whoever asks waits for a piece of what is told at most, whatever is told; and memory stays bounded."""

from __future__ import annotations

import random
import threading
from array import array

import pytest

from contextpilot_rag.engines import orphans as orphans_module
from contextpilot_rag.engines.asked import MAX_ASKED
from contextpilot_rag.engines.fair_lock import FairLock
from contextpilot_rag.engines.kv import Cleared, Removed, Stored, in_parts
from contextpilot_rag.engines.mirror import AT_ONCE, LOOKS, Mirror
from contextpilot_rag.engines.orphans import Orphans
from contextpilot_rag.engines.passages import Passages
from contextpilot_rag.engines.resident import Resident
from tests.engines.publisher import came
from tests.engines.world import ONE, SIZE, A, B, C, block, covering, ids, simple, told
from tests.resident import resident_tokens

MANY = 10 * AT_ONCE


def test_who_waits_gets_it_before_who_had_it_last():
    lock, order = FairLock(), []

    def wait():
        with lock:
            order.append("waited")

    thread = threading.Thread(target=wait)
    with lock:
        thread.start()
        assert came(lock._next.locked)
    with lock:
        order.append("again")
    thread.join(10)
    assert order == ["waited", "again"]


@pytest.fixture
def sizes(monkeypatch):
    """How much was done at a time, by whoever had the lock."""
    found = []
    apply, shows = Resident.apply, Passages.shows

    def noted_apply(self, event):
        found.append(0 if isinstance(event, Cleared) else len(event.hashes))
        apply(self, event)

    def noted_shows(self, keys, there):
        found.append(len(keys))
        shows(self, keys, there)

    monkeypatch.setattr(Resident, "apply", noted_apply)
    monkeypatch.setattr(Passages, "shows", noted_shows)
    return found


@pytest.mark.parametrize("end", ["removed", "cleared", "lost", "gone"])
def test_much_is_taken_in_in_pieces(sizes, end):
    mirror = Mirror()
    tokens = ids("many", MANY * SIZE)
    where = covering(tokens, (2, MANY * SIZE - 1))
    mirror.cover("t", None, [A], where)
    assert mirror.apply(ONE, [told(tokens)]).back == (("t", (A,)),)
    assert resident_tokens(mirror, where.keys, SIZE) == MANY * SIZE
    changes = {
        "removed": lambda: mirror.apply(ONE, [Removed(tuple(range(MANY)))]),
        "cleared": lambda: mirror.apply(ONE, [Cleared()]),
        "lost": lambda: mirror.lost(ONE),
        "gone": lambda: mirror.remove("one"),
    }[end]()
    assert changes.gone == (("t", (A,)),)
    assert (changes.back, mirror.counts().kv_blocks) == ((), 0)
    assert 0 < max(sizes) <= AT_ONCE


def test_parts_are_the_same_events():
    stored = Stored((1, 2, 3), 9, (1, 1, 2, 2, 3, 3), 2, ("x", "", "y"), "CPU", 1)
    parts = list(in_parts([Removed((1, 2, 3), "CPU", 1), Cleared(), stored], 2))
    assert parts == [
        Removed((1, 2), "CPU", 1),
        Removed((3,), "CPU", 1),
        Cleared(),
        Stored((1, 2), 9, (1, 1, 2, 2), 2, ("x", ""), "CPU", 1),
        Stored((3,), 2, (3, 3), 2, ("y",), "CPU", 1),
    ]


def test_many_orphans_and_many_prompts_that_end_alike_are_left_alone(monkeypatch):
    steps = []
    runs = Orphans.runs

    def noted(self, contents, most):
        found = runs(self, contents, most)
        steps[-1] += found[1]
        return found

    adopt = Mirror._adopt

    def adopting(self, *what):
        steps.append(0)
        adopt(self, *what)

    monkeypatch.setattr(Orphans, "runs", noted)
    monkeypatch.setattr(Mirror, "_adopt", adopting)
    mirror = Mirror()
    end = ids("end", SIZE)
    for number in range(MAX_ASKED):
        tokens = [*ids(("prompt", number), 4 * SIZE), *end]
        mirror.cover("t", None, [block(number)], covering(tokens, (2, 4 * SIZE)), ONE, 3 * SIZE)
    for number in range(200):
        mirror.apply(ONE, [Stored((number,), 10_000 + number, tuple(end), SIZE)])
    assert max(steps) <= LOOKS
    counts = mirror.counts()
    assert (counts.adopted, counts.orphans) == (0, 200)
    assert counts.unclear > 0


def test_orphans_are_bounded_in_tokens(monkeypatch):
    monkeypatch.setattr(orphans_module, "MAX_TOKENS", 100)
    orphans = Orphans(1_000)
    for number in range(50):
        orphans.add(number, 1_000 + number, array("Q", range(number, number + 10)), "", ("GPU", 0))
    assert (len(orphans), orphans.dropped, 49 in orphans) == (10, 40, True)
    assert orphans.add(50, 2_000, array("Q", range(200)), "", ("GPU", 0))  # one alone is too much
    assert (len(orphans), orphans.dropped) == (0, 51)
    orphans.add(51, 2_001, array("Q", range(100)), "", ("GPU", 0))
    assert len(orphans) == 1


def cold(mirror, count):
    """Prompts that are answered without a report, and that no event tells of."""
    for number in range(count):
        tokens = ids(("cold", number), 4 * SIZE)
        mirror.cover("t", None, [block(number)], covering(tokens, (2, 3 * SIZE)), ONE)


def test_who_has_not_heard_everything_cannot_tell_that_a_prompt_is_missing():
    mirror = Mirror()
    cold(mirror, 2 * MAX_ASKED)
    assert (mirror.counts().covered, mirror.counts().mismatched) == (0, 0), "they may be cached, all of them"
    mirror.whole(ONE)
    cold(mirror, 2 * MAX_ASKED)
    assert mirror.counts().covered == 2 * MAX_ASKED
    assert mirror.counts().mismatched == MAX_ASKED
    mirror.lost(ONE)
    covered = mirror.counts().covered
    cold(mirror, 5)
    assert mirror.counts().covered == covered
    mirror.apply(ONE, [Cleared()])  # from here on it has heard everything
    cold(mirror, 5)
    assert mirror.counts().covered == covered + 5


def test_who_had_to_forget_has_not_heard_everything():
    mirror = Mirror(max_kv_blocks=8)
    mirror.whole(ONE)
    mirror.apply(ONE, [told(ids("some", 20 * SIZE))])
    assert mirror.counts().forgotten > 0
    cold(mirror, 5)
    assert mirror.counts().covered == 0


def test_those_who_ask_find_what_is_whole_while_much_is_told():
    """Threads ask all the time: nothing that they see is more than what was there before or is there afterwards."""
    mirror, stop, wrong = Mirror(), threading.Event(), []
    tokens, where = simple([A, B, C])
    mirror.cover("t", None, [A, B, C], where)
    whole = len(where.keys) * SIZE

    def asking():
        while not stop.is_set():
            found = mirror.expected("t", [A, B, C])
            if found is None or not 0 <= found <= whole:
                wrong.append(found)

    threads = [threading.Thread(target=asking) for _ in range(2)]
    for thread in threads:
        thread.start()
    numbers = random.Random(1)
    other = ids("other", 4 * AT_ONCE * SIZE)
    for _ in range(10):
        mirror.apply(ONE, [told(tokens, base=100_000), told(other)])
        assert mirror.expected("t", [A, B, C]) == where.ends[-1] // SIZE * SIZE
        mirror.apply(ONE, [numbers.choice([Cleared(), Removed(tuple(range(100_000, 100_100)))])])
        assert mirror.expected("t", [A, B, C]) == 0
        mirror.lost(ONE)
    stop.set()
    for thread in threads:
        thread.join(10)
    assert not wrong
