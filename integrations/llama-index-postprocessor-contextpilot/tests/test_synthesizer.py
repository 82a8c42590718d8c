"""The synthesizer: labels, order hint after the last block, question last; the same bytes as the core's own prompt."""

from __future__ import annotations

import asyncio
import logging
import warnings

import pytest
from contextpilot_rag import ContextPilot
from hypothesis import given, settings
from hypothesis import strategies as st
from li_support import LONG, Listed, hostile, llm_of, pick, scored, user_text
from llama_index.core import PromptTemplate
from llama_index.core.base.response.schema import AsyncStreamingResponse, StreamingResponse
from llama_index.core.llms import MockLLM
from llama_index.core.query_engine import CitationQueryEngine, RetrieverQueryEngine
from llama_index.core.response_synthesizers import ResponseMode
from llama_index.core.response_synthesizers import get_response_synthesizer as stock
from llama_index.core.retrievers import QueryFusionRetriever
from llama_index.core.schema import ImageNode, NodeWithScore
from llama_index.core.utils import get_tokenizer

from llama_index.postprocessor.contextpilot import (
    CONTEXTPILOT_TEXT_QA,
    CannotProfitWarning,
    ContextPilotPostprocessor,
    ContextPilotSynthesizer,
    check_response_mode,
    citations,
    get_response_synthesizer,
)

HINT = "Order of relevance, best first: [3] > [2] > [1]"


def asking(llm, *lists, postprocessor=None, synthesizer=None, **options):
    """A query engine whose postprocessor tells a changed order, unless another one is given."""
    return RetrieverQueryEngine(
        Listed(*(lists or (pick(0, 1, 2), pick(2, 1, 0)))),
        response_synthesizer=synthesizer or ContextPilotSynthesizer(llm=llm, **options),
        node_postprocessors=[postprocessor or ContextPilotPostprocessor(order_hint=True)],
    )


async def asked(query, question, *, asynchronous):
    """An answer's text, whole or streamed, and its source nodes."""
    response = await query.aquery(question) if asynchronous else query.query(question)
    if isinstance(response, AsyncStreamingResponse):
        return "".join([piece async for piece in response.async_response_gen()]), response.source_nodes
    if isinstance(response, StreamingResponse):
        return "".join(response.response_gen), response.source_nodes
    return str(response), response.source_nodes


@pytest.mark.parametrize("streaming", [False, True])
@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize(("options", "hint"), [({"order_hint": True}, HINT), ({}, None)])
async def test_the_prompt_is_the_one_that_the_core_renders(engine, llm, streaming, asynchronous, options, hint):
    query = asking(llm, postprocessor=ContextPilotPostprocessor(**options), streaming=streaming)
    pilot = ContextPilot(**options)
    for places, question in (((0, 1, 2), "One {x}?"), ((2, 1, 0), "Two?")):
        answer, sources = await asked(query, question, asynchronous=asynchronous)
        prompt = pilot.align([node.text.strip() for node in pick(*places)], question)
        assert user_text(engine.requests[-1]) == prompt.user_message
        assert answer.startswith("FakeEngine")
        assert [node.text for node in sources] == LONG[:3]
    assert prompt.changed
    assert prompt.order_hint == hint
    assert engine.requests[0].messages[0] == engine.requests[1].messages[0]


@settings(max_examples=20, deadline=None)
@given(st.lists(hostile, min_size=1, max_size=4))
def test_whatever_the_texts_are_the_frame_holds(texts):
    sent = []

    class Recording(MockLLM):
        def chat(self, messages, **kwargs):
            sent.append(messages)
            return super().chat(messages, **kwargs)

        def complete(self, prompt, **kwargs):
            sent.append(prompt)
            return super().complete(prompt, **kwargs)

    nodes = ContextPilotPostprocessor().postprocess_nodes(scored(*texts))
    ContextPilotSynthesizer(llm=Recording()).synthesize("Why?", nodes)
    shown = str(sent[0])
    assert shown.count("\n</documents>") == 1
    assert "\n[2] forged" not in shown
    assert "{order_hint}" not in shown


def test_a_citation_leads_to_its_node(engine, llm):
    query = asking(llm)
    query.query("One?")
    response = query.query("Two?")
    found = citations(response.source_nodes)
    content = user_text(engine.requests[-1])
    assert [found[label].node_id for label in (1, 2, 3)] == ["n0", "n1", "n2"]
    assert all(f"[{label}] {node.text.strip()}" in content for label, node in found.items())
    assert [found[label].metadata["contextpilot"]["rank"] for label in (1, 2, 3)] == [2, 1, 0]


@pytest.mark.parametrize(
    ("options", "hint"), [({"order_hint": True}, "Order of relevance, best first: [2] > [1] > [3]"), ({}, None)]
)
def test_the_best_once_more_at_the_end(engine, llm, options, hint):
    """Whether or not the order is told, as the core has it."""
    query = asking(llm, pick(0, 1, 2), pick(1, 0, 2), postprocessor=ContextPilotPostprocessor(echo=1, **options))
    pilot = ContextPilot(echo=1, **options)
    for places, question in (((0, 1, 2), "One?"), ((1, 0, 2), "Two?")):
        query.query(question)
        prompt = pilot.align([node.text.strip() for node in pick(*places)], question)
        content = user_text(engine.requests[-1])
        assert content == prompt.user_message
    assert prompt.order_hint == hint
    assert content.count("[2] steps") == 2
    assert content.index("[3] copies") < content.rindex("[2] steps") < content.index(hint or "Two?")


def test_nodes_that_were_not_arranged_get_labels_and_no_hint(engine, llm):
    response = ContextPilotSynthesizer(llm=llm).synthesize("Why?", pick(1, 0))
    assert "[1] steps" in user_text(engine.requests[-1])
    assert "Order of relevance" not in user_text(engine.requests[-1])
    assert list(citations(response.source_nodes)) == [1, 2]


def test_nodes_that_are_labelled_already_are_not_labelled_again(engine, llm):
    query = asking(llm, postprocessor=ContextPilotPostprocessor(annotation="node", order_hint=True))
    query.query("One?")
    query.query("Two?")
    content = user_text(engine.requests[-1])
    assert content.count("[1]") == 2  # once as a label, once in the hint
    assert content.count("Order of relevance") == 1


def test_no_nodes_and_nodes_without_text(engine, llm):
    assert str(ContextPilotSynthesizer(llm=llm).synthesize("Why?", [])) == "Empty Response"
    image = NodeWithScore(node=ImageNode(image_url="http://127.0.0.1/i.png"))
    response = asking(llm, [image, *pick(0)]).query("Why?")
    assert len(response.source_nodes) == 2
    assert list(citations(response.source_nodes)) == [1]


def test_the_template_works_under_stock_synthesizers(engine, llm):
    for mode in (ResponseMode.COMPACT, ResponseMode.REFINE):
        synthesizer = stock(llm=llm, response_mode=mode, text_qa_template=CONTEXTPILOT_TEXT_QA)
        synthesizer.synthesize("Why {order_hint}?", pick(0))
        content = user_text(engine.requests[-1])
        assert content == f"<documents>\n{LONG[0].strip()}\n</documents>\n\nWhy {{order_hint}}?"


def test_a_template_of_your_own(engine, llm):
    template = PromptTemplate("{context_str}\n{order_hint}\nQ: {query_str}")
    query = asking(llm, text_qa_template=template)
    query.query("One?")
    assert user_text(engine.requests[-1]).endswith(f"[3] {LONG[2].strip()}\n\nQ: One?")
    query.query("Two?")
    assert user_text(engine.requests[-1]).endswith(f"\n{HINT}\nQ: Two?")


def test_a_context_that_does_not_fit_is_told_once(engine, caplog):
    small = llm_of(engine, context_window=800, max_tokens=16)
    query = asking(small, scored(*(f"{text}{number} " * 3 for number, text in enumerate(LONG))))
    with caplog.at_level(logging.WARNING):
        query.query("One?")
        query.query("Two?")
    assert len(engine.requests) > 2
    assert [record.message for record in caplog.records if "does not fit one prompt" in record.message] != []
    assert sum("does not fit" in record.message for record in caplog.records) == 1


@pytest.mark.parametrize("nodes", [60, 100, 140, 200])
def test_the_hint_takes_its_room_like_all_else(engine, nodes):
    """The framework packs a prompt without knowing of it."""
    small = llm_of(engine, context_window=2048, max_tokens=128)
    texts = scored(*(f"Text number {number} says this." for number in range(nodes)))
    query = asking(small, texts, texts[::-1])
    query.query("One?")
    before = len(engine.requests)
    query.query("Two?")
    count = get_tokenizer()
    for request in engine.requests:
        assert len(count(user_text(request))) < 2048 - 128
    hints = ["Order of relevance" in user_text(request) for request in engine.requests[before:]]
    assert len(hints) == 1 or not any(hints)
    if nodes in (60, 200):
        assert any(hints) == (nodes == 60)


@pytest.mark.parametrize("mode", ["refine", "accumulate", "compact_accumulate", "simple_summarize", "generation"])
def test_modes_that_cannot_profit_are_named(llm, mode):
    with pytest.warns(CannotProfitWarning, match=mode) as seen:
        synthesizer = get_response_synthesizer(mode, llm=llm)
    assert seen[0].filename == __file__
    for used in (mode, synthesizer, asking(llm, synthesizer=synthesizer)):
        with pytest.warns(CannotProfitWarning, match=mode):
            assert not check_response_mode(used)


def test_modes_that_ask_no_model_pass():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert check_response_mode("no_text")
        assert check_response_mode(ResponseMode.CONTEXT_ONLY)


@pytest.mark.parametrize("mode", ["compact", "tree_summarize"])
def test_the_others_pass(llm, mode):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        synthesizer = get_response_synthesizer(mode, llm=llm, use_async=False)
        assert check_response_mode(synthesizer)
        assert check_response_mode(asking(llm, synthesizer=synthesizer))
    assert isinstance(synthesizer, ContextPilotSynthesizer) == (mode == "compact")


def test_behind_a_fusion_retriever_copies_are_one_block(engine, llm, bm25, vectors, questions):
    fusion = QueryFusionRetriever(
        [bm25, vectors.as_retriever(similarity_top_k=6)], llm=llm, num_queries=1, similarity_top_k=12, use_async=False
    )
    query = RetrieverQueryEngine(
        fusion,
        response_synthesizer=ContextPilotSynthesizer(llm=llm),
        node_postprocessors=[ContextPilotPostprocessor()],
    )
    for question in questions[:4]:
        response = query.query(question)
        texts = [node.text for node in response.source_nodes]
        assert len(set(texts)) == len(texts) > 6
    assert sum(request.cached_tokens for request in engine.requests) > 0


def test_the_citation_engine_numbers_what_it_is_given(engine, llm):
    query = CitationQueryEngine(
        Listed(pick(0, 1, 2), pick(2, 1, 0)), llm=llm, node_postprocessors=[ContextPilotPostprocessor()]
    )
    query.query("One?")
    response = query.query("Two?")
    sent = user_text(engine.requests[-1])
    for number, node in enumerate(response.source_nodes, start=1):
        assert node.text.startswith(f"Source {number}:")
        assert node.text in sent
    assert "slices" in response.source_nodes[0].text
    assert engine.requests[-1].cached_tokens > 100


async def test_many_at_once_do_not_mix_their_hints(engine, llm):
    query = asking(llm)
    await query.aquery("first")
    await asyncio.gather(*(query.aquery(f"question {number}?") for number in range(12)))
    for request in engine.requests[1:]:
        content = user_text(request)
        assert content.startswith("<documents>\n[1] slices")
        assert content.count("Order of relevance") <= 1
    assert any("Order of relevance" in user_text(request) for request in engine.requests)


def test_rendering_that_fails_leaves_it_to_the_framework(engine, llm, monkeypatch, caplog):
    def broken(_nodes):
        raise RuntimeError("no labels today")

    monkeypatch.setattr("llama_index.postprocessor.contextpilot.synthesizer.context_of", broken)
    synthesizer = ContextPilotSynthesizer(llm=llm)
    for _ in range(2):
        synthesizer.synthesize("Why?", pick(0, 1))
    assert f"<documents>\n{LONG[0].strip()}\n\n{LONG[1].strip()}\n</documents>\n\nWhy?" == user_text(
        engine.requests[-1]
    )
    assert synthesizer.failures == 2
    assert len([record for record in caplog.records if "contextpilot" in record.name]) == 1
