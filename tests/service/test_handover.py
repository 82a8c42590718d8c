"""What threads find out reaches the trees in order, all of it; nobody waits for ever, neither threads nor the loop."""

from __future__ import annotations

import asyncio
import threading

import pytest

from contextpilot_rag.engines.passages import Changes
from contextpilot_rag.service.handover import Back, Empty, Forgetting, Gone, Handover, steps_of
from contextpilot_rag.types import BlockRef, Namespace

SECONDS = 20.0


def gone(number, name=""):
    return Gone(("tenant", name, Namespace()), (BlockRef(number, 1),))


async def taken(handover, count):
    found = []
    while len(found) < count:
        await asyncio.wait_for(handover.wait(), SECONDS)
        while (step := handover.next()) is not None:
            found.append(step)
        await asyncio.sleep(0)
    return found


async def test_threads_are_bounded_and_each_ones_steps_stay_in_order():
    handover, most = Handover(most=10), 0
    handover.open()

    def bring(name):
        for number in range(200):
            handover.put([gone(2 * number, name), gone(2 * number + 1, name)])

    threads = [threading.Thread(target=bring, args=(name,)) for name in "abc"]
    for thread in threads:
        thread.start()
    found = []
    while len(found) < 1_200:
        await asyncio.wait_for(handover.wait(), SECONDS)
        most = max(most, len(handover))
        step = handover.next()
        if step is not None:
            found.append(step)
    for thread in threads:
        thread.join(SECONDS)
    assert most <= 10 + 1, "a bunch that began below the limit was taken whole, and no other"
    for name in "abc":
        numbers = [step.path[0].key for step in found if step.space[1] == name]
        assert numbers == list(range(400))


async def test_who_waits_is_let_go_when_it_is_closed():
    handover = Handover(most=1)
    handover.open()
    handover.put([gone(1)])
    waiting = threading.Thread(target=handover.put, args=([gone(2)],))
    waiting.start()
    await asyncio.sleep(0.05)
    assert waiting.is_alive(), "it waits for room"
    handover.close()
    waiting.join(SECONDS)
    assert not waiting.is_alive()
    handover.put([gone(3)])
    assert handover.next() is None


async def test_sizes_never_wait_and_the_last_one_counts():
    handover = Handover(most=1)
    handover.open()
    handover.put([gone(1)])
    for number in range(100):
        handover.sized(number, 16)
    await asyncio.wait_for(handover.wait(), SECONDS)
    assert (handover.size(), handover.size()) == ((99, 16), None)


async def test_a_step_that_comes_just_then_is_not_missed():
    handover = Handover()
    handover.open()
    for number in range(300):
        thread = threading.Thread(target=handover.put, args=([gone(number)],))
        thread.start()
        assert await taken(handover, 1) == [gone(number)]
        thread.join(SECONDS)


def test_what_is_gone_is_said_before_what_is_back_and_empty_stands_for_all_of_it():
    space = ("tenant", "", Namespace())
    one, other = (BlockRef("a", 1),), (BlockRef("b", 1),)
    changes = Changes(((space, one),), ((space, other),))
    assert steps_of(changes) == [Gone(space, one), Back(space, other)]
    assert steps_of(changes, empty=True) == [Empty(), Back(space, other)]


@pytest.mark.parametrize(
    ("forgetting", "concerned"),
    [
        (Forgetting("tenant", "a", None), {"plain", "head", "corpus"}),
        (Forgetting("tenant", "a", Namespace()), {"plain", "head"}),
        (Forgetting("tenant", "a", Namespace(head="h")), {"head"}),
        (Forgetting("tenant", "a", Namespace(corpus="c")), {"corpus"}),
        (Forgetting("tenant", "b", None), set()),
        (Forgetting("corpus", "a", None), set()),
    ],
)
def test_what_a_forgetting_concerns(forgetting, concerned):
    spaces = {"plain": Namespace(), "head": Namespace(head="h"), "corpus": Namespace(corpus="c")}
    assert {name for name, space in spaces.items() if forgetting.concerns(("tenant", "a", space))} == concerned
