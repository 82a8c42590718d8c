"""Resuming: from any stored chat history the conversation goes on with the same bytes, and never points at nothing."""

from __future__ import annotations

import itertools
import json

import pytest
from contextpilot_rag import ContextPilot, expand
from hypothesis import given, settings
from hypothesis import strategies as st
from li_support import LONG, Listed, hostile, pick, scored
from llama_index.core.llms import ChatMessage, ImageBlock, MockLLM, TextBlock
from llama_index.core.memory import ChatMemoryBuffer, Memory
from llama_index.core.schema import NodeWithScore, TextNode

from llama_index.postprocessor.contextpilot import ContextPilotChatEngine
from llama_index.postprocessor.contextpilot.history import sent_before

SYSTEM = "Answer from the documents."
TURNS = [(0, 1, 2), (2, 3, 0), (1, 4), (3, 4, 5, 0)]


def chatting(llm, *lists, **options):
    lists = lists or tuple(pick(*places) for places in TURNS)
    return ContextPilotChatEngine.from_defaults(Listed(*lists), llm=llm, system_prompt=SYSTEM, **options)


def stored(messages):
    """What a database would give back."""
    return [ChatMessage.model_validate(json.loads(message.model_dump_json())) for message in messages]


@pytest.mark.parametrize("how", ["history", "chat_history=", "memory", "buffer"])
def test_after_a_restart_the_prompt_begins_with_the_one_before(engine, llm, how):
    first = chatting(llm)
    for number in range(3):
        first.chat(f"Question {number}?")
    history, options, given = stored(first.chat_history), {}, {}
    if how == "history":
        options = {"chat_history": history}
    elif how == "chat_history=":
        given = {"chat_history": history}
    elif how == "memory":
        options = {"memory": Memory.from_defaults(chat_history=history, token_limit=10**6)}
    else:
        options = {"memory": ChatMemoryBuffer.from_defaults(chat_history=history, token_limit=10**6)}
    second = chatting(llm, pick(3, 4, 5, 0), **options)  # another process: another pilot
    second.chat("Question 3?", **given)
    before, after = engine.requests[-2].messages, engine.requests[-1].messages
    assert after[: len(before)] == before
    assert "[4] (given above)" in after[-1]["content"]
    first.chat("Question 3?")
    assert engine.requests[-1].messages == after


def test_an_engine_for_each_request(engine, llm):
    pilot, history = ContextPilot(), []
    for number, places in enumerate(TURNS):
        chat = chatting(llm, pick(*places), pilot=pilot, conversation_id="c1", chat_history=history)
        chat.chat(f"Question {number}?")
        history = chat.chat_history
    sent = [request.messages for request in engine.requests]
    assert all(after[: len(before)] == before for before, after in itertools.pairwise(sent))


@pytest.mark.parametrize("kind", ["memory", "buffer", "given"])
def test_the_pilot_keeps_it_under_the_frameworks_own_name(engine, llm, kind):
    pilot = ContextPilot()
    memory = {
        "memory": lambda: Memory.from_defaults(session_id="c1", token_limit=10**6),
        "buffer": lambda: ChatMemoryBuffer.from_defaults(chat_store_key="c1", token_limit=10**6),
        "given": lambda: ChatMemoryBuffer.from_defaults(token_limit=10**6),
    }[kind]()
    chat = chatting(llm, pilot=pilot, memory=memory, conversation_id="c1" if kind == "given" else None)
    chat.chat("One?")
    kept = pilot.conversation("c1").messages
    assert tuple(kept[:2]) == engine.requests[-1].messages
    assert len(kept) == 3


def test_two_conversations_under_one_name_do_not_meet(engine, llm):
    pilot = ContextPilot()
    chats = [chatting(llm, pilot=pilot, conversation_id="c1") for _ in range(2)]
    for number in range(3):
        for name, chat in enumerate(chats):
            chat.chat(f"Question {number} of {name}?")
    for name in (0, 1):
        mine = engine.requests[-2 + name].messages
        assert not any(f"of {1 - name}?" in message["content"] for message in mine)
        assert len(mine) == 6


def test_a_long_history_is_cut_in_one_piece_and_survives_a_restart(engine, llm):
    lists = [scored(f"text {number} " * 60, LONG[0]) for number in range(12)]
    chat = chatting(llm, *lists, max_history_tokens=1500)
    cuts = 0
    for number in range(12):
        chat.chat(f"Question {number}?")
        if number % 4 == 3:
            chat = chatting(
                llm, *lists[number + 1 :] or [[]], max_history_tokens=1500, chat_history=stored(chat.chat_history)
            )
    for before, after in zip(engine.requests, engine.requests[1:], strict=False):
        if after.messages[: len(before.messages)] != before.messages:
            cuts += 1
            assert len(after.messages) < len(before.messages)
        assert after.messages[0] == {"role": "system", "content": SYSTEM}
        everything = "".join(message["content"] for message in after.messages)
        assert LONG[0].strip() in everything
        assert "(given above)" not in "".join(message["content"] for message in expand(list(after.messages)))
    assert 1 <= cuts <= 4
    assert len(chat.chat_history) == 24  # users still see everything


@pytest.mark.parametrize("lost", [1, 2, 3, 4])
def test_where_a_memory_has_dropped_messages_nothing_points_at_them(engine, llm, lost):
    first = chatting(llm)
    for number in range(4):
        first.chat(f"Question {number}?")
    second = chatting(llm, pick(0, 5), pick(0, 5, 1), chat_history=stored(first.chat_history)[lost:])
    second.chat("Question 4?")
    sent = engine.requests[-1].messages
    restored = expand(list(sent))
    assert "(given above)" not in "".join(message["content"] for message in restored)
    turns = [message["content"] for message in restored if message["role"] == "user"]
    for turn, places in zip(turns, TURNS[(lost + 1) // 2 :], strict=False):
        assert all(LONG[place].strip() in turn for place in places)
    second.chat("Question 5?")
    assert engine.requests[-1].messages[: len(sent)] == sent


@pytest.mark.parametrize("lost", [0, 1, 2, 4])
def test_the_same_with_parts_of_texts_left_out(engine, llm, lost):
    clauses = [f"Clause {number}. " + f"The supplier shall deliver part {number} in time. " * 6 for number in range(4)]
    lists = [scored("\n".join(clauses[:3])), scored("\n".join(clauses[1:])), scored("\n".join(clauses), clauses[0])]
    pilot = ContextPilot(dedup="blocks+chunks")
    first = chatting(llm, *lists, pilot=pilot)
    for number in range(3):
        first.chat(f"[1] {clauses[0]}?" if number else "One?")
    assert "same text as in [1]" in engine.requests[-1].messages[3]["content"]
    second = chatting(
        llm, lists[2], chat_history=stored(first.chat_history)[lost:], pilot=ContextPilot(dedup="blocks+chunks")
    )
    second.chat("Four?")
    turns = [one["content"] for one in expand(list(engine.requests[-1].messages)) if one["role"] == "user"]
    for turn, given_ in zip(turns, [*lists, lists[2]][(lost + 1) // 2 :], strict=True):
        assert all(node.text.strip() in turn for node in given_)
    if not lost:
        assert engine.requests[-1].messages[:6] == engine.requests[-2].messages


def test_an_edited_question_is_what_is_sent(engine, llm):
    first = chatting(llm)
    first.chat("Question 0?")
    first.chat("Question 1?")
    history = stored(first.chat_history)
    history[0].content = "Another question?"
    chatting(llm, pick(0), chat_history=history).chat("Question 2?")
    sent = engine.requests[-1].messages
    assert sent[1]["content"].endswith("</documents>\n\nAnother question?")
    assert sent[3] == engine.requests[1].messages[3]


def test_other_messages_are_sent_as_they_are(engine, llm):
    image = ImageBlock(url="http://127.0.0.1/i.png")
    history = [
        ChatMessage(role="user", blocks=[TextBlock(text="What is this?"), image]),
        ChatMessage(role="assistant", content="A cat."),
        ChatMessage(role="user", content=f"<documents>\n[1] {LONG[1]}\n</documents>\n\nmine"),
        ChatMessage(role="assistant", content="Yes."),
    ]
    chat = chatting(llm, chat_history=history)
    chat.chat("One?")
    chat.chat("Two?")
    sent = engine.requests[-1].messages
    assert [part["type"] for part in sent[1]["content"]] == ["text", "image_url"]
    assert sent[3]["content"].endswith("mine")
    assert sent[: len(engine.requests[0].messages)] == engine.requests[0].messages


JUNK = [None, 7, "x", [], {}, {"sent": 1, "at": 0}, {"sent": "x"}, {"sent": "q", "at": "0"}]
JUNK += [{"sent": "q", "at": 0, "texts": {"a": 1}}, {"sent": "q", "at": 0, "history": [1]}]


@pytest.mark.parametrize("record", JUNK)
def test_a_record_that_is_none_is_passed_over(record):
    message = ChatMessage(role="user", content="q", additional_kwargs={"contextpilot": record})
    assert sent_before([message]) == [{"role": "user", "content": "q"}]


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(st.lists(hostile, max_size=3), hostile), min_size=1, max_size=4), st.data())
def test_any_texts_and_questions(turns, data):
    sent = []

    class Recording(MockLLM):
        def chat(self, messages, **kwargs):
            sent.append([(message.role.value, message.content) for message in messages])
            return super().complete("x" * len(sent)) and super().chat(messages, **kwargs)

    history = []
    for texts, question in turns:
        # Metadata that nobody is shown: older retrievers drop what has the same text and the same metadata.
        nodes = [
            NodeWithScore(node=TextNode(text=text, metadata={"n": place}, excluded_llm_metadata_keys=["n"]))
            for place, text in enumerate(texts)
        ]
        memory = ChatMemoryBuffer.from_defaults(chat_history=history, token_limit=10**9)
        chat = ContextPilotChatEngine.from_defaults(Listed(nodes), llm=Recording(), memory=memory)
        response = chat.chat(question)
        assert [node.text for node in response.source_nodes] == texts
        assert chat.failures == 0
        history = chat.chat_history
        assert [message.content for message in history if message.role == "user"][-1] == question
    for before, after in itertools.pairwise(sent):
        assert after[: len(before)] == before
    lost = data.draw(st.integers(min_value=0, max_value=len(history)))
    given_above = [one["content"] for one in expand(sent_before(history[lost:])) if one["role"] == "user"]
    for (texts, _), content in zip(turns[(lost + 1) // 2 :], given_above, strict=True):
        assert all(text in content for text in texts if text.strip())
