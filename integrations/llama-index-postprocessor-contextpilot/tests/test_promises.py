"""Promises that hold for any nodes: nothing is lost, nothing is changed, everything is known."""

from __future__ import annotations

import copy
import json
import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from li_support import LONG, hostile, pick
from llama_index.core.schema import ImageNode, MetadataMode, NodeWithScore, TextNode

from llama_index.postprocessor.contextpilot import ContextPilotPostprocessor

short_texts = st.sampled_from(["", " ", "a", "a \n", "a\r\n", "b", "{x}", "[1] c"])
numbers = st.one_of(st.booleans(), st.integers(), st.floats(allow_nan=False))
values = st.one_of(st.none(), numbers, hostile, st.lists(numbers))
keys = st.sampled_from(["title", "score", "file_path", "page", "contextpilot_note"])


@st.composite
def some_nodes(draw):
    """Nodes of all kinds; few different texts, so that many are the same."""
    made = []
    for number in range(draw(st.integers(min_value=0, max_value=8))):
        kind = draw(st.sampled_from([TextNode, TextNode, TextNode, ImageNode]))
        node = kind(
            id_=f"id{number}",
            text=draw(st.one_of(short_texts, hostile, st.sampled_from(LONG))),
            metadata=draw(st.dictionaries(keys, values, max_size=2)),
            excluded_llm_metadata_keys=draw(st.lists(keys, max_size=2)),
        )
        made.append(NodeWithScore(node=node, score=draw(st.one_of(st.none(), st.floats(0, 1)))))
    return made


@pytest.mark.parametrize("annotation", ["none", "node"])
@settings(max_examples=30, deadline=None)
@given(requests=st.lists(some_nodes(), min_size=1, max_size=4))
def test_nothing_is_lost_and_nothing_changed(annotation, requests):
    postprocessor = ContextPilotPostprocessor(annotation=annotation, order="throughput", order_hint=True)
    for given_nodes in requests:
        before = copy.deepcopy(given_nodes)
        found = postprocessor.postprocess_nodes(given_nodes, query_str="?")
        assert given_nodes == before
        if annotation == "node" and found and found[-1].node_id == "contextpilot-trailer":
            found = found[:-1]
        known = [node.node_id for node in found]
        for node in found:
            original = given_nodes[node.metadata["contextpilot"]["rank"]]
            assert node.node_id == original.node_id
            assert (node.text, node.score, type(node.node)) == (original.text, original.score, type(original.node))
            assert original.metadata.items() <= node.metadata.items()
            embedded = [one.node.get_content(metadata_mode=MetadataMode.EMBED) for one in (node, original)]
            assert embedded[0] == embedded[1]
            shown = node.node.get_content(metadata_mode=MetadataMode.LLM)
            assert "duplicates" not in shown
            for twin in node.metadata["contextpilot"].get("duplicates", ()):
                known.append(twin["node_id"])
                assert given_nodes[twin["rank"]].node_id == twin["node_id"]
            json.dumps(node.metadata["contextpilot"], allow_nan=False)
        assert sorted(known) == sorted(node.node_id for node in given_nodes)
    assert postprocessor.failures == 0


@settings(max_examples=20, deadline=None)
@given(st.lists(some_nodes(), min_size=1, max_size=3))
def test_equal_calls_give_equal_results_in_every_process(requests):
    results = []
    for _ in range(2):
        postprocessor = ContextPilotPostprocessor(annotation="node", order_hint=True)
        found = [postprocessor.postprocess_nodes(copy.deepcopy(one), query_str="?") for one in requests]
        results.append([[node.model_dump() for node in nodes] for nodes in found])
    assert results[0] == results[1]


def test_threads_share_a_postprocessor():
    postprocessor = ContextPilotPostprocessor(annotation="node", order_hint=True)
    failed = []

    def work(seed):
        try:
            for turn in range(30):
                places = [(seed * 7 + turn * step) % 6 for step in range(1, 7)]
                nodes = pick(*dict.fromkeys(places))
                found = postprocessor.postprocess_nodes(nodes, query_str=f"{seed} {turn}")
                assert {node.node_id for node in found} - {"contextpilot-trailer"} == {node.node_id for node in nodes}
        except Exception as error:  # noqa: BLE001
            failed.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert failed == []
    assert postprocessor.failures == 0


def test_a_very_long_text():
    text = "word " * 400_000
    (found,) = ContextPilotPostprocessor(annotation="node").postprocess_nodes([NodeWithScore(node=TextNode(text=text))])
    assert found.node.get_content(metadata_mode=MetadataMode.LLM) == f"[1] {text}".strip()
