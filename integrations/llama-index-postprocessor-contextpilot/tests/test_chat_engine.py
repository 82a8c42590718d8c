"""The chat engine: each turn's prompt begins with the whole of the one before, as the endpoint received it."""

from __future__ import annotations

import asyncio
import itertools
import threading

import pytest
from contextpilot_rag import ContextPilot, expand
from contextpilot_rag.conversation import Conversation
from contextpilot_rag.errors import IndexFailed, SettingsError
from li_support import LONG, Listed, llm_of, pick, scored, streaming, user_text
from llama_index.core import Settings
from llama_index.core.llms import ChatMessage, MockLLM
from llama_index.core.memory import ChatMemoryBuffer
from llama_index.core.postprocessor import SimilarityPostprocessor
from llama_index.core.schema import ImageNode, NodeWithScore

from llama_index.postprocessor.contextpilot import ContextPilotChatEngine, ContextPilotPostprocessor, citations

SYSTEM = "Answer from the documents."
TURNS = [(0, 1, 2), (2, 3, 0), (1, 4), (3, 4, 5, 0)]
WAYS = ["chat", "achat", "stream_chat", "astream_chat"]


def chatting(llm, *lists, **options):
    lists = lists or tuple(pick(*places) for places in TURNS)
    return ContextPilotChatEngine.from_defaults(Listed(*lists), llm=llm, system_prompt=SYSTEM, **options)


async def say(chat, way, message, **options):
    """An answer's text and its response, whichever way it is asked for."""
    if way == "chat":
        response = chat.chat(message, **options)
    elif way == "achat":
        response = await chat.achat(message, **options)
    elif way == "stream_chat":
        response = chat.stream_chat(message, **options)
        return "".join(response.response_gen), response
    else:
        response = await chat.astream_chat(message, **options)
        return "".join([piece async for piece in response.async_response_gen()]), response
    return str(response), response


def assert_append_only(engine):
    sent = [list(request.messages) for request in engine.requests]
    for before, after in itertools.pairwise(sent):
        assert after[: len(before)] == before
        assert after[len(before)]["role"] == "assistant"
        assert len(after) == len(before) + 2


@pytest.mark.parametrize("way", WAYS)
async def test_every_prompt_begins_with_the_one_before(engine, way):
    chat = chatting(streaming(engine) if "stream" in way else llm_of(engine))
    for number in range(8):
        answer, response = await say(chat, way, f"Question {number} {{x}}?")
        assert answer.startswith("FakeEngine")
        assert [node.node_id for node in response.source_nodes] == [f"n{place}" for place in TURNS[number % 4]]
    assert_append_only(engine)
    assert [request.messages[0] for request in engine.requests] == [{"role": "system", "content": SYSTEM}] * 8
    # all that was sent, and the answer, is found in the cache, but for the last block that is not full
    for before, after in zip(engine.requests, engine.requests[1:], strict=False):
        assert after.cached_tokens >= before.prompt_tokens - 16
    assert chat.failures == 0
    stats = chat.adapter.pilot.stats()
    assert stats.reported_prompt_tokens == sum(request.prompt_tokens for request in engine.requests)


async def test_the_four_ways_can_take_turns(engine):
    chat = chatting(streaming(engine))
    for number in range(8):
        await say(chat, WAYS[number % 4], f"Question {number}?")
    assert_append_only(engine)


def test_a_block_is_given_once_and_everything_can_be_read_back(engine, llm):
    chat = chatting(llm)
    for number in range(4):
        chat.chat(f"Question {number}?")
    last = engine.requests[-1].messages
    everything = "".join(message["content"] for message in last)
    for text in LONG:
        assert everything.count(text.strip()) == 1
    assert "(given above)" in last[3]["content"]
    for places, message in zip(TURNS, expand(list(last))[1::2], strict=True):
        assert all(LONG[place].strip() in message["content"] for place in places)


def test_source_nodes_are_complete_and_know_their_labels(engine, llm):
    chat = chatting(llm, pick(0, 1), [*pick(1, 2), *scored(LONG[1], "", metadata={"score": 1})])
    first, second = chat.chat("One?"), chat.chat("Two?")
    assert {label: node.text for label, node in citations(first.source_nodes).items()} == {1: LONG[0], 2: LONG[1]}
    marks = [node.metadata["contextpilot"] for node in second.source_nodes]
    assert [mark["rank"] for mark in marks] == [0, 1, 2, 3]
    assert [mark["label"] for mark in marks] == [2, 3, 2, None]
    assert [mark["again"] for mark in marks] == [True, False, True, False]
    assert [node.text for node in second.source_nodes] == [LONG[1], LONG[2], LONG[1], ""]
    assert {label: node.node_id for label, node in citations(second.source_nodes).items()} == {2: "n1", 3: "n2"}
    assert second.sources[0].raw_output == second.source_nodes
    assert second.sources[0].tool_name == "retriever"


def test_users_see_bare_questions_and_answers(engine, llm):
    chat = chatting(llm)
    chat.chat("One?")
    answer = chat.chat("Two?").response
    shown = [(message.role.value, message.content) for message in chat.chat_history]
    assert shown[0] == ("user", "One?")
    assert shown[2:] == [("user", "Two?"), ("assistant", answer)]


def test_reset_forgets(engine, llm):
    chat = chatting(llm)
    chat.chat("One?")
    chat.reset()
    assert chat.chat_history == []
    chat.chat("Two?")
    assert len(engine.requests[-1].messages) == 2


def test_no_nodes_and_nodes_of_an_earlier_turn(engine, llm):
    chat = chatting(llm, [])
    chat.chat("Hello?")
    assert user_text(engine.requests[-1]) == "Hello?"
    response = chat.chat("And?", prev_chunks=pick(0))
    assert LONG[0].strip() in user_text(engine.requests[-1])
    assert len(response.source_nodes) == 1
    assert_append_only(engine)


def test_images_stay_among_the_sources(engine, llm):
    image = NodeWithScore(node=ImageNode(image_url="http://127.0.0.1/i.png"))
    response = chatting(llm, [image, *pick(0)]).chat("One?")
    assert [type(node.node).__name__ for node in response.source_nodes] == ["ImageNode", "TextNode"]


def test_postprocessors_and_volatile_metadata(engine, llm):
    given = scored("Slices.", "Steps.", metadata={"title": "T", "score": 0.3})
    chat = chatting(llm, given, node_postprocessors=[SimilarityPostprocessor(similarity_cutoff=0.9)])
    chat.chat("One?")
    assert user_text(engine.requests[0]) == "<documents>\n[1] title: T\n\nSlices.\n</documents>\n\nOne?"
    assert given[0].metadata == {"title": "T", "score": 0.3}
    with pytest.raises(SettingsError, match="itself"):
        chatting(llm, node_postprocessors=[ContextPilotPostprocessor()])


@pytest.mark.parametrize(
    ("options", "hint"), [({}, ""), ({"order_hint": True}, "\n\nOrder of relevance, best first: [3] > [2] > [1]")]
)
def test_first_turns_share_a_prefix(engine, llm, options, hint):
    pilot = ContextPilot()
    for places in ((0, 1, 2), (2, 1, 0)):
        chatting(llm, pick(*places), pilot=pilot, **options).chat("What?")
    assert user_text(engine.requests[1]).endswith(f"[3] {LONG[2]}\n</documents>{hint}\n\nWhat?")
    assert engine.requests[1].cached_tokens > 100
    chatting(llm, pick(2, 1, 0), pilot=pilot, namespace="acme").chat("What?")
    assert "[1] copies" in user_text(engine.requests[2])


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
async def test_a_failed_turn_reaches_the_caller_and_leaves_no_trace(engine, way):
    from openai import InternalServerError

    chat = chatting(streaming(engine))
    await say(chat, way, "One?")
    engine.fail_next(1)
    with pytest.raises(InternalServerError):
        await say(chat, way, "Two?")
    assert len(chat.chat_history) == 2
    await say(chat, way, "Two again?")
    assert_append_only(engine)


def test_the_users_own_failures_pass(engine, llm):
    class Down(Listed):
        def _retrieve(self, query_bundle):
            raise ConnectionError("the user's retriever is down")

    with pytest.raises(ConnectionError):
        ContextPilotChatEngine.from_defaults(Down(), llm=llm).chat("One?")


@pytest.mark.parametrize("way", WAYS)
async def test_it_fails_open(engine, broken, monkeypatch, way, caplog):
    chat = chatting(streaming(engine), pilot=broken)
    await say(chat, way, "One?")  # the index fails: as retrieved
    assert user_text(engine.requests[-1]).startswith("<documents>\n[1] slices")

    def fails(*_args, **_options):
        raise RuntimeError("no conversation today")

    monkeypatch.setattr(chat.adapter.pilot, "conversation", fails)
    answer, response = await say(chat, way, "Two?")
    assert answer
    assert [node.text for node in response.source_nodes] == [LONG[2], LONG[3], LONG[0]]
    sent = engine.requests[-1].messages
    assert [message["role"] for message in sent] == ["system", "user", "assistant", "user"]
    assert all(LONG[place].strip() in sent[-1]["content"] for place in (2, 3, 0))
    monkeypatch.undo()
    await say(chat, way, "Three?")
    assert [
        message["content"].endswith(tail)
        for message, tail in zip(engine.requests[-1].messages[1::2], ("One?", "Two?", "Three?"), strict=True)
    ] == [True] * 3
    assert chat.failures >= 2
    assert len([record for record in caplog.records if record.name == "contextpilot_rag"]) == 1


def test_it_is_raised_where_that_is_asked_for(llm, broken):
    strict = ContextPilot(broken.index, on_error="raise")
    with pytest.raises(IndexFailed):
        chatting(llm, pilot=strict).chat("One?")


def test_a_turn_that_cannot_be_made_goes_out_in_full_and_the_next_is_append_only(engine, llm, monkeypatch):
    chat = chatting(llm, pick(0), pick(0, 1))
    chat.chat("One?")

    def fails(*_args, **_options):
        raise RuntimeError("no turn today")

    monkeypatch.setattr(Conversation, "align", fails)
    response = chat.chat("Two?")
    assert all(LONG[place].strip() in user_text(engine.requests[-1]) for place in (0, 1))
    assert [node.metadata for node in response.source_nodes] == [{}, {}]
    assert chat.failures == 1
    monkeypatch.undo()
    chat.chat("Three?")
    assert_append_only(engine)


def test_defaults_and_what_cannot_be(llm, monkeypatch):
    monkeypatch.setattr(Settings, "_llm", MockLLM())
    chat = ContextPilotChatEngine.from_defaults(Listed(pick(0)))
    assert chat.chat("One?").response
    memory = ChatMemoryBuffer.from_defaults(token_limit=1000)
    assert chatting(llm, memory=memory, chat_history=[]).chat_history == []
    with pytest.raises(SettingsError, match="twice"):
        chatting(llm, memory=memory, chat_history=[ChatMessage(role="user", content="Hi.")])
    with pytest.raises(SettingsError, match="max_history_tokens"):
        chatting(llm, max_history_tokens=-1)
    for wrong in ({"order": "best"}, {"conversation_id": ["c1"]}, {"namespace": ""}, {"pilot": "http://"}):
        with pytest.raises(SettingsError):
            chatting(llm, **wrong)


def test_threads_on_one_engine_lose_nothing(engine, llm):
    chat = chatting(llm, memory=ChatMemoryBuffer.from_defaults(token_limit=10**9))
    failed = []

    def work(name):
        try:
            for number in range(4):
                assert chat.chat(f"Question {name}-{number}?").response
        except Exception as error:  # noqa: BLE001
            failed.append(error)

    threads = [threading.Thread(target=work, args=(name,)) for name in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert failed == []
    assert chat.failures == 0
    assert len(chat.chat_history) == 32
    chat.chat("The last one?")
    last = engine.requests[-1].messages
    asked = [message["content"].rsplit("\n\n", 1)[-1] for message in last if message["role"] == "user"]
    assert len(set(asked)) == 17
    # whatever a turn points at stands before it
    whole = "".join(message["content"] for message in expand(list(last)))
    assert "(given above)" not in whole


async def test_tasks_on_one_engine_lose_nothing(engine, llm):
    chat = chatting(llm, memory=ChatMemoryBuffer.from_defaults(token_limit=10**9))
    await asyncio.gather(*(say(chat, "achat", f"Question {number}?") for number in range(8)))
    assert [message.role.value for message in chat.chat_history] == ["user", "assistant"] * 8
    await say(chat, "achat", "The last one?")
    await say(chat, "achat", "And another?")
    before, after = (request.messages for request in engine.requests[-2:])
    assert after[: len(before)] == before
    assert len({message["content"].rsplit("\n\n", 1)[-1] for message in after if message["role"] == "user"}) == 10
    assert "(given above)" not in "".join(message["content"] for message in expand(list(after)))
    assert chat.failures == 0


def test_the_callers_history_is_not_changed(llm):
    history = [ChatMessage(role="user", content="Hi."), ChatMessage(role="assistant", content="Hello.")]
    before = [message.model_dump() for message in history]
    chat = chatting(llm)
    chat.chat("One?", chat_history=history)
    assert [message.model_dump() for message in history] == before
    assert [message.content for message in chat.chat_history[:2]] == ["Hi.", "Hello."]
