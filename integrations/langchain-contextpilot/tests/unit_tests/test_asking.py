"""k: exactly as many documents as asked for, as long as the base has them, whatever comes twice."""

from __future__ import annotations

import pytest
from langchain_classic.retrievers import ContextualCompressionRetriever
from langchain_classic.retrievers.document_compressors import DocumentCompressorPipeline
from langchain_community.retrievers import BM25Retriever
from langchain_core.documents import Document
from langchain_core.retrievers import BaseRetriever
from langchain_core.runnables import RunnableLambda
from langchain_core.vectorstores import InMemoryVectorStore
from langchain_stage import WordEmbedding

from langchain_contextpilot import ContextPilotRetriever

# Each text under three ids, as after ingesting the same documents three times.
TWICE = [Document(f"Text {number} on slices", id=f"{number}-{time}") for number in range(10) for time in range(3)]


class Named(BaseRetriever):
    """Takes k by name, and notes what it was asked for."""

    asked: list[int]

    def _get_relevant_documents(self, query, *, run_manager, k=4):
        self.asked.append(k)
        return TWICE[:k]


class WithoutK(BaseRetriever):
    """Takes other keywords, but no k."""

    def _get_relevant_documents(self, query, *, run_manager, only=None):
        return [one for one in TWICE if only is None or only in one.page_content][:9]


def vector_store():
    store = InMemoryVectorStore(WordEmbedding())
    store.add_documents(TWICE)
    return store.as_retriever(search_kwargs={"k": 2})


BASES = {
    "vector store": vector_store,
    "bm25": lambda: BM25Retriever.from_documents(TWICE, k=2),
    "by name": lambda: Named(asked=[]),
    "bound": lambda: vector_store().with_config(tags=["t"]),
    "bm25, bound": lambda: BM25Retriever.from_documents(TWICE, k=2).with_config(tags=["t"]),
    "compressed": lambda: compressed(vector_store()),
    "compressed bm25": lambda: compressed(BM25Retriever.from_documents(TWICE, k=2)),
    "one of ours": lambda: ContextPilotRetriever(base_retriever=vector_store(), k=2),
}


def compressed(base):
    return ContextualCompressionRetriever(
        base_compressor=DocumentCompressorPipeline(transformers=[]), base_retriever=base
    )


@pytest.mark.parametrize("name", BASES)
@pytest.mark.parametrize("k", [1, 3, 7, 10])
def test_exactly_k_that_differ(name, k):
    base = BASES[name]()
    retriever = ContextPilotRetriever(base_retriever=base, k=k)
    found = retriever.invoke("Which text is on slices?")
    assert len({one.page_content for one in found}) == len(found) == k
    assert len(retriever.invoke("Which text is on slices?", k=2)) == 2


@pytest.mark.parametrize("name", sorted(BASES.keys() - {"by name"}))
async def test_asynchronously_too(name):
    retriever = ContextPilotRetriever(base_retriever=BASES[name](), k=7)
    assert len(await retriever.ainvoke("Which text is on slices?")) == 7
    assert len(await retriever.ainvoke("Which text is on slices?", k=1)) == 1


async def test_a_base_that_takes_k_only_where_it_is_not_awaited_is_cut():
    retriever = ContextPilotRetriever(base_retriever=Named(asked=[]), k=2)
    assert len(await retriever.ainvoke("?")) == 2
    assert len(await retriever.ainvoke("?", k=1)) == 1


def test_the_base_is_asked_again_only_if_needed_and_with_bounds():
    base = Named(asked=[])
    assert len(ContextPilotRetriever(base_retriever=base, k=4).invoke("?")) == 4
    assert base.asked == [4, 8, 16]
    base.asked.clear()
    assert len(ContextPilotRetriever(base_retriever=base, k=4, over_fetch=8).invoke("?")) == 4
    assert base.asked == [12]
    base.asked.clear()
    assert len(ContextPilotRetriever(base_retriever=base, k=100).invoke("?")) == 10  # the base has no more
    assert base.asked == [100]


def test_a_base_full_of_one_text_is_given_up():
    class Endless(Named):
        def _get_relevant_documents(self, query, *, run_manager, k=4):
            self.asked.append(k)
            return [Document("one text")] * k

    base = Endless(asked=[])
    assert len(ContextPilotRetriever(base_retriever=base, k=2).invoke("?")) == 1
    assert max(base.asked) == 64


def test_the_base_itself_is_not_changed():
    base = BM25Retriever.from_documents(TWICE, k=2)
    ContextPilotRetriever(base_retriever=base, k=7).invoke("slices")
    assert base.k == 2


@pytest.mark.parametrize(
    "base", [WithoutK(), RunnableLambda(lambda _: TWICE), compressed(RunnableLambda(lambda _: TWICE))]
)
def test_a_base_that_takes_no_k_is_cut(base):
    retriever = ContextPilotRetriever(base_retriever=base)
    assert len(retriever.invoke("?", k=2)) == 2


def test_keywords_for_the_base_pass():
    found = ContextPilotRetriever(base_retriever=WithoutK()).invoke("?", only="7")
    assert [one.page_content for one in found] == ["Text 7 on slices"]
