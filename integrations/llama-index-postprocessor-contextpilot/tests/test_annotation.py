"""annotation="node": labels and the order hint where every synthesizer and chat engine shows them."""

from __future__ import annotations

import json

import pytest
from contextpilot_rag import ContextPilot, expand
from contextpilot_rag.adapter import labelled
from contextpilot_rag.testing import FakeEngine
from hypothesis import given, settings
from li_support import LONG, Listed, hostile, llm_of, pick, scored, user_text
from llama_index.core.chat_engine import ContextChatEngine
from llama_index.core.postprocessor import LongContextReorder
from llama_index.core.query_engine import RetrieverQueryEngine
from llama_index.core.response_synthesizers import ResponseMode
from llama_index.core.schema import MediaResource, MetadataMode, Node, NodeWithScore, TextNode
from llama_index.core.tools import RetrieverTool

from llama_index.postprocessor.contextpilot import ContextPilotPostprocessor, citations

HINT = "Order of relevance, best first: [3] > [2] > [1]"


def twice(**settings_):
    """A postprocessor that has seen three nodes, and what it makes of them in reverse."""
    postprocessor = ContextPilotPostprocessor(annotation="node", **settings_)
    first = postprocessor.postprocess_nodes(pick(0, 1, 2))
    return first, postprocessor.postprocess_nodes(pick(2, 1, 0))


def test_labels_are_there_always_and_the_hint_when_the_order_changed():
    first, second = twice(order_hint=True)
    shown = [node.node.get_content(metadata_mode=MetadataMode.LLM) for node in first]
    assert shown == [labelled(place + 1, LONG[place]).strip() for place in range(3)]
    assert [node.node.get_content(metadata_mode=MetadataMode.LLM) for node in second] == [*shown, HINT]


def test_users_see_nodes_without_labels():
    _, second = twice(order_hint=True)
    assert [node.text for node in second[:3]] == LONG[:3]
    assert [node.node.get_content() for node in second[:3]] == LONG[:3]
    assert [node.node.get_content(metadata_mode=MetadataMode.EMBED) for node in second[:3]] == LONG[:3]
    assert {label: node.node_id for label, node in citations(second).items()} == {1: "n0", 2: "n1", 3: "n2"}
    trailer = second[-1]
    assert (trailer.score, trailer.metadata["contextpilot"]) == (None, {"kind": "trailer"})
    json.dumps([node.metadata for node in second])


def test_visible_metadata_stands_behind_the_label_and_in_the_embedders_view():
    given = scored("Slices.", metadata={"title": "{T}", "score": 1})
    plain = Node(text_resource=MediaResource(text="Steps."), metadata={"a": 1})
    found = ContextPilotPostprocessor(annotation="node").postprocess_nodes([*given, NodeWithScore(node=plain)])
    assert found[0].node.get_content(metadata_mode=MetadataMode.LLM) == "[1] title: {T}\n\nSlices."
    assert found[0].node.get_content(metadata_mode=MetadataMode.EMBED) == "title: {T}\nscore: 1\n\nSlices."
    assert found[1].node.get_content(metadata_mode=MetadataMode.LLM) == "[2] a: 1\n\nSteps."
    assert found[1].node.get_content(metadata_mode=MetadataMode.EMBED) == "a: 1\n\nSteps."


@settings(max_examples=30, deadline=None)
@given(hostile)
def test_no_text_can_forge_a_label_or_a_hint(text):
    node = NodeWithScore(node=TextNode(text=text))
    (found,) = ContextPilotPostprocessor(annotation="node").postprocess_nodes([node])
    shown = found.node.get_content(metadata_mode=MetadataMode.LLM)
    assert found.text == text
    if text.strip():
        assert shown == labelled(1, text).strip()
        (read_back,) = expand([{"role": "user", "content": f"<documents>\n{shown}\n</documents>"}])
        original = read_back["content"].removeprefix("<documents>\n[1] ").removesuffix("\n</documents>")
        assert original.strip() == text.strip()
    else:
        assert shown == text


@pytest.mark.parametrize(
    ("options", "hint"),
    [
        ({"order_hint": True}, "\n\nOrder of relevance, best first: [2] > [1] > [3]"),
        ({"order_hint": False}, ""),
        ({}, ""),
    ],
)
def test_the_best_once_more(options, hint):
    _, second = twice(echo=1, **options)
    assert [node.text for node in second] == [*LONG[:3], *([HINT] if hint else [])]  # the best one is the last anyway
    postprocessor = ContextPilotPostprocessor(annotation="node", echo=1, **options)
    postprocessor.postprocess_nodes(pick(0, 1, 2))
    found = postprocessor.postprocess_nodes(pick(1, 0, 2))
    assert [node.text for node in found] == [*LONG[:3], f"{labelled(2, LONG[1])}{hint}"]
    assert found[-1].metadata["contextpilot"] == {"kind": "trailer"}
    assert list(citations(found)) == [1, 2, 3]


@pytest.mark.parametrize("options", [{}, {"order_hint": None}, {"order_hint": False}])
def test_no_hint_by_default_or_if_none_is_wanted(options):
    _, second = twice(**options)
    assert [node.text for node in second] == LONG[:3]
    assert [node.metadata["contextpilot"]["rank"] for node in second] == [2, 1, 0]
    assert [node.metadata["contextpilot"]["hint"] for node in second] == [False] * 3


def test_the_pilots_setting_counts_where_the_postprocessor_has_none():
    _, second = twice(pilot=ContextPilot(order_hint="best"))
    assert second[-1].text == "Most relevant: [3]"
    _, second = twice(pilot=ContextPilot(order_hint=True), order_hint=False)
    assert len(second) == 3


def test_a_stock_chat_engine_shows_labels_and_hint(engine, llm):
    retriever = Listed(pick(0, 1, 2), pick(2, 1, 0))
    chat = ContextChatEngine.from_defaults(
        retriever, llm=llm, node_postprocessors=[ContextPilotPostprocessor(annotation="node", order_hint=True)]
    )
    chat.chat("One?")
    response = chat.chat("Two?")
    system = engine.requests[-1].messages[0]["content"]
    places = [system.index(part) for part in ("[1] slices", "[2] steps", "[3] copies", HINT)]
    assert places == sorted(places)
    assert [node.text for node in response.source_nodes[:3]] == LONG[:3]
    assert engine.requests[-1].cached_tokens > 100


@pytest.mark.parametrize("mode", [ResponseMode.COMPACT, ResponseMode.TREE_SUMMARIZE])
async def test_stock_synthesizers_show_labels_and_hint(engine, llm, mode):
    query = RetrieverQueryEngine.from_args(
        Listed(pick(0, 1, 2), pick(2, 1, 0)),
        llm=llm,
        response_mode=mode,
        node_postprocessors=[ContextPilotPostprocessor(annotation="node", order_hint=True)],
    )
    await query.aquery("One?")
    await query.aquery("Two?")
    sent = user_text(engine.requests[-1])
    places = [sent.index(part) for part in ("[1] slices", "[3] copies", HINT, "Two?")]
    assert places == sorted(places)


def test_a_retriever_tool_hands_them_on():
    tool = RetrieverTool.from_defaults(
        Listed(pick(0, 1, 2), pick(2, 1, 0)),
        node_postprocessors=[ContextPilotPostprocessor(annotation="node", order_hint=True)],
        name="docs",
        description="documents",
    )
    tool.call("One?")
    content = tool.call("Two?").content
    assert content.startswith("[1] slices")
    assert content.strip().endswith(HINT)


def test_another_postprocessor_after_it_does_not_break_it():
    _, second = twice(order_hint=True)
    assert len(LongContextReorder().postprocess_nodes(second)) == 4


def test_stock_prompts_share_more_of_the_cache(questions, bm25):
    cached = []
    for postprocessors in ([], [ContextPilotPostprocessor(annotation="node")]):
        with FakeEngine(block_size=16) as engine:
            chat = ContextChatEngine.from_defaults(bm25, llm=llm_of(engine), node_postprocessors=postprocessors)
            for question in questions:
                chat.chat(question)
            cached.append(sum(request.cached_tokens for request in engine.requests))
    assert cached[1] >= 2 * cached[0]
