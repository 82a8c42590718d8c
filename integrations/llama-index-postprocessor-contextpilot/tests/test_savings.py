"""What it is for: at least twice the cached tokens of the same pipeline without us, as the endpoint reports them."""

from __future__ import annotations

import pytest
from li_measure import BEGIN, END, README, annotated_chat, our_chat, our_query, spent, stock_chat, stock_query


@pytest.mark.parametrize("kind", ["bm25", "faiss"])
def test_a_query_engine(kind, bm25, vectors, questions):
    retriever = bm25 if kind == "bm25" else vectors.as_retriever(similarity_top_k=10)
    (prompt, cached), (our_prompt, ours) = (spent(make, retriever, questions) for make in (stock_query, our_query))
    assert ours >= 1.5 * cached
    assert our_prompt - ours < prompt - cached  # and less is computed


def test_chat_engines(vectors, questions):
    retriever = vectors.as_retriever(similarity_top_k=10)
    stock, annotated, ours = (spent(make, retriever, questions) for make in (stock_chat, annotated_chat, our_chat))
    assert annotated[1] >= 1.5 * stock[1]
    assert ours[1] >= 10 * stock[1]
    assert ours[0] - ours[1] < stock[0] - stock[1]


def test_the_readme_has_the_table():
    table = README.read_text(encoding="utf-8").split(BEGIN)[1].split(END)[0]
    assert len([line for line in table.splitlines() if line.startswith("| ")]) == 8
