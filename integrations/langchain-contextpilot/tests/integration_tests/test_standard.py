"""LangChain's own tests for retrievers, unchanged."""

from __future__ import annotations

import pytest
from langchain_community.vectorstores import FAISS
from langchain_core.documents import Document
from langchain_core.vectorstores import InMemoryVectorStore
from langchain_stage import WordEmbedding, bm25, documents
from langchain_tests.integration_tests import RetrieversIntegrationTests

from langchain_contextpilot import ContextPilotRetriever


class Standard(RetrieversIntegrationTests):
    @property
    def retriever_constructor(self):
        return ContextPilotRetriever

    @property
    def retriever_query_example(self):
        return "How do I cancel an asyncio task after a timeout?"


class TestAroundAVectorStore(Standard):
    @property
    def retriever_constructor_params(self):
        store = InMemoryVectorStore(WordEmbedding())
        store.add_documents(documents()[:40])
        return {"base_retriever": store.as_retriever()}


class TestAroundFaissWithCopies(Standard):
    @property
    def retriever_constructor_params(self):
        copies = [Document(one.page_content) for one in documents()[:8] for _ in range(3)]
        return {"base_retriever": FAISS.from_documents(copies, WordEmbedding()).as_retriever()}


class TestAroundBM25(Standard):
    @property
    def retriever_constructor_params(self):
        return {"base_retriever": bm25()}


@pytest.mark.parametrize("suite", [TestAroundAVectorStore, TestAroundFaissWithCopies, TestAroundBM25])
def test_nothing_was_overridden(suite):
    ours = {name for kind in suite.__mro__[:2] for name in vars(kind) if name.startswith("test_")}
    assert not ours
