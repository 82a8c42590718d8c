"""Eight threads on one conversation, and on many: nothing breaks, nothing is lost."""

from __future__ import annotations

import sys
import threading

import pytest

from contextpilot_rag import ContextPilot
from contextpilot_rag.expand import expand, read_full
from tests.dedup.material import CODE, TABLE

THREADS, ROUNDS = 8, 20


@pytest.fixture(autouse=True)
def threads_take_turns_often():
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


def in_threads(work):
    """Let threads work, and raise what one of them raised."""
    errors = []
    begin = threading.Barrier(THREADS)

    def run(number):
        try:
            begin.wait()
            work(number)
        except Exception as error:  # noqa: BLE001  whatever it is, the test shows it
            errors.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def test_one_conversation():
    pilot = ContextPilot(dedup="blocks+chunks")
    talk = pilot.conversation("x", system="S")

    def work(number):
        for count in range(ROUNDS):
            prompt = pilot.conversation("x").align(
                [(number, f"{number} {TABLE}"), ("code", CODE)], f"{number} {count}?"
            )
            full = list(read_full(prompt.messages()))[-1]
            assert {block.text for block in full.blocks} == {f"{number} {TABLE}", CODE}
            talk.add({"role": "tool", "tool_call_id": "a", "content": f"{number} {count} {CODE}"})
            talk.add({"role": "assistant", "content": f"answer {number} {count}"})
            if count % 10 == 9:
                assert len(talk.messages) > 1
                assert talk.characters > 0

    in_threads(work)
    messages = expand(talk.messages)
    everything = [(number, count) for number in range(THREADS) for count in range(ROUNDS)]
    said = [message["content"] for message in messages]
    for number, count in everything:
        assert said.count(f"answer {number} {count}") == 1
        assert said.count(f"{number} {count} {CODE}") == 1
    assert len(set(pilot.conversation("x").align([TABLE, CODE]).numbers)) == 2


def test_many_conversations_while_they_are_forgotten_and_cut():
    pilot = ContextPilot(dedup="blocks+chunks", max_conversations=5)
    alone = ContextPilot(dedup="blocks+chunks", order="retrieved")

    def work(number):
        talk, messages = None, []
        for count in range(ROUNDS):
            talk = pilot.conversation((number, "own"), namespace=f"tenant {number % 3}", messages=messages)
            pilot.conversation(("shared", count % 7)).add({"role": "user", "content": f"{number} {count}"})
            if count % 10 == 9:
                talk.truncate(2000)
            talk.align([f"{number} {TABLE}", f"{count % 4} {CODE}"], "?", order="retrieved")
            talk.answer(f"{number} {count}")
            messages = talk.messages
            if count % 8 == 7:
                pilot.conversation(("shared", count % 7)).truncate(50)
        again = alone.conversation(messages=messages)
        assert again.messages == messages
        assert expand(messages)[-2]["content"].startswith("<documents>")
        assert f"{number} {TABLE}" in expand(messages)[-2]["content"]

    in_threads(work)
    assert pilot.failures == 0
