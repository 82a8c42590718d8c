"""ContextPilotCompressor, in the places where LangChain has compressors."""

from __future__ import annotations

import copy

import pytest
from contextpilot_rag import ContextPilot
from contextpilot_rag.errors import SettingsError
from contextpilot_rag.retrieval.words import words
from langchain_classic.retrievers import ContextualCompressionRetriever, EnsembleRetriever
from langchain_classic.retrievers.document_compressors import DocumentCompressorPipeline
from langchain_classic.retrievers.multi_query import MultiQueryRetriever
from langchain_community.document_transformers import LongContextReorder
from langchain_community.retrievers import BM25Retriever
from langchain_community.vectorstores import FAISS
from langchain_core.documents import Document
from langchain_core.language_models import FakeListChatModel
from langchain_core.runnables import RunnableLambda
from langchain_stage import Broken, WordEmbedding

from langchain_contextpilot import ContextPilotCompressor, ContextPilotRetriever

TEXTS = [f"{name.capitalize()} are explained here at length. " * 10 for name in ("slices", "steps", "copies", "sets")]
SLICES, STEPS, COPIES, SETS = DOCUMENTS = [Document(text, metadata={"name": text[:5]}) for text in TEXTS]


def in_a_retriever(base, compressor):
    return ContextualCompressionRetriever(base_compressor=compressor, base_retriever=base)


def returning(*lists):
    left = list(lists)
    return RunnableLambda(lambda _: left.pop(0))


@pytest.fixture(params=["sync", "async"])
def ask(request):
    async def asynchronously(retriever, *args):
        return await retriever.ainvoke(*args)

    async def synchronously(retriever, *args):
        return retriever.invoke(*args)

    return asynchronously if request.param == "async" else synchronously


async def test_in_a_compression_retriever(ask):
    retriever = in_a_retriever(returning([SLICES, STEPS], [COPIES, STEPS, SLICES], []), ContextPilotCompressor())
    await ask(retriever, "What is a slice?")
    placed = await ask(retriever, "Does a slice copy?")
    assert [one.page_content for one in placed] == [SLICES.page_content, STEPS.page_content, COPIES.page_content]
    assert await ask(retriever, "Nothing?") == []


async def test_last_in_a_pipeline(ask):
    compressor = ContextPilotCompressor()
    pipeline = DocumentCompressorPipeline(transformers=[LongContextReorder(), compressor])
    retriever = in_a_retriever(returning([SLICES, STEPS, COPIES], [STEPS, COPIES, SLICES]), pipeline)
    first = await ask(retriever, "1")
    assert [one.metadata["contextpilot"]["rank"] for one in first] == [0, 1, 2]
    second = await ask(retriever, "2")
    assert [one.page_content for one in second] == [one.page_content for one in first]
    assert compressor.failures == 0


async def test_around_an_ensemble_of_real_retrievers(ask):
    by_words = BM25Retriever.from_documents(DOCUMENTS, preprocess_func=words, k=4)
    by_vectors = FAISS.from_documents(DOCUMENTS, WordEmbedding()).as_retriever(search_kwargs={"k": 4})
    ensemble = EnsembleRetriever(retrievers=[by_words, by_vectors], id_key="name")
    for retriever in (
        in_a_retriever(ensemble, ContextPilotCompressor()),
        ContextPilotRetriever(base_retriever=ensemble),
    ):
        first, second = await ask(retriever, "slices"), await ask(retriever, "sets")
        assert [one.page_content for one in second] == [one.page_content for one in first]
        assert sorted(one.page_content for one in second) == sorted(TEXTS)
        assert second[0].metadata["contextpilot"]["rank"] > 0


async def test_around_multi_query_which_keeps_copies(ask):
    """The same text without an id from BM25, and under new ids from each build of a vector store, is one block."""
    stores = iter([FAISS.from_documents(DOCUMENTS, WordEmbedding()) for _ in range(3)] * 4)
    base = EnsembleRetriever(retrievers=[RunnableLambda(lambda question: next(stores).similarity_search(question, 4))])
    llm = FakeListChatModel(responses=["slices\nsteps\nsets"])
    many = MultiQueryRetriever.from_llm(retriever=base, llm=llm)
    assert len(await ask(many, "slices and sets")) == 12
    placed = await ask(in_a_retriever(many, ContextPilotCompressor()), "slices and sets")
    assert sorted(one.page_content for one in placed) == sorted(TEXTS)
    assert all(len(one.metadata["contextpilot"]["duplicates"]) == 2 for one in placed)


def test_the_callers_documents_and_lists_are_not_changed():
    given = [STEPS, SLICES, Document(STEPS.page_content)]
    before = copy.deepcopy(given)
    ContextPilotCompressor().compress_documents(tuple(given), "?")
    assert given == before


async def test_duplicates_stay_known_through_two_of_ours():
    once = ContextPilotCompressor().compress_documents([Document("a", id="1"), Document("a", id="2")], "?")
    twice = await ContextPilotCompressor().acompress_documents([*once, Document("a", id="3")], "?")
    assert [same["id"] for same in twice[0].metadata["contextpilot"]["duplicates"]] == ["2", "3"]


async def test_a_broken_index_gives_the_very_same_documents():
    compressor = ContextPilotCompressor(pilot=ContextPilot(Broken()))
    given = [STEPS, SLICES, STEPS]
    assert compressor.compress_documents(given, "?") is given
    assert await compressor.acompress_documents(given, "?") is given
    assert compressor.failures == 2


async def test_namespaces_from_the_config(ask):
    compressor = ContextPilotCompressor()
    lists = [SLICES, STEPS], [STEPS, SLICES], [STEPS, SLICES]
    retriever = in_a_retriever(returning(*lists), compressor)
    for tenant, expected in [("acme", [0, 1]), ("globex", [0, 1]), ("acme", [1, 0])]:
        placed = await ask(retriever, "?", {"metadata": {"contextpilot_namespace": tenant}})
        assert [one.metadata["contextpilot"]["rank"] for one in placed] == expected
    chain = RunnableLambda(lambda question: question) | in_a_retriever(returning([STEPS, SLICES]), compressor)
    placed = await ask(chain, "?", {"configurable": {"contextpilot_namespace": "globex"}})
    assert [one.metadata["contextpilot"]["rank"] for one in placed] == [0, 1]
    assert compressor.pilot.stats().namespaces == 2


@pytest.mark.parametrize("wrong", ["", True, 1.5])
async def test_a_namespace_that_is_none_is_an_error(ask, wrong):
    compressor = ContextPilotCompressor()
    retriever = in_a_retriever(returning([SLICES, STEPS], [SLICES, STEPS]), compressor)
    config = {"metadata": {"contextpilot_namespace": wrong}}
    with pytest.raises(SettingsError, match="contextpilot_namespace in the request's config"):
        await ask(retriever, "?", config)
    assert compressor.failures == 0


async def test_a_namespace_that_is_required(ask):
    """For those who cannot be sure that LangChain hands their "configurable" on: here it does not."""
    compressor = ContextPilotCompressor(require_namespace=True)
    lists = [[SLICES, STEPS] for _ in range(3)]
    retriever = in_a_retriever(returning(*lists), compressor)
    with pytest.raises(SettingsError, match="a namespace is required"):
        await ask(retriever, "?")
    assert len(await ask(retriever, "?", {"metadata": {"contextpilot_namespace": 2}})) == 2
