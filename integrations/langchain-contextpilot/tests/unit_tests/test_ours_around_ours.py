"""Two of ours, one behind the other: ranks and hint are the retriever's."""

from __future__ import annotations

from langchain_classic.retrievers import ContextualCompressionRetriever
from langchain_core.documents import Document
from langchain_core.runnables import RunnableLambda
from langchain_hooks import found, returning

from langchain_contextpilot import ContextPilotCompressor, ContextPilotRetriever, order_hint


def ranks(documents):
    return [one.metadata["contextpilot"]["rank"] for one in documents]


async def test_ours_around_ours_keeps_the_retrievers_ranks(ask):
    """The first one's order is not the retriever's: ranks and hint go through, whatever stands in between."""
    first, second = found("slices", "steps"), found("copies", "steps", "slices")
    image = Document("", metadata={"image": "a.png"})
    for around in (
        lambda base: ContextPilotRetriever(base_retriever=ContextPilotRetriever(base_retriever=base), order_hint=True),
        lambda base: ContextualCompressionRetriever(
            base_compressor=ContextPilotCompressor(order_hint=True),
            base_retriever=ContextPilotRetriever(base_retriever=base),
        ),
    ):
        alone = ContextPilotRetriever(base_retriever=returning(first, [image, *second]), order_hint=True)
        both = around(returning(first, [image, *second]))
        for question in "12":
            expected, placed = await ask(alone, question), await ask(both, question)
            assert placed == expected
        assert ranks(placed) == [3, 2, 1, 0]
        assert order_hint(placed) == "Order of relevance, best first: [3] > [2] > [1]"
    inner = ContextPilotRetriever(base_retriever=returning(first, second))
    await ask(inner, "1")
    dropped = RunnableLambda(lambda _: inner.invoke("2")[1:])
    assert ranks(await ask(ContextPilotRetriever(base_retriever=dropped, k=1), "3")) == [0]
    assert ranks(await ask(ContextPilotRetriever(base_retriever=dropped), "4")) == [0, 1]


async def test_who_sorts_behind_ours_is_the_retriever(ask):
    inner = ContextPilotRetriever(base_retriever=returning(found("slices", "steps")))
    reranked = RunnableLambda(lambda _: inner.invoke("?")[::-1])
    placed = await ask(ContextPilotRetriever(base_retriever=reranked), "?")
    assert [(one.id, rank) for one, rank in zip(placed, ranks(placed), strict=True)] == [
        ("id-steps", 0),
        ("id-slices", 1),
    ]
    mixed = RunnableLambda(lambda _: [*found("sets"), *inner.invoke("?")])
    assert ranks(await ask(ContextPilotRetriever(base_retriever=mixed), "?")) == [0, 1, 2]
