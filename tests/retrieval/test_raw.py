"""Raw results of bm25s, Elasticsearch, OpenSearch and Mem0 as contexts."""

from __future__ import annotations

from types import SimpleNamespace

import bm25s
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextpilot_rag import Block, ContextPilot
from contextpilot_rag.errors import RetrievalError
from contextpilot_rag.retrieval import from_bm25s, from_elasticsearch, from_mem0

CORPUS = [Block(text, id=f"id{9 - number}") for number, text in enumerate(
    ["slices count from zero", "a step may be negative", "tea is hot", "slices take a step", "nothing of the kind"]
)]  # fmt: skip


def ids(context):
    return [block.id for block in context]


def hit(name, score=1.0, text="some text", **more):
    return {"_index": "docs", "_id": name, "_score": score, "_source": {"text": text}, **more}


def body(*hits):
    return {
        "took": 3,
        "timed_out": False,
        "hits": {"total": {"value": len(hits)}, "max_score": 1.0, "hits": list(hits)},
    }


# bm25s


@pytest.mark.parametrize("k", [1, 3, 5])
def test_bm25s_itself(k):
    index = bm25s.BM25()
    index.index(bm25s.tokenize([block.text for block in CORPUS], show_progress=False), show_progress=False)
    questions = bm25s.tokenize(["slices step", "hot tea", "coffee"], show_progress=False)
    results = index.retrieve(questions, k=5, show_progress=False)
    assert ids(from_bm25s(results, CORPUS, k, "q")) == ["id6", "id8", "id9"][:k]
    assert ids(from_bm25s(results, CORPUS, k, row=1)) == ["id7"]
    assert ids(from_bm25s(results, CORPUS, k, row=2)) == []
    assert from_bm25s(results, CORPUS, k, "q").question == "q"


@pytest.mark.parametrize(
    "results",
    [
        None,
        7,
        ([[0, 1]], [[1.0]]),
        ([0, 1], [1.0, 0.5]),
        ([["tea", "milk"]], [[1.0, 0.5]]),
        ([[0.5]], [[1.0]]),
        ([[9]], [[1.0]]),
        (np.array([["1", "0"]]), [[2.0, 1.0]]),  # ids of digits are no positions
        ([[float("inf")]], [[1.0]]),
        ([], []),
    ],
)
def test_bm25s_results_that_do_not_fit(results):
    with pytest.raises(RetrievalError):
        from_bm25s(results, CORPUS)


@pytest.mark.parametrize("row", [-1, 1])
def test_a_row_that_is_not_there(row):
    with pytest.raises(RetrievalError, match="no row"):
        from_bm25s((np.array([[0]]), np.array([[1.0]])), CORPUS, row=row)


# Elasticsearch and OpenSearch


@pytest.mark.parametrize("wrap", [dict, lambda found: found["hits"], lambda found: SimpleNamespace(body=found)])
def test_a_search_response(wrap):
    found = body(hit("b", 2.0, highlight={"text": ["<em>some</em> text"]}, sort=[2.0, "b"]), hit("a", 1.0, "more"))
    context = from_elasticsearch(wrap(found), question="q")
    assert context.blocks == (Block("some text", "b", score=2.0), Block("more", "a", score=1.0))
    assert context.question == "q"
    assert ids(from_elasticsearch(found, k=1)) == ["b"]


@given(st.permutations(range(6)), st.integers(1, 6))
def test_equal_scores_stand_by_id_whatever_shard_answered_first(order, k):
    hits = [hit(f"id{number}", float(number // 3), f"text {number}") for number in order]
    hits.sort(key=lambda one: -one["_score"])
    assert ids(from_elasticsearch(body(*hits), k=k)) == ["id3", "id4", "id5", "id0", "id1", "id2"][:k]


def test_a_sort_that_was_asked_for_breaks_ties_itself():
    hits = [hit("z", sort=[1.0, "2026-02-01"]), hit("a", text="other", sort=[1.0, "2026-01-01"])]
    assert ids(from_elasticsearch(body(*hits))) == ["z", "a"]


def test_a_function_that_fails_says_for_which_hit():
    with pytest.raises(RetrievalError, match="hit 0: the function for its text failed"):
        from_elasticsearch(body(hit("a")), lambda one: one["missing"])


@pytest.mark.parametrize("scores", [(None, None), (None, 1.0), (1.0, 2.0)])
def test_another_order_than_by_score_is_kept(scores):
    assert ids(from_elasticsearch(body(hit("z", scores[0]), hit("a", scores[1], "other")))) == ["z", "a"]


def test_one_id_in_two_indices_is_two_blocks():
    found = body(hit("1", 2.0), {**hit("1", 1.0, "other"), "_index": "more"})
    context = from_elasticsearch(found)
    assert ids(context) == [("docs", "1"), ("more", "1")]
    assert len(ContextPilot().align(context).blocks) == 2


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ({"_source": {"page": {"body": "found"}}}, "page.body"),
        ({"_source": {"page.body": "found"}}, "page.body"),
        ({"fields": {"page.body": ["found"]}}, "page.body"),
        ({"_source": {"title": "fou", "rest": "nd"}}, lambda one: one["_source"]["title"] + one["_source"]["rest"]),
    ],
)
def test_where_the_text_stands(source, text):
    found = from_elasticsearch(body({"_id": "1", "_score": 1.0, **source}), text)
    assert found.blocks[0].text == "found"


def test_a_field_of_several_values_is_all_of_them():
    assert from_elasticsearch(body(hit("1", text=["one", "two"]))).blocks[0].text == "one\ntwo"


@pytest.mark.parametrize(
    ("found", "says"),
    [
        ({"error": {"type": "index_not_found_exception"}, "status": 404}, "index_not_found"),
        ({}, "hits"),
        (None, "hits"),
        ({"hits": {"hits": ["x"]}}, "hits"),
        (body({"_score": 1.0, "_source": {"text": "x"}}), "hit 0 has no _id"),
        (body(hit("a"), {"_id": "b", "_source": {"body": "x"}}), "hit 1 has no text in the field 'text'"),
        (body(hit("a"), {"_id": "b"}), "hit 1 has no text"),
        (body(hit("a", score="high")), "hit 0"),
        (body(hit("a", text=7)), "hit 0"),
        (body(hit("a", score=10**400)), "hit 0"),
    ],
)
def test_a_response_that_does_not_fit_says_where(found, says):
    with pytest.raises(RetrievalError, match=says):
        from_elasticsearch(found)


# Mem0


def memory(name, text="Likes tea.", **more):
    return {"id": name, "memory": text, "hash": "5f", "score": 0.5, "created_at": "2026-01-01", **more}


@pytest.mark.parametrize("wrap", [list, lambda items: {"results": items}, tuple])
def test_what_a_search_returns(wrap):
    context = from_mem0(wrap([memory("b"), memory("a", "Has a cat.", score=None)]), question="q")
    assert context.blocks == (Block("Likes tea.", ("b", "5f"), score=0.5), Block("Has a cat.", ("a", "5f")))
    assert context.question == "q"
    assert ids(from_mem0([memory("b"), memory("a")], k=1)) == [("b", "5f")]


@pytest.mark.parametrize(("score", "kept"), [(np.float32(0.5), 0.5), (1, 1.0), (10**400, None), ("0.5", None)])
def test_a_score_is_a_number_or_nothing(score, kept):
    assert from_mem0([memory("a", score=score)]).blocks[0].score == kept


def test_an_updated_memory_is_another_block_with_or_without_a_hash():
    before, after = memory("m"), memory("m", "Likes coffee.", hash="6a")
    assert ids(from_mem0([before])) != ids(from_mem0([after]))
    for one in (before, after):
        del one["hash"]
    assert ids(from_mem0([before])) != ids(from_mem0([after]))
    assert ids(from_mem0([before])) == ids(from_mem0([before]))


@pytest.mark.parametrize("found", [None, {}, "x", [7], [{"id": "a"}], [{"memory": "x"}], [memory("a", 7)], [memory(7)]])
def test_memories_that_are_none(found):
    with pytest.raises(RetrievalError):
        from_mem0(found)


@pytest.mark.parametrize("make", [from_elasticsearch, from_mem0, lambda found, k: from_bm25s(found, CORPUS, k)])
@pytest.mark.parametrize("k", [0, -1, 2.5, True])
def test_how_many_is_a_number(make, k):
    found = ([[0]], [[1.0]]) if make not in (from_elasticsearch, from_mem0) else {"hits": {"hits": []}, "results": []}
    with pytest.raises(RetrievalError, match="k must be"):
        make(found, k=k)
