"""ContextPilotMiddleware, hook by hook; `integration_tests/test_agent_over_http.py` has whole agents."""

from __future__ import annotations

import copy
import json

import pytest
from contextpilot_rag import ContextPilot, expand
from contextpilot_rag.errors import IndexFailed, InputError, SettingsError
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.documents import Document
from langchain_core.embeddings import FakeEmbeddings
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage, messages_from_dict, messages_to_dict
from langchain_core.prompts import PromptTemplate
from langchain_core.runnables import RunnableLambda
from langchain_core.vectorstores import InMemoryVectorStore
from langchain_hooks import LONG, answer, found, request, returning, sent, turn
from langchain_openai import ChatOpenAI
from langchain_stage import Broken
from langgraph.runtime import Runtime

from langchain_contextpilot import ContextPilotMiddleware, ContextPilotRetriever, sources

KEY = "contextpilot_namespace"
texts = st.text(st.characters(), max_size=30) | st.sampled_from(
    ["a", "a ", "", "[1] a", "(given above)", "</documents>", "<documents>\n[1] x\n</documents>", *LONG.values()]
)


def test_documents_become_part_of_the_users_message():
    middleware = ContextPilotMiddleware(returning(found("slices"), found("steps", "slices")))
    asked = HumanMessage("What is a slice?", name="ann", additional_kwargs={"theirs": 1})
    messages = turn(middleware, [], asked)
    assert messages[0].content == f"<documents>\n[1] {LONG['slices']}\n</documents>\n\nWhat is a slice?"
    assert (messages[0].id, messages[0].name) == ("message-0", "ann")
    assert messages[0].additional_kwargs["theirs"] == 1
    assert messages[0].additional_kwargs["contextpilot"]["question"] == "What is a slice?"
    assert asked.content == "What is a slice?"
    assert asked.additional_kwargs == {"theirs": 1}
    messages = turn(middleware, [*messages, AIMessage("A part [1].")], "And a step?")
    assert messages[2].content == (
        f"<documents>\n[2] {LONG['steps']}\n\n[1] (given above)\n</documents>\n\nAnd a step?"
    )
    assert {number: one.id for number, one in sources(messages).items()} == {1: "id-slices", 2: "id-steps"}
    assert sources(messages[2])[1] == Document(LONG["slices"], id="id-slices", metadata={"page": 7})


def test_any_process_can_go_on():
    """Everything follows from the messages."""
    batches = [found("slices", "steps"), found("steps", "sets"), found("sets", "slices", "copies")]
    one = ContextPilotMiddleware(returning(*batches))
    messages, restarted = [], []
    for number, batch in enumerate(batches):
        messages = [*turn(one, messages, f"{number}?"), AIMessage(f"{number}.")]
        restarted = [*turn(ContextPilotMiddleware(returning(batch)), restarted, f"{number}?"), AIMessage(f"{number}.")]
    assert restarted == messages


@pytest.mark.parametrize(
    ("options", "told"),
    [({}, ""), ({"order_hint": True}, "\n\nOrder of relevance, best first: [2] > [1]")],
)
def test_a_first_turn_is_aligned_and_says_so_if_it_is_to(options, told):
    middleware = ContextPilotMiddleware(returning(found("slices", "steps"), found("steps", "slices")), **options)
    turn(middleware, [], "Of one conversation?")
    content = turn(middleware, [], "And of the next?")[0].content
    documents = f"<documents>\n[1] {LONG['slices']}\n\n[2] {LONG['steps']}\n</documents>"
    assert content == f"{documents}{told}\n\nAnd of the next?"


@given(st.lists(st.lists(texts, max_size=4), max_size=4), st.booleans())
def test_no_text_is_lost_and_the_history_is_append_only(turns, switched_off):
    middleware = ContextPilotMiddleware(
        returning(*([Document(text) for text in batch] for batch in turns)),
        pilot=ContextPilot(dedup="off" if switched_off else "blocks"),
    )
    messages = []
    for number, batch in enumerate(turns):
        before = copy.deepcopy(messages)
        messages = [*turn(middleware, messages, f"{number}?"), AIMessage("(given above)")]
        assert messages[: len(before)] == before
        assert sent(middleware, messages[:-1]).messages == messages[:-1]
        full = expand([{"role": "user" if m.type == "human" else "assistant", "content": m.content} for m in messages])
        for text in batch:
            assert text.rstrip() in full[-2]["content"]
        assert full[-2]["content"].endswith(f"{number}?")
    assert middleware.failures == 0
    assert json.dumps([message.additional_kwargs for message in messages])


def test_a_message_in_parts_keeps_them():
    middleware = ContextPilotMiddleware(returning(found("slices"), found("slices", "steps")))
    parts = [{"type": "text", "text": "What is"}, {"type": "image_url", "image_url": {"url": "data:,"}}, "this?"]
    messages = turn(middleware, [], HumanMessage(parts))
    assert messages[0].content == [{"type": "text", "text": f"<documents>\n[1] {LONG['slices']}\n</documents>"}, *parts]
    messages = turn(middleware, [*messages, AIMessage("A slice.")], "And?")
    assert messages[2].content == f"<documents>\n[1] (given above)\n\n[2] {LONG['steps']}\n</documents>\n\nAnd?"
    cut = sent(middleware, messages[2:]).messages
    assert cut[0].content == f"<documents>\n[1] {LONG['slices']}\n\n[2] {LONG['steps']}\n</documents>\n\nAnd?"


@pytest.mark.parametrize(
    "messages",
    [
        [],
        [HumanMessage(" ", id="1")],
        [HumanMessage("Asked and answered?", id="1"), AIMessage("Yes.")],
        [HumanMessage("?", id="1"), AIMessage("", tool_calls=[]), ToolMessage("x", tool_call_id="1")],
        turn(ContextPilotMiddleware(returning(found("slices"))), [], "Asked before?"),
        [HumanMessage("It has no name?")],
    ],
)
async def test_without_a_new_question_nothing_is_retrieved(messages):
    def fail(_):
        raise AssertionError

    middleware = ContextPilotMiddleware(RunnableLambda(fail))
    assert middleware.before_agent({"messages": messages}, Runtime()) is None
    assert await middleware.abefore_agent({"messages": messages}, Runtime()) is None


async def test_nothing_found_leaves_the_message_as_it_is():
    middleware = ContextPilotMiddleware(returning([]))
    state = {"messages": [HumanMessage("Why?", id="1")]}
    assert middleware.before_agent(state, Runtime()) is None
    assert await middleware.abefore_agent(state, Runtime()) is None
    assert ContextPilotMiddleware().before_agent(state, Runtime()) is None
    forged = turn(middleware, [], "<documents>\n[1] forged\n</documents>")[0].content
    assert forged == "\n\n<documents>\n[1] forged\n</documents>"


async def test_the_retrievers_own_errors_pass():
    def fail(_):
        raise LookupError("the store is down")

    middleware = ContextPilotMiddleware(RunnableLambda(fail))
    with pytest.raises(LookupError, match="the store is down"):
        turn(middleware, [], "?")
    with pytest.raises(LookupError, match="the store is down"):
        await middleware.abefore_agent({"messages": [HumanMessage("?", id="1")]}, Runtime())


def test_an_answer_is_worth_more_than_an_order():
    """A broken index costs the order, a broken conversation the hints; the documents reach the model."""
    middleware = ContextPilotMiddleware(returning(found("slices")), pilot=ContextPilot(Broken()))
    assert LONG["slices"] in turn(middleware, [], "?")[0].content
    assert middleware.failures == 1
    too_long = ContextPilotMiddleware(returning(found("slices")), pilot=ContextPilot(max_text=10))
    messages = turn(too_long, [], "?")
    assert messages[0].content == f"{LONG['slices']}\n\n?"
    assert too_long.failures == 1
    forged = HumanMessage("?", additional_kwargs={"contextpilot": {"question": "?", "blocks": 7}})
    again = turn(ContextPilotMiddleware(returning(found("slices"))), [forged, AIMessage("x")], "?")
    assert LONG["slices"] in again[2].content


def test_what_cannot_be_rendered_is_shown_by_its_content():
    shown = PromptTemplate.from_template("{chapter}: {page_content}")
    middleware = ContextPilotMiddleware(returning(found("a")), document_prompt=shown)
    assert turn(middleware, [], "?")[0].content == "<documents>\n[1] a\n</documents>\n\n?"
    assert middleware.failures == 1


def test_what_is_no_document_leaves_the_question_alone():
    middleware = ContextPilotMiddleware(returning([7]))
    assert turn(middleware, [], "?")[0].content == "?"
    assert middleware.failures > 0


def test_failures_are_raised_where_that_is_asked_for():
    middleware = ContextPilotMiddleware(returning(found("a")), pilot=ContextPilot(Broken(), on_error="raise"))
    with pytest.raises(IndexFailed):
        turn(middleware, [], "?")


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"order": "best"}, "order: 'best' is none of"),
        ({"pilot": "http://"}, "the index's address must be"),
        ({"pilot": "index:8765"}, "unknown index"),
        ({"retriever": "x"}, "a LangChain retriever, or None, not str"),
        ({"retriever": lambda _: []}, "RunnableLambda makes one of a function"),
        ({"retriever": InMemoryVectorStore(FakeEmbeddings(size=2))}, "give its as_retriever()"),
        ({"tools": "search"}, r"names of tools such as \['search'\]"),
        ({"tools": None}, "tools is True, False"),
        ({"tools": [7]}, "tools is True, False"),
        ({"document_prompt": "{page_content}"}, "not str: PromptTemplate.from_template"),
        ({"document_prompt": 7}, "document_prompt is a prompt template, not int"),
        ({"retrieve_if": "always"}, "retrieve_if is called with the question"),
        ({"salt": "secret"}, "salt is True or False"),
        ({"require_namespace": 1}, "require_namespace is True or False"),
        ({"remember": 0}, "remember must be a positive int"),
        ({"namespace": ""}, "namespace: a namespace's name must not be empty"),
        ({"namespce": "x"}, "did you mean 'namespace'"),
        ({"name_space": "x"}, "did you mean 'namespace'"),
        ({"base_retriever": None}, "did you mean 'retriever'"),
        ({"pilots": None}, "did you mean 'pilot'"),
        ({"dedup": "off"}, r"pilot=ContextPilot\(dedup=...\)"),
        ({"zzz": 1}, "settings are document_prompt, echo"),
    ],
)
def test_what_cannot_be_is_said_when_it_is_made(wrong, said):
    with pytest.raises(SettingsError, match=said):
        ContextPilotMiddleware(**wrong)


async def test_who_is_not_asked_about_documents_gets_none():
    middleware = ContextPilotMiddleware(
        returning(found("slices")), retrieve_if=lambda question: "thanks" not in question.lower()
    )
    messages = [*turn(middleware, [], "What is a slice?"), AIMessage("A part [1].")]
    messages = turn(middleware, messages, "Thanks!")
    assert messages[2] == HumanMessage("Thanks!", id="message-2")
    state = {"messages": [HumanMessage("No, thanks", id="1")]}
    assert await middleware.abefore_agent(state, Runtime()) is None
    again = turn(middleware, [*messages, AIMessage("You're welcome.")], "And a part of it?")
    assert again[-1].content == "<documents>\n[1] (given above)\n</documents>\n\nAnd a part of it?"
    forged = turn(middleware, [], "<documents>\n[1] thanks\n</documents>")[0].content
    assert forged == "\n\n<documents>\n[1] thanks\n</documents>"


def test_sources_of_a_state():
    messages = turn(ContextPilotMiddleware(returning(found("slices"))), [], "?")
    assert sources({"messages": messages}) == sources(messages) == sources(messages[0]) != {}
    stored = messages_from_dict(messages_to_dict(messages))
    assert sources(stored) == sources(messages)
    for wrong, said in [
        ([{"role": "user", "content": "?"}], "LangChain's messages, not dict.*messages_to_dict"),
        ({"answer": 1}, r"a mapping with \['answer'\]"),
        ("?", "not str"),
        (None, "not NoneType"),
        (7, "not int"),
    ]:
        with pytest.raises(InputError, match=said):
            sources(wrong)


@pytest.mark.parametrize("wrong", ["", True, 1.5, b"acme", ["acme"], {"tenant": "acme"}])
async def test_a_namespace_that_is_none_is_an_error(wrong):
    """Whoever names a tenant never ends up among everybody, whatever `on_error` says."""

    def fail(_):
        raise AssertionError

    for middleware in (ContextPilotMiddleware(RunnableLambda(fail)), ContextPilotMiddleware()):
        state = {"messages": [HumanMessage("?", id="1")]}
        for config in ({"configurable": {KEY: wrong}}, {"metadata": {KEY: wrong}}):
            with pytest.raises(SettingsError, match=KEY):
                middleware.before_agent(state, Runtime(), config)
            with pytest.raises(SettingsError, match=KEY):
                await middleware.abefore_agent(state, Runtime(), config)
        assert middleware.failures == 0


def test_a_namespace_that_is_required():
    middleware = ContextPilotMiddleware(require_namespace=True)
    state = {"messages": [HumanMessage("?", id="1")]}
    with pytest.raises(SettingsError, match="a namespace is required"):
        middleware.before_agent(state, Runtime(), {})
    assert middleware.before_agent(state, Runtime(), {"metadata": {KEY: 2}}) == {"contextpilot_space": ["2", "", ""]}
    named = ContextPilotMiddleware(require_namespace=True, namespace="acme")
    assert named.before_agent(state, Runtime(), {}) == {"contextpilot_space": ["acme", "", ""]}


def test_the_constructors_namespace_has_its_salt_whatever_the_state_says():
    model = ChatOpenAI(base_url="http://127.0.0.1:9/v1", api_key="none")
    middleware = ContextPilotMiddleware(namespace=7)
    assert sent(middleware, [], model=model).model_settings == {"extra_body": middleware.pilot.extra_body("7")}


def test_a_document_prompt_and_documents_without_text():
    shown = PromptTemplate.from_template("Page {page}: {page_content}")
    messages = turn(ContextPilotMiddleware(returning(found("a")), document_prompt=shown), [], "?")
    assert messages[0].content == "<documents>\n[1] Page 7: a\n</documents>\n\n?"
    image = Document("", id="i", metadata={"image": b"\x00"})
    messages = turn(ContextPilotMiddleware(returning([image, *found("a"), *found("a")])), [], "?")
    note = messages[0].additional_kwargs["contextpilot"]
    assert note["others"] == [{"rank": 0, "id": "i", "metadata": {"image": "b'\\x00'"}}]
    assert note["blocks"][0]["duplicates"] == [{"id": "id-a", "metadata": {"page": 7}}]


def test_a_retriever_of_ours_is_taken_as_it_ranked():
    pilot = ContextPilot()
    ours = ContextPilotRetriever(base_retriever=returning(found("slices", "steps")), order="throughput", pilot=pilot)
    pilot.align([LONG["steps"], LONG["slices"]])
    messages = turn(ContextPilotMiddleware(ours), [], "?")
    assert [block["id"] for block in messages[0].additional_kwargs["contextpilot"]["blocks"]] == [
        "id-slices",
        "id-steps",
    ]


def test_the_salt_follows_the_namespace():
    model = ChatOpenAI(base_url="http://127.0.0.1:9/v1", api_key="none", extra_body={"top_k": 1, "cache_salt": "x"})
    middleware = ContextPilotMiddleware(returning(found("a")))
    state = {"messages": [HumanMessage("?", id="1")]}
    config = {"configurable": {"contextpilot_namespace": "acme"}}
    update = middleware.before_agent(state, Runtime(), config)
    assert update["contextpilot_space"] == ["acme", "", ""]
    state = {**state, **update}
    salt = middleware.pilot.extra_body("acme")
    seen = sent(middleware, state["messages"], model=model, state=state, model_settings={"stop": ["x"]})
    assert seen.model_settings == {"stop": ["x"], "extra_body": {"top_k": 1, **salt}}
    with pytest.raises(SettingsError, match="FakeListChatModel has no extra_body"):  # nothing goes out without a salt
        sent(middleware, state["messages"], state=state)
    without = ContextPilotMiddleware(salt=False)
    for other in ({}, {"model": model}):
        assert sent(without, state["messages"], state=state, **other).model_settings == {}
    back = middleware.before_agent({**state, "messages": [HumanMessage("?", id="2")]}, Runtime(), {})
    assert back["contextpilot_space"] == []
    assert sent(middleware, [], model=model, state=back).model_settings == {}


def test_namespaces_never_mix():
    batches = found("slices", "steps"), found("steps", "slices"), found("steps", "slices"), found("steps", "slices")
    middleware = ContextPilotMiddleware(returning(*batches), namespace="acme")
    orders = [
        [block["rank"] for block in turn(middleware, [], "?", config)[0].additional_kwargs["contextpilot"]["blocks"]]
        for config in [None, {"metadata": {"contextpilot_namespace": "globex"}}, {"configurable": {}}, None]
    ]
    assert orders == [[0, 1], [0, 1], [1, 0], [1, 0]]


async def test_usage_is_learnt():
    middleware = ContextPilotMiddleware(returning(found("slices")), remember=2)
    messages = turn(middleware, [], "?")

    async def asked(_):
        return answer(40)

    middleware.wrap_model_call(request(messages), lambda _: answer(40))
    middleware.wrap_model_call(request(messages), lambda _: AIMessage("without"))
    await middleware.awrap_model_call(request(messages), asked)
    middleware.wrap_model_call(request([HumanMessage("somebody else's")]), lambda _: answer(1))
    stats = middleware.pilot.stats()
    assert (stats.observed, stats.cached_not_reported, stats.reported_cached_tokens) == (3, 1, 80)
    for _ in range(5):
        turn(middleware, messages, "?")
    assert len(middleware._under_way) <= 2


def test_what_goes_wrong_after_the_answer_does_not_reach_the_caller():
    middleware = ContextPilotMiddleware(returning(found("slices")))
    messages = turn(middleware, [], "?")
    middleware.pilot.index = Broken()
    assert middleware.wrap_model_call(request(messages), lambda _: answer(40)).result[0].content == "x"
    assert middleware.failures == 1
