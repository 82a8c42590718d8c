"""A postprocessor whose index is a replica's: it is fed by a log, whose password is written nowhere."""

from __future__ import annotations

import json

import pytest
from contextpilot_rag.errors import LogUnavailable
from contextpilot_rag.replicas import redis_log
from llama_index.core.schema import NodeWithScore, TextNode

from llama_index.postprocessor.contextpilot import ContextPilotPostprocessor

ADDRESS = "redis://replica:hunter2@log.example:6379"


class Away:
    """A log that nobody reaches."""

    def __getattr__(self, name):
        if name == "close":
            return lambda: None

        def fail(*_, **__):
            raise LogUnavailable("the log cannot be reached")

        return fail


@pytest.fixture(autouse=True)
def _away(monkeypatch):
    monkeypatch.setattr(redis_log, "open_log", lambda *_, **__: Away())
    monkeypatch.setenv("CONTEXTPILOT_SALT_SECRET", "shared")


def test_it_orders_from_memory_and_shows_no_password(monkeypatch):
    postprocessor = ContextPilotPostprocessor(ADDRESS, min_gain=0)
    nodes = [NodeWithScore(node=TextNode(text=text)) for text in ("Slices count from zero.", "Steps.")]
    postprocessor.postprocess_nodes(nodes, query_str="What is a slice?")
    again = postprocessor.postprocess_nodes(nodes[::-1], query_str="What is a step?")
    assert [node.text for node in again] == ["Slices count from zero.", "Steps."]
    assert postprocessor.failures == 0
    written = [json.dumps(postprocessor.to_dict()), postprocessor.to_json(), repr(postprocessor), str(postprocessor)]
    assert not any("hunter2" in text for text in written)
    monkeypatch.setenv("CONTEXTPILOT_INDEX", ADDRESS)
    read = ContextPilotPostprocessor.from_dict(postprocessor.to_dict())
    assert read.adapter.pilot.replica is not None
    for pilot in (postprocessor.adapter.pilot, read.adapter.pilot):
        pilot.close()


def test_an_address_without_a_password_is_written():
    postprocessor = ContextPilotPostprocessor("redis://log.example:6379")
    assert postprocessor.to_dict()["pilot"] == "redis://log.example:6379"
    postprocessor.adapter.pilot.close()
