"""Hidden metadata: what changes with every question, machine or ingestion is not shown to the model."""

from __future__ import annotations

import pytest
from llama_index.core.schema import MetadataMode, NodeWithScore, TextNode

from llama_index.postprocessor.contextpilot import ContextPilotPostprocessor

VOLATILE = {
    "retrieval_score": 0.93,
    "relevance_score": 0.1,
    "score": 3,
    "file_path": "/tmp/x7/guide.md",
    "creation_date": "2026-01-01",
    "last_modified_date": "2026-01-02",
    "retrieved_at": "12:01",
    "Timestamp": 17,
}


def shown(postprocessor, metadata):
    node = TextNode(text="Slices count from zero.", metadata=metadata)
    (found,) = postprocessor.postprocess_nodes([NodeWithScore(node=node)])
    return found.node


def test_scores_paths_and_dates_are_hidden_and_stay_there():
    node = shown(ContextPilotPostprocessor(), {"title": "Guide", **VOLATILE, "page": 3})
    assert node.get_content(metadata_mode=MetadataMode.LLM) == "title: Guide\npage: 3\n\nSlices count from zero."
    assert {**VOLATILE, "title": "Guide"}.items() <= node.metadata.items()
    assert "retrieval_score: 0.93" in node.get_content(metadata_mode=MetadataMode.EMBED)  # not ours to change


def test_the_same_text_with_another_score_is_the_same_block():
    postprocessor = ContextPilotPostprocessor(min_gain=0)
    for question, order in (("a", (0, 1)), ("b", (1, 0))):
        given = [
            NodeWithScore(node=TextNode(text=f"text {name} " * 30, metadata={"retrieval_score": place / 7}))
            for place, name in enumerate(order)
        ]
        found = postprocessor.postprocess_nodes(given, query_str=question)
    assert [node.metadata["contextpilot"]["rank"] for node in found] == [1, 0]


@pytest.mark.parametrize("off", [None, ()])
def test_it_can_be_switched_off(off):
    node = shown(ContextPilotPostprocessor(hidden_metadata=off), VOLATILE)
    assert "retrieval_score: 0.93" in node.get_content(metadata_mode=MetadataMode.LLM)


def test_patterns_are_the_users():
    node = shown(ContextPilotPostprocessor(hidden_metadata=("page*", "[x]")), {"PAGE_no": 3, "score": 1, "x": 2})
    assert node.get_content(metadata_mode=MetadataMode.LLM) == "score: 1\n\nSlices count from zero."


def test_what_the_user_hid_stays_hidden():
    node = TextNode(text="t", metadata={"a": 1, "b": 2}, excluded_llm_metadata_keys=["a"])
    (found,) = ContextPilotPostprocessor().postprocess_nodes([NodeWithScore(node=node)])
    assert found.node.get_content(metadata_mode=MetadataMode.LLM) == "b: 2\n\nt"
