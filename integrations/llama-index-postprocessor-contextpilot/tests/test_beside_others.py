"""Beside others: a second one of ours, postprocessors that sort after ours, other orders of the list."""

from __future__ import annotations

import logging

import pytest
from li_support import LONG, Listed, pick, scored, user_text
from llama_index.core.postprocessor import LongContextReorder, SimilarityPostprocessor
from llama_index.core.query_engine import RetrieverQueryEngine
from llama_index.core.schema import ImageNode, MetadataMode, NodeWithScore, TextNode

from llama_index.postprocessor.contextpilot import ContextPilotPostprocessor, ContextPilotSynthesizer

HINT = "Order of relevance, best first: [3] > [2] > [1]"


def texts(nodes):
    return [node.node.get_content(metadata_mode=MetadataMode.LLM) for node in nodes]


def marks(nodes):
    return [node.metadata["contextpilot"] for node in nodes]


def through(postprocessors, nodes):
    for postprocessor in postprocessors:
        nodes = postprocessor.postprocess_nodes(nodes, query_str="Why?")
    return nodes


def asking(llm, postprocessors, *lists):
    return RetrieverQueryEngine(
        Listed(*(lists or (pick(0, 1, 2), pick(2, 1, 0)))),
        response_synthesizer=ContextPilotSynthesizer(llm=llm),
        node_postprocessors=postprocessors,
    )


def test_two_in_a_row_give_what_one_gives(engine, llm):
    for count in (1, 2):
        postprocessors = [ContextPilotPostprocessor(order_hint=True) for _ in range(count)]
        query = asking(llm, postprocessors)
        query.query("One?")
        response = query.query("Two?")
        assert [mark["rank"] for mark in marks(response.source_nodes)] == [2, 1, 0]
    assert HINT in user_text(engine.requests[-1])
    assert engine.requests[1].messages == engine.requests[3].messages


@pytest.mark.parametrize("annotation", ["none", "node"])
def test_a_second_time_through_it_starts_from_the_nodes_as_retrieved(annotation):
    postprocessor = ContextPilotPostprocessor(annotation=annotation, min_gain=0)
    postprocessor.postprocess_nodes(pick(0, 1, 2))
    once = postprocessor.postprocess_nodes(pick(2, 1, 0))
    assert texts(postprocessor.postprocess_nodes(once)) == texts(once)
    fresh = ContextPilotPostprocessor().postprocess_nodes(once)
    assert texts(fresh) == [LONG[2], LONG[1], LONG[0]]
    assert [mark["rank"] for mark in marks(fresh)] == [0, 1, 2]


def test_ranks_and_copies_survive_a_second_one_and_a_filter():
    first, second = ContextPilotPostprocessor(min_gain=0), ContextPilotPostprocessor(min_gain=0)
    image = NodeWithScore(node=ImageNode(id_="i", image_url="http://127.0.0.1/i.png"), score=0.9)
    copy = NodeWithScore(node=TextNode(id_="copy", text=LONG[2]), score=0.8)
    through([first, second], pick(0, 1, 2))
    cut = SimilarityPostprocessor(similarity_cutoff=0.4)  # n0, the last of three, is dropped
    found = through([first, cut, second], [*pick(2)[:1], image, copy, *pick(2, 1, 0)[1:]])
    assert [node.node_id for node in found] == ["n2", "i", "n1"]  # without n0 nothing is to gain: as retrieved
    assert [mark["rank"] for mark in marks(found)] == [0, 1, 3]
    (twin,) = marks(found)[0]["duplicates"]
    assert (twin["node_id"], twin["rank"]) == ("copy", 2)


def test_who_sorts_between_two_of_ours_is_the_retriever_of_the_second():
    class Backwards(LongContextReorder):
        def _postprocess_nodes(self, nodes, query_bundle=None):
            return nodes[::-1]

    found = through([ContextPilotPostprocessor(), Backwards(), ContextPilotPostprocessor()], pick(0, 1, 2))
    assert [(node.node_id, mark["rank"]) for node, mark in zip(found, marks(found), strict=True)] == [
        ("n2", 0),
        ("n1", 1),
        ("n0", 2),
    ]


JUNK = [None, "x", {}, {"rank": "1"}, {"rank": -1, "label": 1}, {"rank": 1, "label": "a"}, {"rank": True, "label": 1}]
JUNK += [{"rank": 0, "label": 1, "duplicates": 7}, {"rank": 0, "label": 1, "duplicates": [3]}]


@pytest.mark.parametrize("mark", JUNK)
def test_marks_that_are_none_are_passed_over(mark):
    given = scored("a", "b")
    for node in given:
        node.node.metadata["contextpilot"] = mark
    found = ContextPilotPostprocessor().postprocess_nodes(given)
    assert [mark["rank"] for mark in marks(found)] == [0, 1]
    assert [node.text for node in found] == ["a", "b"]


@pytest.mark.parametrize("annotation", ["none", "node"])
def test_who_sorts_after_ours_is_told_of_once(llm, annotation, caplog):
    query = asking(llm, [ContextPilotPostprocessor(annotation=annotation), LongContextReorder()])
    with caplog.at_level(logging.WARNING):
        query.query("One?")
        query.query("Two?")
    assert sum("has to be the last" in record.message for record in caplog.records) == 1


def test_who_adds_between_ours_is_told_of(llm, caplog):
    class Adding(LongContextReorder):
        def _postprocess_nodes(self, nodes, query_bundle=None):
            return [*scored("of my own"), *nodes]

    asking(llm, [ContextPilotPostprocessor(), Adding()]).query("One?")
    assert sum("has to be the last" in record.message for record in caplog.records) == 1


def test_who_drops_some_or_comes_before_is_not(llm, caplog):
    cut = SimilarityPostprocessor(similarity_cutoff=0.4)
    image = NodeWithScore(node=ImageNode(image_url="http://127.0.0.1/i.png"), score=1)
    for postprocessors in ([ContextPilotPostprocessor(), cut], [LongContextReorder(), ContextPilotPostprocessor()], []):
        query = asking(llm, postprocessors, [image, *pick(0, 1, 2)], [*pick(2, 1, 0), image])
        query.query("One?")
        query.query("Two?")
    assert not any("contextpilot" in record.name for record in caplog.records)
