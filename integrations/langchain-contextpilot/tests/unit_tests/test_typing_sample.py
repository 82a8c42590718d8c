"""A user's own code, as a type checker sees it: mypy checks this file strictly, and pytest runs it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from contextpilot_rag import ContextPilot
from langchain_core.documents import Document
from langchain_core.messages import HumanMessage
from langchain_core.runnables import Runnable, RunnableLambda

import langchain_contextpilot
from langchain_contextpilot import (
    ContextPilotCallbackHandler,
    ContextPilotCompressor,
    ContextPilotMiddleware,
    ContextPilotRetriever,
    engine_of,
    format_docs,
    order_hint,
    sources,
)

DOCUMENTS = [Document("Slices count from zero.", id="slices"), Document("A step may be negative.", id="steps")]


def find(question: str) -> list[Document]:
    return DOCUMENTS if question else []


def test_the_sample_uses_all_that_the_package_exports() -> None:
    source = Path(__file__).read_text(encoding="utf-8").partition(")\n\nDOCUMENTS")[2]
    assert [name for name in langchain_contextpilot.__all__ if not re.search(rf"\b{name}\b", source)] == []


def test_a_retriever_and_its_documents() -> None:
    base: Runnable[str, list[Document]] = RunnableLambda(find)
    pilot = ContextPilot(min_gain=0)
    retriever = ContextPilotRetriever(base_retriever=base, pilot=pilot, order="balanced", k=2)
    handler = ContextPilotCallbackHandler(retriever)
    documents: list[Document] = retriever.invoke("What is a slice?", {"callbacks": [handler]})
    text: str = format_docs(documents)
    hint: str = order_hint(documents)
    engine: str | None = engine_of(documents)
    assert ("[1] Slices" in text, hint, engine) == (True, "", None)


def test_a_compressor() -> None:
    compressed: Sequence[Document] = ContextPilotCompressor(namespace="acme").compress_documents(DOCUMENTS, "?")
    assert len(compressed) == 2


def test_middleware_and_what_was_cited() -> None:
    middleware = ContextPilotMiddleware(RunnableLambda(find), tools={"search"}, min_gain=0.2)
    cited: dict[int, Document] = sources([HumanMessage("?")])
    assert (middleware.failures, cited) == (0, {})
