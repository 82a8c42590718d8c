"""Forked children: what other threads held at that moment, nobody gives back to them."""

from __future__ import annotations

import gc
import os
import random
import signal
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import pytest

from contextpilot_rag import ContextPilot, LocalIndex
from contextpilot_rag.adapter import Adapter
from contextpilot_rag.forking import after_fork

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here"),
    pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning"),
]

TEXTS = [f"{name} " * 40 for name in ("slices", "steps", "copies", "sets")]


class Broken(LocalIndex):
    def align(self, request):
        raise OSError("no route to host")


@contextmanager
def held(lock: AbstractContextManager[object]) -> Iterator[None]:
    """Another thread has the lock."""
    taken, release = threading.Event(), threading.Event()

    def hold() -> None:
        with lock:
            taken.set()
            release.wait(60)

    thread = threading.Thread(target=hold)
    thread.start()
    taken.wait(60)
    try:
        yield
    finally:
        release.set()
        thread.join()


def in_child(act: Callable[[], object]) -> bool:
    """Whether something comes to its end in a forked child, and gives something true."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            signal.alarm(5)
            status = 0 if act() else 2
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_what_a_pilot_has_is_not_locked_in_the_child():
    pilot = ContextPilot(tokenizer=len)
    broken = ContextPilot(Broken())
    adapter = Adapter(pilot)
    talk = pilot.conversation("c1")
    entry = next(iter(pilot._conversations._entries.values()))
    cases = [
        (pilot.index._lock, lambda: pilot.align(TEXTS)),
        (pilot._tokens._lock, lambda: pilot.align(TEXTS)),
        (broken._failures._lock, lambda: broken.align(TEXTS)),
        (pilot._conversations._lock, lambda: pilot.conversation("c1") is talk),
        (entry.making, lambda: pilot.conversation("c1") is talk),
        (talk._lock, lambda: talk.align(TEXTS)),
        (adapter._lock, lambda: adapter.arrange(TEXTS)),
    ]
    for number, (lock, act) in enumerate(cases):
        with held(lock):
            assert in_child(act), number
        assert act()


def test_a_tree_that_was_being_worked_on_is_dropped_in_the_child_and_no_other():
    pilot = ContextPilot()
    for space in ("torn", "whole"):
        pilot.align(TEXTS, namespace=space)
    (torn, whole) = pilot.index._shares

    def look() -> object:
        known = [pilot.index.tree(space) is not None for space in (torn, whole)]
        moved = [pilot.align(TEXTS[::-1], namespace=space).changed for space in (torn, whole)]
        counted = pilot.stats().tree_blocks, pilot.index._blocks
        return (known, moved, counted) == ([False, True], [False, True], (8, 8))

    with held(pilot.index._shares[torn].lock):
        assert in_child(look)
    assert pilot.index.tree(torn) is not None


def test_a_turn_that_was_being_made_is_none_in_the_child():
    talk = ContextPilot().conversation(system="Be brief.")
    talk.align(TEXTS[:2], "What?")
    talk.answer("This [1].")
    before = talk.messages
    talk.align(TEXTS[2:], "And?")

    def goes_on() -> object:
        again = talk.align(TEXTS[1:3], "And then?")
        return (talk.messages, again.messages()[:3], again.again) == (before, before, {2})

    with held(talk._lock):
        assert in_child(goes_on)
    talk.answer("That [3].")
    assert len(talk.messages) == 5


def test_children_work_that_were_forked_while_threads_worked():
    pilot = ContextPilot(tokenizer=len, max_namespaces=3, order="throughput")
    stop = threading.Event()

    def work(seed: int) -> None:
        numbers = random.Random(seed)
        while not stop.is_set():
            chosen = [f"{numbers.random()} {numbers.choice(TEXTS)}" for _ in range(6)]
            pilot.conversation(numbers.randrange(3)).align(chosen)
            pilot.align(chosen, namespace=str(numbers.randrange(5)))

    def work_on() -> object:
        for space in range(5):
            pilot.align(TEXTS, namespace=str(space))
            assert set(pilot.align(TEXTS[::-1], namespace=str(space)).order) == {0, 1, 2, 3}
        return pilot.failures == 0

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(3)]
    for thread in threads:
        thread.start()
    try:
        assert all(in_child(work_on) for _ in range(20))
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def test_nobody_is_kept_alive_for_a_fork():
    class Owner:
        pass

    owner = Owner()
    gone = weakref.ref(owner)
    after_fork(owner, lambda _: None)
    del owner
    gc.collect()
    assert gone() is None
