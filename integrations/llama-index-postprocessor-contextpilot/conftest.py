"""What the README's examples have: a retriever, an LLM and an engine."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent / "tests"))

TEXTS = {
    "gate": "Bicycles are borrowed at the gate, for a day or a weekend.",
    "nine": "A bicycle has to be back by nine.",
    "door": "Helmets hang beside the door.",
}


@pytest.fixture(autouse=True)
def _readme(request: pytest.FixtureRequest, doctest_namespace: dict[str, Any]) -> Iterator[None]:
    """Only for the README: modules' doctests bring what they need."""
    if request.node.path.name != "README.md":
        yield
        return
    from contextpilot_rag.testing import FakeEngine
    from li_support import llm_of
    from llama_index.core.base.base_retriever import BaseRetriever
    from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode
    from llama_index.llms.openai_like import OpenAILike

    class Bicycles(BaseRetriever):
        def __init__(self, tenant: str = "all") -> None:
            super().__init__()
            self.tenant = tenant

        def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
            helmets = "helmets" in query_bundle.query_str
            names = ["door", "gate", "nine"] if helmets else ["gate", "nine"]
            return [NodeWithScore(node=self._node(name), score=0.5**place) for place, name in enumerate(names)]

        def _node(self, name: str) -> TextNode:
            tenant = {"tenant_id": self.tenant}
            return TextNode(id_=name, text=TEXTS[name], metadata=tenant, excluded_llm_metadata_keys=["tenant_id"])

    with FakeEngine() as engine:
        doctest_namespace["retriever"] = Bicycles()
        doctest_namespace["llm"] = llm_of(engine)
        doctest_namespace["OpenAILike"] = OpenAILike
        doctest_namespace["connection"] = {
            "model": "fake-engine",
            "api_base": engine.base_url,
            "api_key": "none",
            "is_chat_model": True,
            "context_window": 100_000,
        }
        doctest_namespace["retriever_for"] = Bicycles
        doctest_namespace["salt"] = lambda: engine.requests[-1].cache_salt
        doctest_namespace["sent"] = lambda: engine.requests[-1].messages[-1]["content"]
        yield
