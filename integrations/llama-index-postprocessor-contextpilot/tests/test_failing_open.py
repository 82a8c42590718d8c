"""Failing open: whatever of ours breaks, the framework's own result comes back, the same objects."""

from __future__ import annotations

import pytest
from contextpilot_rag import ContextPilot
from contextpilot_rag.errors import ContextPilotError, IndexFailed
from li_support import LONG, Broken, Listed, pick, user_text
from llama_index.core.query_engine import RetrieverQueryEngine
from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode

from llama_index.postprocessor.contextpilot import ContextPilotPostprocessor, ContextPilotSynthesizer


@pytest.mark.parametrize("annotation", ["none", "node"])
@pytest.mark.parametrize("asynchronous", [False, True])
async def test_a_broken_index(broken, annotation, asynchronous, caplog):
    postprocessor = ContextPilotPostprocessor(broken, annotation=annotation)
    given = pick(0, 1, 0)
    for _ in range(2):
        if asynchronous:
            found = await postprocessor.apostprocess_nodes(given)
        else:
            found = postprocessor.postprocess_nodes(given)
        assert found is given
        assert [node.metadata for node in found] == [{}, {}, {}]
    assert postprocessor.failures == 2
    assert len([record for record in caplog.records if record.name == "contextpilot_rag"]) == 1


def test_it_is_raised_where_that_is_asked_for():
    postprocessor = ContextPilotPostprocessor(ContextPilot(Broken(), on_error="raise"))
    with pytest.raises(IndexFailed):
        postprocessor.postprocess_nodes(pick(0, 1))
    strict = ContextPilotPostprocessor(ContextPilot(on_error="raise"), namespace_key="tenant")
    with pytest.raises(ContextPilotError, match="has no namespace"):
        strict.postprocess_nodes(pick(0))


def test_a_node_that_cannot_be_rendered():
    class Odd(TextNode):
        def get_content(self, metadata_mode=None):
            raise KeyError("template")

    given = [NodeWithScore(node=Odd(text="x")), *pick(0)]
    postprocessor = ContextPilotPostprocessor()
    assert postprocessor.postprocess_nodes(given) is given
    assert postprocessor.failures == 1


def test_nodes_that_cannot_be_marked(monkeypatch):
    def fails(*_):
        raise RuntimeError("no marks")

    monkeypatch.setattr("llama_index.postprocessor.contextpilot.arranged.marked", fails)
    given = pick(0, 1)
    postprocessor = ContextPilotPostprocessor()
    assert postprocessor.postprocess_nodes(given) is given
    assert postprocessor.failures == 1


def test_the_prompt_goes_out_as_retrieved(engine, llm, broken):
    query = RetrieverQueryEngine(
        Listed(pick(1, 0)),
        response_synthesizer=ContextPilotSynthesizer(llm=llm),
        node_postprocessors=[ContextPilotPostprocessor(broken)],
    )
    query.query("Why?")
    assert user_text(engine.requests[0]) == (
        f"<documents>\n[1] {LONG[1].strip()}\n\n[2] {LONG[0].strip()}\n</documents>\n\nWhy?"
    )


def test_the_users_own_failures_pass(llm):
    class Down(Listed):
        def _retrieve(self, query_bundle):
            raise ConnectionError("the user's retriever is down")

    query = RetrieverQueryEngine(
        Down(), response_synthesizer=ContextPilotSynthesizer(llm=llm), node_postprocessors=[ContextPilotPostprocessor()]
    )
    with pytest.raises(ConnectionError):
        query.query(QueryBundle("Why?"))
