"""Stored messages that somebody edited: what they no longer say is not sent, and no hint points at something else."""

from __future__ import annotations

import asyncio
import itertools

import pytest
from contextpilot_rag import expand
from contextpilot_rag.errors import SettingsError
from hypothesis import given, settings
from hypothesis import strategies as st
from li_support import LONG, Listed, pick, scored
from llama_index.core.llms import ChatMessage, ImageBlock, MockLLM
from llama_index.core.memory import ChatMemoryBuffer

from llama_index.postprocessor.contextpilot import ContextPilotChatEngine
from llama_index.postprocessor.contextpilot.history import KEY, sent_before

HINT = "(given above)"


class Recording(MockLLM):
    """Keeps what it was sent."""

    def chat(self, messages, **kwargs):
        self.__dict__.setdefault("sent", []).append(list(messages))
        return super().chat(messages, **kwargs)


def chatting(*lists, history=(), **options):
    llm = Recording(max_tokens=3)
    memory = ChatMemoryBuffer.from_defaults(chat_history=list(history), token_limit=10**9)
    options = {"system_prompt": "Be brief.", "memory": memory, **options}
    return ContextPilotChatEngine.from_defaults(Listed(*lists), llm=llm, **options), llm.__dict__.setdefault("sent", [])


def conversation(*turns, **options):
    """What is stored after some turns, each with some nodes."""
    chat, _ = chatting(*(pick(*places) for places in turns), **options)
    for number in range(len(turns)):
        chat.chat(f"Question {number}?")
    return copied(chat.chat_history)


def copied(messages):
    return [ChatMessage.model_validate_json(message.model_dump_json()) for message in messages]


def asked(history, places, **options):
    """The user messages that are sent when a conversation goes on from a history."""
    chat, sent = chatting(pick(*places), history=history, **options)
    chat.chat("And now?")
    assert chat.failures == 0
    return [message.content for message in sent[-1] if message.role == "user"]


def test_an_edited_question_with_documents_that_a_later_turn_points_to():
    history = conversation((0,), (0, 1))
    history[0] = ChatMessage(role="user", content="Edited by a moderator.")
    first, second, third = asked(history, (0, 1))
    assert first == "Edited by a moderator."
    assert second.startswith(f"<documents>\n[1] {LONG[0].strip()}")
    assert second.endswith("Question 1?")
    assert third.startswith(f"<documents>\n[1] {HINT}\n\n[2] {HINT}")


def test_a_summary_pair_in_place_of_a_turn():
    history = conversation((0,), (0, 1))
    history[:2] = [ChatMessage(role="user", content="Summary."), ChatMessage(role="assistant", content="Good.")]
    assert LONG[0].strip() in asked(history, (1,))[1]


def test_another_turn_in_the_place_of_one_with_the_same_label():
    other = conversation((2,))
    first, second, third = asked(other + conversation((0,), (0, 1))[2:], (0, 2))
    assert LONG[2].strip() in first
    assert second.startswith(f"<documents>\n[1] {LONG[0].strip()}")
    assert HINT not in third  # [1] stands for two texts
    assert LONG[0].strip() in third
    assert LONG[2].strip() in third


def test_lost_keywords_of_one_message():
    history = conversation((0,), (0, 1))
    history[0].additional_kwargs = {}
    assert LONG[0].strip() in asked(history, (1,))[1]


@pytest.mark.parametrize("edited", ["4711, help?", "help?", "", "Question 0", "question 0?"])
def test_any_edit_of_a_question_counts(edited):
    chat, _ = chatting(pick(0))
    chat.chat("My password is 4711, help?")
    history = copied(chat.chat_history)
    history[0] = history[0].model_copy(deep=True, update={"blocks": ChatMessage(content=edited).blocks})
    first, _ = asked(history, (1,))
    assert "My password" not in first
    assert first == f"<documents>\n[1] {LONG[0].strip()}" + " \n</documents>" + (f"\n\n{edited}" if edited else "")


def test_an_image_that_was_added_is_sent():
    history = conversation((0,), (0, 1))
    history[0].blocks.append(ImageBlock(image=b"aGk="))
    chat, sent = chatting(pick(0, 1), history=history)
    chat.chat("And now?")
    chat.chat("Then?")
    _, message, _, second, *_ = sent[0]
    assert [block.block_type for block in message.blocks] == ["text", "text", "image"]
    assert message.additional_kwargs == {}
    assert LONG[0].strip() in message.blocks[0].text
    assert HINT not in second.content  # it could only point at a part of a message
    assert sent[1][: len(sent[0])] == sent[0]


def cut_conversation():
    """A history of which the first turns were cut off, and how many turns it has."""
    lists = [scored(f"text {number} " * 60, LONG[0]) for number in range(6)]
    chat, sent = chatting(*lists, max_history_tokens=900)
    while not any("kept" in message.additional_kwargs.get(KEY, {}) for message in chat.chat_history):
        chat.chat(f"Password {len(sent)}?")
    chat.chat("Last?")
    history = copied(chat.chat_history)
    return history, max(place for place, one in enumerate(history) if "kept" in one.additional_kwargs.get(KEY, {}))


def test_after_a_cut_the_bytes_stay():
    lists = [scored(f"text {number} " * 60, LONG[0]) for number in range(9)]
    chat, sent = chatting(*lists, max_history_tokens=900)
    for number in range(9):
        resumed, again = chatting(lists[number], history=copied(chat.chat_history), max_history_tokens=900)
        resumed.chat(f"Question {number}?")
        chat.chat(f"Question {number}?")
        assert [one.content for one in again[-1]] == [one.content for one in sent[-1]]
    grown = [after[: len(before)] == before for before, after in itertools.pairwise(sent)]
    assert grown.count(False) in (1, 2, 3)


@pytest.mark.parametrize("what", ["question", "answer", "deleted"])
def test_an_edit_before_a_cut_counts(what):
    history, cut = cut_conversation()
    question = history[cut - 2].content
    if what == "question":
        history[cut - 2] = ChatMessage(role="user", content="Another.")
    elif what == "answer":
        history[cut - 1] = ChatMessage(role="assistant", content="REDACTED")
    else:
        del history[:cut]
    chat, sent = chatting(pick(1), history=history, max_history_tokens=900)
    chat.chat("And now?")
    everything = [message.content for message in sent[-1]]
    assert chat.failures == 0
    if what == "answer":
        assert "REDACTED" in everything
    else:
        assert not any(content.endswith(question) for content in everything)
    restored = expand([{"role": one.role.value, "content": one.content} for one in sent[-1]])
    assert HINT not in "".join(message["content"] for message in restored)


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_no_hint_ever_means_another_text(data):
    """Any messages of two conversations, in any order, with edits: each turn's texts stand in it or before it."""
    turns = st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=3, unique=True), min_size=1, max_size=3)
    pool = []
    for _ in range(2):
        places = data.draw(turns)
        history = conversation(*places)
        pool += [(history[2 * number], places[number]) for number in range(len(places))]
        pool += [(history[2 * number + 1], []) for number in range(len(places))]
    chosen = data.draw(st.lists(st.sampled_from(pool), max_size=6))
    stored = []
    for message, _ in chosen:
        edit = data.draw(st.sampled_from(["", "", "question", "record"]))
        one = message.model_copy(deep=True)
        if edit == "question":
            one.blocks = ChatMessage(content="Edited.").blocks
        if edit == "record":
            one.additional_kwargs = {}
        stored.append(one)
    sent = sent_before(stored)
    restored = expand(sent)
    for (_, places), one, full in zip(chosen, stored, restored, strict=True):
        if one.additional_kwargs:
            assert all(LONG[place].strip() in full["content"] for place in places)
            assert full["content"].endswith(one.content)
        else:
            assert full["content"] == one.content
    for number in range(len(stored)):  # what came later changes nothing
        assert sent_before(stored[:number]) == sent[:number]


def test_a_turn_that_fails_begins_with_all_that_was_sent(monkeypatch):
    chat, sent = chatting(pick(0), pick(1), pick(0, 1))
    chat.chat("One?")
    monkeypatch.setattr("llama_index.postprocessor.contextpilot.turns.intake", lambda *_: 1 / 0)
    chat.chat("Two?")
    monkeypatch.undo()
    chat.chat("Three?")
    assert chat.failures == 1
    assert all(after[: len(before)] == before for before, after in itertools.pairwise(sent))
    assert sent[1][-1].content == f"{LONG[1]}\n\nTwo?"
    assert all(message.additional_kwargs == {} for messages in sent for message in messages)


def test_even_where_the_history_cannot_be_read_nothing_of_ours_is_sent(monkeypatch):
    chat, sent = chatting(pick(0), pick(1))
    chat.chat("One?")
    monkeypatch.setattr("llama_index.postprocessor.contextpilot.turns.sent_before", lambda *_: 1 / 0)
    chat.chat("Two?")
    assert [message.additional_kwargs for message in sent[-1]] == [{}] * 4
    assert chat.failures == 1


def test_a_key_that_is_no_str_fails_no_turn():
    nodes = pick(0)
    nodes[0].node.metadata[1] = "not a str"
    chat, sent = chatting(nodes, pick(0))
    chat.chat("One?")
    chat.chat("Two?")
    assert chat.failures == 0
    assert f"1: not a str\n\n{LONG[0].strip()}" in sent[0][-1].content
    assert sent[1][: len(sent[0])] == sent[0]


def test_sources_share_no_metadata_with_the_nodes():
    nodes = pick(0)
    nodes[0].node.metadata["pages"] = {"of": [1]}
    chat, _ = chatting(nodes)
    chat.chat("One?").source_nodes[0].node.metadata["pages"]["of"].append(2)
    assert nodes[0].node.metadata["pages"] == {"of": [1]}


@pytest.mark.parametrize("name", ["", ("a", []), []])
def test_an_id_that_no_conversation_can_have(name):
    with pytest.raises(SettingsError, match="hashable and not empty"):
        chatting(pick(0), conversation_id=name)


async def test_an_index_that_is_elsewhere_does_not_keep_the_event_loop_waiting():
    import threading

    from contextpilot_rag import ContextPilot

    asked, free, let_go = threading.Event(), threading.Event(), []

    class Slow:
        def align(self, _request):
            asked.set()
            let_go.append(free.wait(30))
            raise OSError("no route to host")

        observe = predict = align

    chat, _ = chatting(pick(0, 1), pilot=ContextPilot(Slow()))
    chatted = asyncio.create_task(chat.achat("One?"))
    assert await asyncio.to_thread(asked.wait, 30)
    assert not chatted.done()
    free.set()
    await chatted
    assert all(let_go), "the loop went on while the index had not answered"
