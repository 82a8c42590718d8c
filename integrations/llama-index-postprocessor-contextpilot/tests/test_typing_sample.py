"""A user's own code, as a type checker sees it: mypy checks this file strictly, and pytest runs it."""

from __future__ import annotations

import re
from pathlib import Path

from contextpilot_rag import ContextPilot
from llama_index.core import QueryBundle
from llama_index.core.base.response.schema import RESPONSE_TYPE
from llama_index.core.llms import MockLLM
from llama_index.core.memory import ChatMemoryBuffer
from llama_index.core.response_synthesizers import BaseSynthesizer
from llama_index.core.retrievers import BaseRetriever
from llama_index.core.schema import NodeWithScore, TextNode

from llama_index.postprocessor import contextpilot
from llama_index.postprocessor.contextpilot import (
    CONTEXTPILOT_TEXT_QA,
    DATE_METADATA,
    HIDDEN_METADATA,
    CannotProfitWarning,
    ContextPilotChatEngine,
    ContextPilotPostprocessor,
    ContextPilotSynthesizer,
    UsageHandler,
    check_response_mode,
    citations,
    engine_of,
    get_response_synthesizer,
    observe_usage,
)

NODES = [
    NodeWithScore(node=TextNode(text=text, id_=text[:6]), score=0.5) for text in ("Slices count.", "Steps do, too.")
]


class Shelf(BaseRetriever):
    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return NODES if query_bundle.query_str else []


def test_the_sample_uses_all_that_the_package_exports() -> None:
    source = Path(__file__).read_text(encoding="utf-8").partition(")\n\nNODES")[2]
    assert [name for name in contextpilot.__all__ if not re.search(rf"\b{name}\b", source)] == []


def test_a_postprocessor_and_its_nodes() -> None:
    hidden: tuple[str, ...] = (*HIDDEN_METADATA, *DATE_METADATA)
    pilot = ContextPilot(min_gain=0)
    postprocessor = ContextPilotPostprocessor(pilot, namespace="acme", hidden_metadata=hidden)
    handler: UsageHandler = observe_usage(postprocessor)
    try:
        nodes: list[NodeWithScore] = postprocessor.postprocess_nodes(NODES, query_str="?")
        engine: str | None = engine_of(nodes)
        assert (len(nodes), engine) == (2, None)
    finally:
        handler.remove()


def test_synthesizers() -> None:
    profits: bool = check_response_mode("compact")
    synthesizer: BaseSynthesizer = get_response_synthesizer("compact", llm=MockLLM())
    response: RESPONSE_TYPE = ContextPilotSynthesizer(llm=MockLLM(), text_qa_template=CONTEXTPILOT_TEXT_QA).synthesize(
        "?", NODES
    )
    cited: dict[int, NodeWithScore] = citations(response.source_nodes)
    assert profits
    assert isinstance(synthesizer, BaseSynthesizer)
    assert set(cited) == {1, 2}
    assert issubclass(CannotProfitWarning, UserWarning)


def test_a_chat_engine() -> None:
    engine = ContextPilotChatEngine(Shelf(), MockLLM(), ChatMemoryBuffer.from_defaults(), system_prompt="Answer.")
    answer: str = str(engine.chat("What is a slice?"))
    assert "slice" in answer
