"""What the middleware sends instead of what stands in the state: tools' results, and histories that were cut."""

from __future__ import annotations

import copy

import pytest
from contextpilot_rag import ContextPilot, expand
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_hooks import LONG, found, returning, sent, turn
from langchain_openai import ChatOpenAI

from langchain_contextpilot import ContextPilotMiddleware, sources

TOOL = "All systems were checked and found to be in working order, as they were last week and before. " * 2


def tool_message(content, number, name="search"):
    return ToolMessage(content, tool_call_id=str(number), name=name, artifact=["kept"])


def test_what_tools_repeat_is_not_sent_again():
    middleware = ContextPilotMiddleware(returning(found("slices")))
    messages = turn(middleware, [], "?")
    messages += [AIMessage("", id="a"), tool_message(TOOL, 1), tool_message(LONG["slices"] + "\n\n" + TOOL, 2)]
    before = copy.deepcopy(messages)
    seen = sent(middleware, messages, system_prompt="Be brief.").messages
    assert messages == before
    assert seen[:3] == messages[:3]
    assert seen[3].content.count("[same text as in ") == 2
    assert seen[3].content.startswith("[same text as in [1] at 0: ")
    assert "in message 4 at 0: " in seen[3].content
    assert (seen[3].artifact, seen[3].tool_call_id) == (["kept"], "2")
    wire = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": seen[0].content}]
    wire += [
        {"role": role, "content": one.content}
        for role, one in zip(("assistant", "tool", "tool"), seen[1:], strict=True)
    ]
    assert expand(wire)[4]["content"] == messages[3].content


LINES = st.lists(
    st.sampled_from([TOOL, LONG["slices"], "short", "[1] a", TOOL[:90], "\\[same text as in "]), max_size=4
)
CALLS = st.lists(st.tuples(st.booleans(), LINES.map("\n".join)), max_size=7)


@given(CALLS, st.booleans())
def test_every_prompt_of_a_loop_of_tools_begins_with_the_one_before(calls, has_system):
    middleware = ContextPilotMiddleware(returning(found("slices", "steps"), found("steps", "sets")))
    messages, before = [], []
    for number, (asks, text) in enumerate(calls):
        if asks or not messages:
            messages = turn(middleware, messages, text or "?")
        else:
            messages = [*messages, tool_message(text, number)]
        seen = sent(middleware, messages, system_prompt="Be brief." if has_system else None).messages
        assert seen[: len(before)] == before
        before = [*seen, AIMessage(TOOL)]
        messages = [*messages, AIMessage(TOOL)]
    roles = {"human": "user", "ai": "assistant", "tool": "tool"}
    wire = [{"role": roles[one.type], "content": one.content} for one in before]
    full = expand([*([{"role": "system", "content": "Be brief."}] if has_system else []), *wire])[-len(wire) or None :]
    assert [one["content"] for one in full if one["role"] == "tool"] == [
        one.content for one in messages if one.type == "tool"
    ]
    assert middleware.failures == 0


@pytest.mark.parametrize(
    ("options", "hints"),
    [({}, 1), ({"tools": False}, 0), ({"tools": ["search"]}, 1), ({"tools": {"other"}}, 0)]
    + [({"pilot": ContextPilot(dedup=level)}, number) for level, number in [("off", 0), ("blocks+chunks", 1)]],
)
def test_which_tools(options, hints):
    middleware = ContextPilotMiddleware(**options)
    messages = [HumanMessage("?"), AIMessage(""), tool_message(TOOL, 1, "theirs"), tool_message(TOOL, 2)]
    seen = sent(middleware, messages).messages
    assert seen[3].content.count("[same text as in message 3 at 0") == hints
    assert seen[:3] == messages[:3]


def test_a_text_that_is_too_long_is_sent_as_it_is():
    middleware = ContextPilotMiddleware(pilot=ContextPilot(max_text=200))
    messages = [tool_message(text, number) for number, text in enumerate([TOOL, TOOL + TOOL, TOOL])]
    seen = sent(middleware, messages).messages
    assert seen[:2] == messages[:2]
    assert seen[2].content.startswith("[same text as in message 1 at 0")
    assert middleware.failures == 0


def test_what_fails_costs_nothing_else(monkeypatch):
    """A tenant's salt is sent whatever breaks."""

    def fail(*_):
        raise RuntimeError

    monkeypatch.setattr("langchain_contextpilot.middleware.without_repeats", fail)
    monkeypatch.setattr("langchain_contextpilot.middleware.mended", fail)
    middleware = ContextPilotMiddleware()
    model = ChatOpenAI(base_url="http://127.0.0.1:9/v1", api_key="none")
    messages = [tool_message(TOOL, 1), tool_message(TOOL, 2)]
    seen = sent(middleware, messages, model=model, state={"messages": [], "contextpilot_space": ["acme", "", ""]})
    assert seen.messages == messages
    assert seen.model_settings["extra_body"] == middleware.pilot.extra_body("acme")
    assert middleware.failures == 2


def test_a_history_that_was_cut_has_no_hint_that_points_nowhere():
    middleware = ContextPilotMiddleware(returning(found("slices", "steps"), found("steps", "sets"), found("sets", "a")))
    messages = []
    for number in range(3):
        messages = [*turn(middleware, messages, f"{number}?"), AIMessage(f"{number}.")]
    assert sent(middleware, messages).messages == messages
    seen = sent(middleware, messages[2:]).messages
    assert seen[0].content == f"<documents>\n[2] {LONG['steps']}\n\n[3] {LONG['sets']}\n</documents>\n\n1?"
    assert seen[1:] == messages[3:]
    seen = sent(middleware, [SystemMessage("Summary."), *messages[4:]]).messages
    assert LONG["sets"] in seen[1].content
    again = turn(middleware, messages[4:], "3?")[-1].content
    assert again.startswith("<documents>\n[3] (given above)\n\n[4] a\n</documents>")  # a hint would be longer


def test_a_note_that_was_forged_changes_nothing():
    for note in [
        {},
        {"question": 7},
        {"question": "", "blocks": [7, {"label": "1"}, {"label": 1, "text": 7}]},
        7,
        None,
    ]:
        messages = [
            HumanMessage("<documents>\n[1] (given above)\n</documents>", additional_kwargs={"contextpilot": note})
        ]
        middleware = ContextPilotMiddleware()
        assert sent(middleware, messages).messages == messages
        assert sources(messages) == {}
        assert middleware.failures == 0
