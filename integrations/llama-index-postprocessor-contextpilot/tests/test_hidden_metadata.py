"""Hidden metadata: what changes with every question, machine or ingestion is not shown to the model."""

from __future__ import annotations

import logging

import pytest
from li_support import Listed, pick
from llama_index.core.llms import MockLLM
from llama_index.core.schema import MetadataMode, NodeWithScore, TextNode

from llama_index.postprocessor.contextpilot import (
    DATE_METADATA,
    HIDDEN_METADATA,
    ContextPilotChatEngine,
    ContextPilotPostprocessor,
)

VOLATILE = {
    "retrieval_score": 0.93,
    "relevance_score": 0.1,
    "score": 3,
    "file_path": "/tmp/x7/guide.md",
    "creation_date": "2026-01-01",
    "last_modified_date": "2026-01-02",
    "last_accessed_date": "2026-01-03",
    "retrieved_at": "12:01",
    "Indexed_At": 17,
}
CONTENT = {
    "due_date": "2026-02-01",
    "published_at": "2025",
    "updated_at": "2025",
    "date": "1815-06-18",
    "timestamp": "00:12:07",
    "file_name": "guide.md",
}


def shown(postprocessor, metadata):
    node = TextNode(text="Slices count from zero.", metadata=metadata)
    (found,) = postprocessor.postprocess_nodes([NodeWithScore(node=node)])
    return found.node


def test_scores_paths_and_dates_of_files_are_hidden_and_stay_there():
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


def test_dates_that_are_content_are_shown():
    node = shown(ContextPilotPostprocessor(), CONTENT)
    text = node.get_content(metadata_mode=MetadataMode.LLM)
    assert all(f"{key}: {value}" in text for key, value in CONTENT.items())


def test_all_dates_can_be_hidden():
    node = shown(ContextPilotPostprocessor(hidden_metadata=[*HIDDEN_METADATA, *DATE_METADATA]), {**CONTENT, **VOLATILE})
    assert node.get_content(metadata_mode=MetadataMode.LLM) == "file_name: guide.md\n\nSlices count from zero."


def said(caplog):
    return [(one.levelname, one.getMessage()) for one in caplog.records if "the metadata" in one.getMessage()]


def test_what_is_hidden_is_said_once(caplog):
    for _ in range(2):
        shown(ContextPilotPostprocessor(), {"score": 1, "file_path": "/tmp/x", "title": "T"})
    shown(ContextPilotPostprocessor(), {"distance": 1})
    ((level, first), (_, second)) = said(caplog)
    assert level == "WARNING"
    assert "'file_path', 'score'," in first
    assert "title" not in first
    assert "'distance'," in second


def test_what_the_user_asked_for_or_the_reader_hid_is_no_news(caplog):
    node = TextNode(text="t", metadata={"file_path": "/tmp/x"}, excluded_llm_metadata_keys=["file_path"])
    ContextPilotPostprocessor().postprocess_nodes([NodeWithScore(node=node)])
    assert said(caplog) == []
    with caplog.at_level(logging.INFO):
        shown(ContextPilotPostprocessor(hidden_metadata=["page"]), {"page": 1})
    assert [level for level, _ in said(caplog)] == ["INFO"]


def test_the_chat_engine_says_it_too(caplog):
    given = pick(0)
    given[0].node.metadata["score"] = 0.5
    ContextPilotChatEngine.from_defaults(Listed(given), llm=MockLLM()).chat("One?")
    assert len(said(caplog)) == 1
