from __future__ import annotations

import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contextpilot_rag import Block, Context
from contextpilot_rag.errors import ConflictingBlocks, MissingPackage, RetrievalError
from contextpilot_rag.retrieval.bm25 import BM25Retriever, from_bm25
from contextpilot_rag.retrieval.faiss import FaissRetriever, from_faiss
from contextpilot_rag.retrieval.fusion import fuse
from contextpilot_rag.retrieval.lsa import LsaEmbedding
from contextpilot_rag.retrieval.results import ranked
from contextpilot_rag.retrieval.words import words

CORPUS = [Block(text, id=f"id{9 - number}") for number, text in enumerate(
    ["slices count from zero", "a step may be negative", "tea is hot", "slices take a step", "nothing of the kind"]
)]  # fmt: skip


def ids(context):
    return [block.id for block in context]


# raw results


def test_scores_come_best_first_with_ties_by_id():
    context = from_bm25([1.0, 2.0, 1.0, 0.0, -1.0], CORPUS, k=3, question="q")
    assert ids(context) == ["id8", "id7", "id9"]
    assert [block.score for block in context] == [2.0, 1.0, 1.0]
    assert context.question == "q"


def test_zero_scores_and_what_is_no_number_are_no_results():
    assert ids(from_bm25([0.0, float("nan"), 0.0, 0.0, 0.0], CORPUS)) == []


@given(st.lists(st.sampled_from([0.0, 0.5, 1.0, 2.0]), min_size=5, max_size=5), st.integers(1, 7))
def test_cutting_to_k_is_the_start_of_the_whole_ranking(scores, k):
    assert ids(from_bm25(scores, CORPUS, k)) == ids(from_bm25(scores, CORPUS, 5))[:k]


@pytest.mark.parametrize(
    ("scores", "k"),
    [
        ([1.0], 3),
        ([[1.0] * 5], 3),
        (["x"] * 5, 3),
        ([1.0] * 5, 0),
        ([1.0] * 5, -1),
        ([1.0] * 5, 2.5),
        ([1.0] * 5, None),
    ],
)
def test_scores_that_do_not_fit(scores, k):
    with pytest.raises(RetrievalError):
        from_bm25(scores, CORPUS, k)


def test_faiss_padding_and_fillers_are_dropped():
    context = from_faiss([0.5, 0.5, 0.0, np.inf, -3.4e38], [2, 0, 1, 3, -1], CORPUS)
    assert ids(context) == ["id7", "id9"]


def test_faiss_distances_can_be_squared_lengths():
    assert ids(from_faiss([0.1, 0.0, 3.4e38], [0, 1, -1], CORPUS, metric="l2")) == ["id8", "id9"]
    assert ids(from_faiss([], [], CORPUS)) == []


@pytest.mark.parametrize(
    ("distances", "positions"),
    [([0.5], [99]), ([0.5, 0.4], [1]), ([[0.5]], [[1]]), ([0.5], [[1]]), ([0.5], [1.7]), ([0.5], ["x"]), (["x"], [1])],
)
def test_faiss_rows_that_do_not_fit(distances, positions):
    with pytest.raises(RetrievalError):
        from_faiss(distances, positions, CORPUS)


def test_an_unknown_metric_is_refused():
    with pytest.raises(RetrievalError, match="'inner_product', 'l2', not 'L2'"):
        from_faiss([0.1, 9.0], [0, 1], CORPUS, metric="L2")


def test_a_position_that_comes_twice_counts_once():
    assert ids(from_faiss([0.5, 0.9, 0.1], [1, 1, 0], CORPUS)) == ["id8", "id9"]


def test_a_position_outside_the_corpus_is_named():
    with pytest.raises(RetrievalError, match="position 7, but there are 5 blocks"):
        ranked([(7, 1.0)], CORPUS, 3)


# real retrievers


def test_bm25_finds_what_shares_words():
    retriever = BM25Retriever(CORPUS)
    assert ids(retriever.retrieve("negative steps"))[0] == "id8"
    assert ids(retriever.retrieve("zzz")) == []
    assert len(retriever.retrieve("slices step negative", k=2)) == 2


def test_faiss_gives_the_same_ranking_for_every_k():
    embed = LsaEmbedding([block.text for block in CORPUS], dimensions=3)
    doubled = [*CORPUS, *(Block(block.text, id=f"copy of {block.id}") for block in CORPUS)]
    retriever = FaissRetriever(doubled, embed)
    longest = ids(retriever.retrieve("slices step", k=10))
    for k in range(1, 10):
        assert ids(retriever.retrieve("slices step", k=k)) == longest[:k]


def test_faiss_leaves_out_what_has_nothing_in_common():
    embed = LsaEmbedding([block.text for block in CORPUS], dimensions=4)
    assert ids(FaissRetriever(CORPUS, embed).retrieve("zzz")) == []


@pytest.mark.parametrize(
    "make",
    [
        lambda: BM25Retriever([]),
        lambda: BM25Retriever(["text"]),  # type: ignore[list-item]
        lambda: FaissRetriever(CORPUS, lambda texts: np.array(["no vector"] * len(texts))),
        lambda: BM25Retriever([Block("the of and")]),
        lambda: FaissRetriever([], lambda texts: np.ones((len(texts), 2), dtype=np.float32)),
        lambda: FaissRetriever(CORPUS, lambda texts: np.ones(3, dtype=np.float32)),
        lambda: LsaEmbedding(["one"]),
        lambda: LsaEmbedding(["one two", "two three"], dimensions=0),
        lambda: LsaEmbedding(["word", "word"]),
    ],
)
def test_corpora_that_cannot_be_searched(make):
    with pytest.raises(RetrievalError):
        make()


def test_embeddings_are_equal_in_every_run_and_blank_texts_are_fine():
    texts = [block.text for block in CORPUS]
    first, *others = [LsaEmbedding(texts, 3)(["slices", ""]) for _ in range(10)]
    assert all(np.array_equal(first, other) for other in others)
    assert not first[1].any()


# fusion


def test_fusion_rewards_blocks_that_several_retrievers_like():
    one, two = Context(tuple(CORPUS[:3]), "q"), Context((CORPUS[3], CORPUS[2]), "q")
    fused = fuse([one, two], k=2)
    assert ids(fused)[0] == "id7"
    assert len(fused) == 2
    assert fused.question == "q"
    assert ids(fuse([], 3)) == []


def test_fusion_refuses_what_it_would_lose():
    with pytest.raises(ConflictingBlocks, match="id 'a' stands for two texts"):
        fuse([Context((Block("x", id="a"),)), Context((Block("y", id="a"),))], k=5)
    with pytest.raises(RetrievalError, match="k must be"):
        fuse([], k=-1)


def test_embeddings_of_alike_texts_are_equal_in_every_run():
    texts = ["hot tea", "black coffee", "white milk"]
    texts += [f"document {n} tea coffee number {n} alpha{n} beta{n}" for n in range(1, 5)]
    first, *others = [LsaEmbedding(texts)(texts) for _ in range(10)]
    assert all(np.array_equal(first, other) for other in others)


@pytest.mark.parametrize("k", [0, -1, 2.5, "3"])
def test_retrievers_refuse_impossible_numbers(k):
    embed = LsaEmbedding([block.text for block in CORPUS], dimensions=3)
    for retriever in (BM25Retriever(CORPUS), FaissRetriever(CORPUS, embed)):
        with pytest.raises(RetrievalError, match="k must be"):
            retriever.retrieve("slices", k)


def test_an_embedding_that_changes_its_width():
    retriever = FaissRetriever(CORPUS, lambda texts: np.ones((len(texts), len(texts)), dtype=np.float32))
    with pytest.raises(RetrievalError, match="1 dimensions for the question, 5 for the blocks"):
        retriever.retrieve("slices")


def test_fusion_keeps_blocks_without_ids_apart():
    assert len(fuse([Context((Block("x"), Block("y"))), Context((Block("y"),))], k=5)) == 2


def test_a_missing_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "rank_bm25", None)
    with pytest.raises(MissingPackage, match=r"needs rank-bm25: pip install 'contextpilot-rag\[retrieval\]'"):
        BM25Retriever(CORPUS)


@settings(max_examples=30)
@given(st.lists(st.permutations(CORPUS), min_size=1, max_size=3))
def test_fusion_keeps_the_set_of_blocks(rankings):
    fused = fuse([Context(tuple(ranking)) for ranking in rankings], k=5)
    assert sorted(ids(fused)) == sorted(block.id for block in CORPUS)


def test_words():
    assert words("Is the Class's slices' STATUS?") == ["class", "slice", "status"]
