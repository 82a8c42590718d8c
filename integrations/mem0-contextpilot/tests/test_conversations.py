"""Conversations: whose they are, and how they go on in another process."""

from __future__ import annotations

import itertools
import json

import pytest
from contextpilot_rag import ContextPilot, Namespace
from contextpilot_rag.errors import InputError
from hypothesis import given
from hypothesis import strategies as st

from mem0_contextpilot import AsyncContextPilotMemory, ContextPilotMemory

from .stage import LONG, AsyncNotes, Notes, item, reply

ALICE, BOB = {"user_id": "alice"}, {"user_id": "bob"}
SYSTEM = "Answer from what you know."


def contents(context):
    return [message["content"] for message in context.messages()]


@pytest.mark.parametrize("shared", ["for all", "for the call", "both"])
def test_a_shared_namespace_shares_no_conversation(shared):
    """The namespace is about the cache: two users may share that, and never a conversation."""
    memory = ContextPilotMemory(Notes(reply(*LONG)), namespace=None if shared == "for the call" else "team")
    call = {} if shared == "for all" else {"namespace": Namespace("team")}
    memory.context("alice asks", **ALICE, conversation="main", **call).answer("alice's answer")
    bob = memory.context("bob asks", **BOB, conversation="main", **call)
    assert len(bob.messages()) == 1
    assert "alice" not in "".join(contents(bob))
    assert bob.again == frozenset()
    assert bob.namespace == Namespace("team")  # and the cache is shared as before
    bob.answer("bob's answer")
    again = memory.context("alice asks more", **ALICE, conversation="main", **call)
    assert contents(again)[1:2] == ["alice's answer"]
    assert "bob" not in "".join(contents(again))


async def test_nor_in_async_code():
    memory = AsyncContextPilotMemory(AsyncNotes(reply(*LONG)), namespace="team")
    (await memory.context("alice asks", **ALICE, conversation="main")).answer("alice's answer")
    assert len((await memory.context("bob asks", **BOB, conversation="main")).messages()) == 1


values = st.sampled_from(["alice", "bob", "1", 1, "*", '"', "", "\ud800", {"in": ["alice", "bob"]}, {"in": ["bob"]}])
ids = st.dictionaries(st.sampled_from(["user_id", "agent_id", "app_id", "run_id"]), values, max_size=3)
spaces = st.sampled_from([None, "team", "alice", Namespace(), Namespace("team", "m"), '{"user_id":"alice"}'])


parts = st.sampled_from([{}, {"OR": [{"day": 1}]}, {"OR": [{"run_id": "1"}]}, {"NOT": [{"user_id": "bob"}]}])
requests = st.lists(st.tuples(ids, parts, spaces, st.booleans()), max_size=8)


@given(requests, spaces, st.sampled_from([None, "acme"]))
def test_no_two_sets_of_ids_meet_in_a_conversation(asked, shared, tenant):
    memory = ContextPilotMemory(Notes(reply(*LONG[:2])), ContextPilot(namespace=tenant), namespace=shared)
    for own, part, space, nested in asked:
        # As Mem0 has it, 1 is "1".
        owner = json.dumps({name: value if isinstance(value, dict) else str(value) for name, value in own.items()})
        owner = " ".join(["of", *sorted(map(repr, json.loads(owner).items()))])
        owner += str(part) if "_id" in str(part) else ""
        filters = {"AND": [{name: value} for name, value in own.items()]} if nested and own else own
        filters = {**filters, **part}
        context = memory.context(owner, filters=filters, conversation="main", namespace=space)
        assert all(text.endswith(f"\n{owner}") for text in contents(context)[::2])
        context.answer(owner)
    assert memory.failures == 0


def test_what_is_looked_for_may_change_from_turn_to_turn():
    """OR and NOT about anything but ids; these make a namespace of their own, so one has to be given."""
    memory = ContextPilotMemory(Notes(reply("tea")), namespace="alice's")
    for turn, filters in enumerate(
        [
            {"user_id": "alice"},
            {"user_id": "alice", "day": 1},
            {"user_id": "alice", "OR": [{"day": 1}, {"day": 2}]},
            {"AND": [{"user_id": "alice"}, {"NOT": [{"day": 3}]}]},
        ]
    ):
        context = memory.context("q", filters=filters, conversation="main")
        assert len(context.messages()) == 2 * turn + 1
        context.answer("a")
    for filters in (
        {"user_id": "alice", "OR": [{"user_id": "bob"}]},
        {"user_id": "alice", "NOT": [{"OR": [{"run_id": "1"}]}]},
        {"user_id": "alice", "$or": [{"run_id": "1"}]},
        {"user_id": "alice", "and": [{"run_id": "1"}]},
        {"user_id": "alice", "AND": {"user_id": "bob"}},
        {"OR": [{"user_id": "alice"}]},
        {"day": 1},
        None,
    ):
        context = memory.context("q", filters=filters, conversation="main")
        assert len(context.messages()) == 1
        context.answer("a")


def test_names_of_two_types_are_two_names():
    memory = ContextPilotMemory(Notes(reply("tea")))
    for name in (1, True, 1.0, "1", (1,)):
        context = memory.context("q", **ALICE, conversation=name)
        assert len(context.messages()) == 1
        context.answer("a")
        assert len(memory.context("q", **ALICE, conversation=name).messages()) == 3


@pytest.mark.parametrize("wrong", ["", [], {}, (["a"],)])
def test_what_is_no_name(wrong):
    notes = Notes(reply("tea"))
    with pytest.raises(InputError, match="conversation's name must"):
        ContextPilotMemory(notes).context("q", **ALICE, conversation=wrong)
    assert notes.calls == []


def test_filters_without_words_never_find_a_conversation_again():
    class Unspeakable:
        def __repr__(self):
            raise RuntimeError("no words")

    memory = ContextPilotMemory(Notes(reply("tea")), namespace="team")
    for _ in range(2):
        context = memory.context("q", filters={"OR": [{"place": Unspeakable()}]}, conversation="main")
        assert len(context.messages()) == 1
        context.answer("a")


def evening(memory, questions, **more):
    for question in questions:
        context = memory.context(question, **ALICE, conversation="evening", threshold=0.0, **more)
        more.pop("messages", None)
        context.answer(f"About {question}")
    return context


@pytest.mark.parametrize("namespace", [None, "team"])
def test_resumed_in_another_process(own, namespace):
    for text in LONG:
        own.add(text, **ALICE, infer=False)
    whole = evening(ContextPilotMemory(own, namespace=namespace), ["one", "two", "three"], system=SYSTEM)
    first = evening(ContextPilotMemory(own, namespace=namespace), ["one", "two"], system=SYSTEM)
    saved = json.loads(json.dumps(first.conversation.messages))

    later = ContextPilotMemory(own, namespace=namespace)
    context = later.context("three", **ALICE, conversation="evening", messages=saved, threshold=0.0)
    assert context.messages()[: len(saved)] == saved
    assert context.messages() == whole.conversation.messages[:-1]  # byte for byte as if nothing had happened
    assert context.system == SYSTEM
    assert (context.again, context.labels, context.extra_body) == (whole.again, whole.labels, whole.extra_body)
    context.answer("About three")
    more = later.context("four", **ALICE, conversation="evening", threshold=0.0)  # it is kept from now on
    assert more.messages()[:-1] == whole.conversation.messages
    assert len(later.context("four", **BOB, conversation="evening", threshold=0.0).messages()) == 1


async def test_resumed_in_async_code():
    saved = evening(ContextPilotMemory(Notes(reply(*LONG))), ["one"]).conversation.messages
    memory = AsyncContextPilotMemory(AsyncNotes(reply(*LONG)))
    context = await memory.context("two", **ALICE, conversation="evening", messages=saved)
    assert len(context.again) == len(LONG)


def test_the_messages_count():
    """Whoever keeps them gives them each time; they are right, also where the pilot has seen less, or more."""
    workers = [ContextPilotMemory(Notes(reply(*LONG))) for _ in range(2)]
    saved = []
    for number, memory in enumerate(itertools.islice(itertools.cycle(workers), 6)):
        context = memory.context(f"{number}?", **ALICE, conversation="evening", messages=saved, system=SYSTEM)
        assert context.messages()[:-1] == (saved or [{"role": "system", "content": SYSTEM}])
        context.answer(f"{number}.")
        saved = json.loads(json.dumps(context.conversation.messages))
    assert len(saved) == 13
    context = workers[1].context("again?", **ALICE, conversation="evening", messages=saved[:5])  # asked anew from there
    assert context.messages()[:-1] == saved[:5]


def test_messages_that_cannot_be():
    memory = ContextPilotMemory(Notes(reply("tea")))
    saved = evening(memory, ["one"], system=SYSTEM).conversation.messages
    with pytest.raises(InputError, match="give its name"):
        memory.context("two", **ALICE, messages=saved)
    for wrong in ("text", [7], {"role": "user"}):
        with pytest.raises(InputError, match="message"):
            memory.context("two", **ALICE, conversation="c", messages=wrong)
    with pytest.raises(InputError, match=r"system prompt.*leave it out"):
        memory.context("two", **ALICE, conversation="c", messages=saved, system="Be brief.")


def test_its_labels_are_ids_of_memories():
    memory = ContextPilotMemory(Notes(reply(LONG[0], LONG[1]), reply(LONG[2], LONG[0])))
    first = memory.context("one", **ALICE, conversation="c")
    assert first.conversation.labels == first.labels == {1: "slices", 2: "steps"}
    first.answer("1")
    second = memory.context("two", **ALICE, conversation="c")
    assert second.labels == {3: "copies", 1: "slices"}
    assert second.conversation.labels == {1: "slices", 2: "steps", 3: "copies"}


def test_also_where_ids_are_odd():
    """No id, one that comes twice or cannot be a name: with the place in the reply, and nothing gets lost."""
    texts = [*LONG, "tea", "milk"]
    odd = ["m1", "m1", None, ["m"], 7, 7.0, ("m1", 1)]
    found = [item(name, text) for name, text in zip(odd, texts, strict=True)]
    context = ContextPilotMemory(Notes({"results": found})).context("q", **ALICE, conversation="c")
    assert [one["memory"] for (one,) in context.memories.values()] == texts
    assert list(context.labels.values()) == odd
    names = ["m1", ("m1", 1), (None, 2), (None, 3), 7, (7.0, 5), (None, 6)]
    assert list(context.conversation.labels.values()) == names
