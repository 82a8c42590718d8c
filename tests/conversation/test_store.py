"""The conversations that a pilot keeps: found by name and namespace, bounded in number, age and length."""

from __future__ import annotations

import threading
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextpilot_rag import AsyncContextPilot, ContextPilot, Namespace
from contextpilot_rag.conversation import Conversations
from contextpilot_rag.errors import InputError, SettingsError
from tests.dedup.material import CODE, TABLE

ACME, OTHER = Namespace("acme"), Namespace("other")


class Clock:
    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


class Talk:
    """A conversation of some length."""

    def __init__(self, characters=0):
        self.characters = characters

    def watch(self, used):
        self.used = lambda: used(self)


def kept_or(new, kept):
    return new if kept is None else kept


def store_of(most=100, seconds=100, characters=1000):
    clock = Clock()
    return Conversations(most, seconds, characters, clock), clock


visits = st.tuples(
    st.sampled_from([ACME, OTHER]), st.sampled_from("abcd"), st.integers(0, 60), st.sampled_from([0, 0, 1, 30, 99, 100])
)


@given(st.lists(visits, max_size=20), st.integers(1, 5))
def test_as_a_list_that_is_looked_through(all_visits, most):
    store, clock = store_of(most, 100, 100)
    entries = []  # used longest ago first: key, time, conversation, its length when it was last asked for
    for space, name, grows, waits in all_visits:
        clock.now += waits
        entries = [entry for entry in entries if entry[1] > clock.now - 100]
        before = next((entry[2] for entry in entries if entry[0] == (space, name)), None)
        new = Talk()
        found = store.get(space, name, partial(kept_or, new))
        assert found is (new if before is None else before)
        entries = [entry for entry in entries if entry[0] != (space, name)]
        entries.append(((space, name), clock.now, found, found.characters))
        while len(entries) > most or (sum(entry[3] for entry in entries) > 100 and len(entries) > 1):
            del entries[0]
        assert len(store) == len(entries)
        found.characters += grows


def test_names_belong_to_namespaces():
    store, _ = store_of()
    talks = {
        (space, name): store.get(space, name, lambda _: Talk()) for space in (ACME, OTHER) for name in (1, "1", None)
    }
    assert len(set(map(id, talks.values()))) == 6
    for (space, name), talk in talks.items():
        assert store.get(space, name, lambda kept: kept) is talk


def test_forgetting_one_all_of_a_namespace_and_all():
    store, _ = store_of()
    for space in (ACME, OTHER):
        for name in "ab":
            store.get(space, name, lambda _: Talk(10))
    assert store.forget_one(ACME, "a")
    assert not store.forget_one(ACME, "a")
    assert store.get(ACME, "b", lambda kept: kept or Talk()).characters == 10
    store.forget(ACME)
    assert len(store) == 2
    store.forget()
    assert len(store) == 0


def test_what_cannot_be_made_leaves_all_as_it_was():
    store, _ = store_of()
    talk = store.get(ACME, "a", lambda _: Talk(10))

    def fails(_):
        raise InputError("no")

    for name in "ab":
        with pytest.raises(InputError):
            store.get(ACME, name, fails)
    assert store.get(ACME, "a", lambda kept: kept) is talk
    assert len(store) == 1


# As the pilot uses it


def talk_of(pilot, name, *texts, **options):
    talk = pilot.conversation(name, **options)
    for text in texts:
        talk.align([text], "Why?")
        talk.answer("So.")
    return talk


def test_a_pilot_keeps_the_conversations_used_last():
    pilot = ContextPilot(max_conversations=2)
    first, second = talk_of(pilot, "a", TABLE), talk_of(pilot, "b", TABLE)
    assert pilot.conversation("a") is first
    talk_of(pilot, "c", TABLE)
    assert pilot.conversation("a") is first
    assert pilot.conversation("b") is not second


def test_a_pilot_keeps_so_many_characters():
    pilot = ContextPilot(conversation_characters=4000)  # each block is held twice: in full and as it was sent
    first, second = talk_of(pilot, "a", "x" * 900), talk_of(pilot, "b", "y" * 900)
    assert (pilot.conversation("a"), pilot.conversation("b")) == (first, second)
    third = talk_of(pilot, "c", "z" * 900)
    assert pilot.conversation("c") is third
    assert pilot.conversation("b") is second
    assert pilot.conversation("a") is not first


@pytest.mark.parametrize(
    "add",
    [
        lambda talk: talk.align(["x" * 5000], "Why?"),
        lambda talk: talk.ask("x" * 5000),
        lambda talk: talk.add({"role": "tool", "content": "x" * 5000}),
        lambda talk: talk.add({"role": "assistant", "tool_calls": [{"function": {"arguments": "x" * 5000}}]}),
        lambda talk: talk.add({"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x" * 5000}}]}),
    ],
)
def test_all_that_is_held_counts_as_soon_as_it_is(add):
    pilot = ContextPilot(conversation_characters=4000)
    first, second = pilot.conversation("a"), pilot.conversation("b")
    add(second)
    assert pilot.conversation("b") is second
    assert pilot.conversation("a") is not first


def test_originals_that_are_kept_to_be_searched_count_too():
    talk = ContextPilot(dedup="blocks+chunks").conversation()
    for _ in range(30):
        talk.add({"role": "tool", "content": TABLE * 20})
    assert len(talk.messages[-1]["content"]) < 20 * len(TABLE) / 2
    assert talk.characters > 30 * 20 * len(TABLE)


def test_every_use_counts_as_one():
    clock = Clock()
    pilot = ContextPilot(max_conversations=2)
    pilot._conversations._clock = clock
    used, other = talk_of(pilot, "a", TABLE), talk_of(pilot, "b", TABLE)
    for _ in range(10):
        clock.now += 80_000
        used.align([TABLE], "Why?")
        used.answer("So.")
    assert pilot.conversation("a") is used
    used.align([TABLE], "Why?")
    assert pilot.conversation("b") is not other
    pilot.conversation("b")
    used.answer("So.")
    pilot.conversation("c")
    assert pilot.conversation("a") is used


def test_nobody_waits_for_another_conversation():
    busy, done = threading.Event(), threading.Event()

    def slow(text):
        if "slow" in text:
            busy.set()
            assert done.wait(30)
        return 5

    pilot = ContextPilot(tokenizer=slow)
    talk = pilot.conversation("a", namespace="acme")
    workers = [threading.Thread(target=talk.align, args=(["slow"], "Why?"), daemon=True)]
    workers.append(threading.Thread(target=pilot.conversation, args=("a",), kwargs={"namespace": "acme"}, daemon=True))
    workers[0].start()
    assert busy.wait(30)
    workers[1].start()
    assert pilot.conversation("b", namespace="other").messages == []
    done.set()
    for worker in workers:
        worker.join(30)


def test_an_empty_name_is_most_likely_a_missing_one():
    with pytest.raises(InputError, match="must not be empty"):
        ContextPilot().conversation("")


def test_names_of_two_types_are_two_names():
    pilot = ContextPilot()
    assert len({id(pilot.conversation(name)) for name in (1, True, 1.0, "1")}) == 4


def test_a_conversation_that_was_forgotten_goes_on_from_its_messages():
    pilot = ContextPilot(max_conversations=1, dedup="blocks+chunks")
    talk = talk_of(pilot, "a", TABLE, CODE)
    pilot.conversation("b")
    again = pilot.conversation("a", messages=talk.messages)
    assert again is not talk
    assert pilot.conversation("a") is again
    assert pilot.conversation("a", messages=talk.messages) is again
    one, other = (each.align([CODE, TABLE], "And?").messages() for each in (talk, again))
    assert one == other
    assert "[2] (given above)\n\n[1] (given above)" in one[-1]["content"]


def test_other_messages_make_another_conversation():
    pilot = ContextPilot()
    talk = talk_of(pilot, "a", TABLE, CODE)
    shorter = pilot.conversation("a", messages=talk.messages[:2])
    assert shorter.messages == talk.messages[:2]
    assert pilot.conversation("a") is shorter
    assert len(talk.messages) == 4


def test_a_conversation_without_a_name_is_not_kept():
    pilot = ContextPilot()
    assert pilot.conversation() is not pilot.conversation()


def test_forgetting_a_namespace_forgets_its_conversations():
    pilot = ContextPilot(namespace="acme")
    own, other = pilot.conversation("a"), pilot.conversation("a", namespace="other")
    pilot.forget("acme")
    assert pilot.conversation("a") is own
    pilot.forget("acme", conversations=True)
    assert pilot.conversation("a") is not own
    assert pilot.conversation("a", namespace="other") is other


def test_errors_say_what_is_wrong():
    pilot = ContextPilot()
    for name in (["a"], ("a", {})):
        with pytest.raises(InputError, match="name must be hashable"):
            pilot.conversation(name)
    with pytest.raises(InputError, match="message 1 must be a mapping with a role"):
        pilot.conversation("a", messages=["Why?"])
    with pytest.raises(SettingsError, match="namespace"):
        pilot.conversation("a", namespace=7)
    assert pilot.conversation("a").messages == []


@pytest.mark.parametrize("kind", [ContextPilot, AsyncContextPilot])
async def test_one_conversation_is_forgotten_by_its_name_and_no_other(kind):
    pilot = kind(namespace="acme")
    names = [("acme", "a"), ("acme", 1), ("acme", True), ("other", "a")]
    talks = [pilot.conversation(name, namespace=space) for space, name in names]

    async def forget(name, **of):
        done = pilot.forget_conversation(name, **of)
        return await done if kind is AsyncContextPilot else done

    assert await forget("a")
    assert await forget(1)
    assert not await forget("a")
    assert not await forget("of nobody", namespace="other")
    assert [
        pilot.conversation(name, namespace=space) is talk for (space, name), talk in zip(names, talks, strict=True)
    ] == [False, False, True, True]
    with pytest.raises(InputError, match="must not be empty"):
        await forget("")
