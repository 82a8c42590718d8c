"""The chat engine says what would cost more than it should, or fail: once, and the turn goes out all the same."""

from __future__ import annotations

from contextpilot_rag import ContextPilot
from li_support import Listed, llm_of, pick, scored

from llama_index.postprocessor.contextpilot import ContextPilotChatEngine


def chatting(llm, *lists, **options):
    return ContextPilotChatEngine.from_defaults(Listed(*(lists or (pick(0, 1),))), llm=llm, **options)


def said(caplog, part):
    return [record.getMessage() for record in caplog.records if part in record.getMessage()]


def test_a_turn_that_is_longer_than_the_context_window(engine, caplog):
    small = llm_of(engine, context_window=500)
    chat = chatting(small, scored("short"), scored("word " * 2_000), scored("more " * 2_000))
    chat.chat("One?")
    assert said(caplog, "context_window") == []
    chat.chat("Two?")
    chat.chat("Three?")
    (message,) = said(caplog, "context_window of 500")
    assert "max_history_tokens" in message
    assert len(engine.requests) == 3
    assert chat.failures == 0


def test_a_history_that_is_never_cut(engine, caplog):
    chat = chatting(
        llm_of(engine, context_window=500), *(scored(f"text {number} " * 30) for number in range(9)),
        max_history_tokens=10_000,
    )  # fmt: skip
    for number in range(9):
        chat.chat(f"Question {number}?")
    assert len(said(caplog, "context_window of 500")) == 1


def test_another_system_prompt_in_a_resumed_conversation(engine, llm, caplog):
    pilot, history = ContextPilot(), []
    for system in ("It is Monday.", "It is Monday.", "It is Tuesday.", "It is Tuesday.", None):
        chat = chatting(llm, pilot=pilot, conversation_id="c1", system_prompt=system, chat_history=history)
        chat.chat("Which?")
        history = chat.chat_history
        changed = len(engine.requests) >= 3
        assert len(said(caplog, "another system_prompt than before")) == changed
    assert [request.cached_tokens > 0 for request in engine.requests] == [False, True, False, True, False]
    assert chat.failures == 0


def test_histories_of_others_are_no_news(engine, llm, caplog):
    first = chatting(llm, system_prompt="One.")
    first.chat("Which?")
    stored = first.chat_history
    for record in (None, 7, {"sent": "x", "at": 0}, {"sent": "x", "at": 0, "system": 7}):
        stored[0].additional_kwargs["contextpilot"] = record
        chatting(llm, system_prompt="Two.", chat_history=stored).chat("And?")
    assert said(caplog, "system_prompt") == []
