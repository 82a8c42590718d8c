"""Measures what a query engine and chat engines save, as the endpoint reports it; writes the README's table.

python tests/li_measure.py
"""

from __future__ import annotations

import json
import platform
import sys
from collections.abc import Callable
from importlib import resources
from pathlib import Path

import faiss
from contextpilot_rag.demo.corpus import python_documentation
from contextpilot_rag.testing import FakeEngine
from li_support import DIMENSIONS, Embedding, llm_of
from llama_index.core import StorageContext, VectorStoreIndex
from llama_index.core.chat_engine import ContextChatEngine
from llama_index.core.query_engine import RetrieverQueryEngine
from llama_index.core.schema import TextNode
from llama_index.retrievers.bm25 import BM25Retriever
from llama_index.vector_stores.faiss import FaissVectorStore

from llama_index.postprocessor.contextpilot import (
    ContextPilotChatEngine,
    ContextPilotPostprocessor,
    ContextPilotSynthesizer,
)

README = Path(__file__).parent.parent / "README.md"
BEGIN, END = "<!-- table: python tests/li_measure.py -->\n", "<!-- end of table -->\n"
AREAS = ("with statement", "mutable default arguments", "slicing")
TOP_K = 10


def nodes_of_the_demo():
    """The documentation that Python carries, as the demo cuts it."""
    return [TextNode(id_=str(block.id), text=block.text) for block in python_documentation()]


def questions_on(area):
    """Up to ten questions of the demo's users about one thing."""
    lines = resources.files("contextpilot_rag.demo").joinpath("questions.jsonl").read_text(encoding="utf-8")
    return [one["question"] for one in map(json.loads, lines.splitlines()) if one["area"] == area][:10]


def vector_index(nodes):
    """The nodes in FAISS, in the framework's own vector store."""
    storage = StorageContext.from_defaults(vector_store=FaissVectorStore(faiss_index=faiss.IndexFlatIP(DIMENSIONS)))
    embedding = Embedding([node.text for node in nodes])
    return VectorStoreIndex(nodes, storage_context=storage, embed_model=embedding)


def stock_query(retriever, llm):
    return RetrieverQueryEngine.from_args(retriever, llm=llm).query


def our_query(retriever, llm):
    synthesizer = ContextPilotSynthesizer(llm=llm)
    postprocessors = [ContextPilotPostprocessor()]
    return RetrieverQueryEngine(retriever, response_synthesizer=synthesizer, node_postprocessors=postprocessors).query


def stock_chat(retriever, llm):
    return ContextChatEngine.from_defaults(retriever, llm=llm).chat


def annotated_chat(retriever, llm):
    postprocessors = [ContextPilotPostprocessor(annotation="node")]
    return ContextChatEngine.from_defaults(retriever, llm=llm, node_postprocessors=postprocessors).chat


def our_chat(retriever, llm):
    return ContextPilotChatEngine.from_defaults(retriever, llm=llm, system_prompt="Answer from the documents.").chat


def spent(make: Callable, retriever, questions) -> tuple[int, int]:
    """Prompt tokens, and how many of them the endpoint said were cached, of a fresh engine."""
    with FakeEngine(block_size=16) as engine:
        ask = make(retriever, llm_of(engine))
        for question in questions:
            ask(question)
        requests = engine.requests
    assert len(requests) == len(questions)
    return sum(one.prompt_tokens for one in requests), sum(one.cached_tokens for one in requests)


def table() -> str:
    """All pipelines, each over ten questions on each of three things."""
    nodes = nodes_of_the_demo()
    bm25 = BM25Retriever.from_defaults(nodes=nodes, similarity_top_k=TOP_K)
    vectors = vector_index(nodes).as_retriever(similarity_top_k=TOP_K)
    rows = [
        ("`RetrieverQueryEngine`, BM25", stock_query, bm25),
        ("the same, with postprocessor and synthesizer", our_query, bm25),
        ("`RetrieverQueryEngine`, FAISS", stock_query, vectors),
        ("the same, with postprocessor and synthesizer", our_query, vectors),
        ("`ContextChatEngine`, FAISS", stock_chat, vectors),
        ('the same, with postprocessor, `annotation="node"`', annotated_chat, vectors),
        ("`ContextPilotChatEngine`, FAISS", our_chat, vectors),
    ]
    lines = ["| pipeline | prompt tokens | cached | share | computed |", "|---|---|---|---|---|"]
    for name, make, retriever in rows:
        found = [spent(make, retriever, questions_on(area)) for area in AREAS]
        prompt, cached = (sum(one) for one in zip(*found, strict=True))
        lines.append(f"| {name} | {prompt:,} | {cached:,} | {100 * cached / prompt:.1f} % | {prompt - cached:,} |")
    asked = sum(len(questions_on(area)) for area in AREAS)
    lines.append("")
    lines.append(f"{asked} questions in three rounds on the demo's {len(nodes):,} blocks (the documentation in Python")
    lines.append(f"{platform.python_version()}), {TOP_K} nodes for each; blocks of 16 tokens in the cache.")
    return "\n".join(lines) + "\n"


def main() -> None:
    text = README.read_text(encoding="utf-8")
    before, rest = text.split(BEGIN)
    _, after = rest.split(END)
    made = table()
    README.write_text(f"{before}{BEGIN}{made}{END}{after}", encoding="utf-8")
    sys.stdout.write(made)


if __name__ == "__main__":
    main()
