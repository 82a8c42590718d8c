"""Fixtures: the demo's documents behind real retrievers, and a real endpoint."""

from __future__ import annotations

import pytest
from contextpilot_rag import ContextPilot
from contextpilot_rag.demo.corpus import python_documentation
from contextpilot_rag.testing import FakeEngine
from li_measure import questions_on, vector_index
from li_support import Broken, llm_of
from llama_index.core.schema import TextNode
from llama_index.retrievers.bm25 import BM25Retriever

from llama_index.postprocessor.contextpilot.told import TOLD


@pytest.fixture(autouse=True)
def _nothing_said():
    """What is said once in a process is said once in each test."""
    TOLD.forget()


@pytest.fixture(scope="session")
def documents():
    return [block for block in python_documentation() if str(block.id).startswith("topics/")]


@pytest.fixture(scope="session")
def nodes(documents):
    return [TextNode(id_=str(block.id), text=block.text) for block in documents]


@pytest.fixture(scope="session")
def questions():
    """Ten questions of different users about the same thing, as the demo has them."""
    return questions_on("with statement")


@pytest.fixture(scope="session")
def bm25(nodes):
    return BM25Retriever.from_defaults(nodes=nodes, similarity_top_k=10)


@pytest.fixture(scope="session")
def vectors(nodes):
    """A FAISS index in the framework's own vector store."""
    return vector_index(nodes)


@pytest.fixture
def engine():
    with FakeEngine(block_size=16) as engine:
        yield engine


@pytest.fixture
def llm(engine):
    return llm_of(engine)


@pytest.fixture
def broken():
    return ContextPilot(Broken())
