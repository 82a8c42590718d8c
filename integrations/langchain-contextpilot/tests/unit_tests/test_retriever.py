"""ContextPilotRetriever: the base's documents, each text once, in an order that the cache can reuse."""

from __future__ import annotations

import copy
import json
import logging

import pytest
from contextpilot_rag import AsyncContextPilot, ContextPilot
from contextpilot_rag.errors import IndexFailed, SettingsError
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.documents import Document
from langchain_core.prompts import PromptTemplate
from langchain_core.runnables import ConfigurableField, RunnableLambda
from langchain_stage import Broken

from langchain_contextpilot import ContextPilotRetriever

TEXTS = {name: f"{name.capitalize()} are explained here. " * 12 for name in ("slices", "steps", "copies", "sets")}
texts = st.text(st.characters(), max_size=30) | st.sampled_from(["", "a", "a ", "a\r\n", "a\n", "[1] a", "{a}", "\0"])


def document(name, **metadata):
    return Document(TEXTS.get(name, name), id=f"id-{name}", metadata={"source": name, **metadata})


def returning(*lists):
    """A base that returns one list after the other, and the last one for ever."""
    left = list(lists)
    return RunnableLambda(lambda _: left.pop(0) if len(left) > 1 else left[0])


def ranks(documents):
    return [one.metadata["contextpilot"]["rank"] for one in documents]


async def test_what_was_sent_before_goes_first(ask):
    first, second = [document("slices"), document("steps")], [document("copies"), document("steps"), document("slices")]
    retriever = ContextPilotRetriever(base_retriever=returning(first, second))
    await ask(retriever, "What is a slice?")
    placed = await ask(retriever, "Does a slice copy?")
    assert [one.metadata["source"] for one in placed] == ["slices", "steps", "copies"]
    assert ranks(placed) == [2, 1, 0]
    assert [one.metadata["contextpilot"]["label"] for one in placed] == [1, 2, 3]
    assert [one.id for one in placed] == ["id-slices", "id-steps", "id-copies"]


async def test_with_nothing_to_gain_the_order_is_the_retrievers(ask):
    found = [document("slices"), document("steps")]
    placed = await ask(ContextPilotRetriever(base_retriever=returning(found)), "?")
    assert [one.page_content for one in placed] == [one.page_content for one in found]
    assert ranks(placed) == [0, 1]


async def test_the_callers_documents_are_not_changed(ask):
    found = [document("steps", pages=[1, 2]), document("slices"), document("steps")]
    before = copy.deepcopy(found)
    placed = await ask(ContextPilotRetriever(base_retriever=returning(found)), "?")
    assert found == before
    assert all(one is not original for one in placed for original in found)


async def test_one_text_under_several_ids_is_placed_once(ask):
    found = [
        Document("same", id="a", metadata={"page": 1}),
        Document("other"),
        Document("same", metadata={"page": 2}),
        Document("same", id="c"),
    ]
    placed = await ask(ContextPilotRetriever(base_retriever=returning(found)), "?")
    assert [one.page_content for one in placed] == ["same", "other"]
    assert placed[0].metadata["contextpilot"]["duplicates"] == [
        {"id": None, "metadata": {"page": 2}},
        {"id": "c", "metadata": {}},
    ]
    assert json.loads(json.dumps(placed[0].metadata)) == placed[0].metadata


async def test_documents_without_text_stand_last_and_are_all_there(ask):
    images = [Document("", metadata={"image": name}) for name in "ab"] + [Document(" \n", metadata={"image": "a"})]
    found = [images[0], document("slices"), images[1], images[2], document("steps")]
    placed = await ask(ContextPilotRetriever(base_retriever=returning(found)), "?")
    assert [one.page_content for one in placed] == [TEXTS["slices"], TEXTS["steps"], "", "", " \n"]
    assert ranks(placed) == [1, 4, 0, 2, 3]
    assert await ask(ContextPilotRetriever(base_retriever=returning(images)), "?") == images


@given(st.lists(texts, max_size=7), st.lists(texts, max_size=7), st.none() | st.integers(1, 5))
def test_no_text_is_lost_or_changed(first, second, k):
    lists = [[Document(text, id=str(place)) for place, text in enumerate(batch)] for batch in (first, second)]
    retriever = ContextPilotRetriever(base_retriever=returning(*lists), order="throughput", k=k)
    retriever.invoke("first")
    placed = retriever.invoke("second")
    ids = [one.id for one in placed]
    for one in placed:
        assert one.page_content == second[int(one.id)]
        ids += [same["id"] for same in one.metadata.get("contextpilot", {}).get("duplicates", ())]
    assert len(ids) == len(set(ids))
    if k is None:
        assert sorted(ids) == sorted(str(place) for place in range(len(second)))
    else:
        assert len(placed) <= k
    assert retriever.failures == 0


async def test_a_broken_index_gives_the_bases_own_documents(ask, caplog):
    found = [document("steps"), document("slices"), document("steps")]
    retriever = ContextPilotRetriever(base_retriever=returning(found), pilot=ContextPilot(Broken()))
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            placed = await ask(retriever, "?")
            assert [id(one) for one in placed] == [id(one) for one in found]
    assert retriever.failures == 3
    assert sum("contextpilot" in record.name for record in caplog.records) == 1
    short = ContextPilotRetriever(base_retriever=returning(found), pilot=ContextPilot(Broken()), k=2)
    assert [id(one) for one in await ask(short, "?")] == [id(one) for one in found[:2]]


async def test_failures_are_raised_where_that_is_asked_for(ask):
    pilot = ContextPilot(Broken(), on_error="raise")
    with pytest.raises(IndexFailed):
        await ask(ContextPilotRetriever(base_retriever=returning([document("steps")]), pilot=pilot), "?")


async def test_a_document_that_cannot_be_rendered_fails_open(ask):
    found = [document("steps"), document("slices")]
    retriever = ContextPilotRetriever(
        base_retriever=returning(found), document_prompt=PromptTemplate.from_template("{page}: {page_content}")
    )
    assert await ask(retriever, "?") == found
    assert retriever.failures == 1


async def test_the_bases_own_errors_pass(ask):
    def fail(_):
        raise LookupError("the store is down")

    retriever = ContextPilotRetriever(base_retriever=RunnableLambda(fail))
    with pytest.raises(LookupError, match="the store is down"):
        await ask(retriever, "?")
    assert retriever.failures == 0


async def test_what_a_document_prompt_shows_is_the_text(ask):
    found = [Document("same", metadata={"page": 1, "score": 0.1}), Document("same", metadata={"page": 2})]
    plain = ContextPilotRetriever(base_retriever=returning(found))
    assert len(await ask(plain, "?")) == 1
    shown = PromptTemplate.from_template("Page {page}: {page_content}")
    with_pages = ContextPilotRetriever(base_retriever=returning(found), document_prompt=shown)
    assert len(await ask(with_pages, "?")) == 2


async def test_callbacks_tags_metadata_and_configurable_reach_the_base(ask):
    seen = {}

    def base(_, config):
        seen.update(config)
        return [document("steps")]

    class Handler(BaseCallbackHandler):
        def __init__(self):
            self.parents = []

        def on_chain_start(self, *_, parent_run_id, tags, metadata, **__):
            self.parents.append((parent_run_id, tags, metadata.get("m")))

        def on_retriever_start(self, *_, run_id, **__):
            self.run_id = run_id

    handler = Handler()
    config = {"callbacks": [handler], "tags": ["t"], "metadata": {"m": 1}, "configurable": {"c": 2}}
    await ask(ContextPilotRetriever(base_retriever=RunnableLambda(base)), "?", config)
    assert seen["configurable"]["c"] == 2
    assert handler.parents == [(handler.run_id, ["t"], 1)]


@pytest.mark.parametrize(
    "wrong",
    [
        {"order": "best"},
        {"min_gain": 2},
        {"k": 0},
        {"over_fetch": -1},
        {"namespace": ""},
        {"pilot": "http://"},
    ],
)
def test_what_cannot_be_is_said_when_it_is_made(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong)) if "pilot" not in wrong else "index"):
        ContextPilotRetriever(base_retriever=returning([]), **wrong)
    if wrong.keys() & {"pilot", "namespace", "min_gain"}:
        with pytest.raises(SettingsError):
            ContextPilotRetriever(base_retriever=returning([]), **wrong)


async def test_a_k_that_cannot_be_is_said(ask):
    retriever = ContextPilotRetriever(base_retriever=returning([]))
    for wrong in (0, -1, True, "3"):
        with pytest.raises(SettingsError, match="k must be a positive int"):
            await ask(retriever, "?", k=wrong)


def test_what_it_is_built_on():
    pilot = ContextPilot()
    assert ContextPilotRetriever(base_retriever=returning([]), pilot=pilot).pilot is pilot
    around = AsyncContextPilot.around(pilot)
    assert ContextPilotRetriever(base_retriever=returning([]), pilot=around).pilot is pilot
    assert ContextPilotRetriever(base_retriever=returning([]), pilot=pilot.index).pilot.index is pilot.index


def test_copies_share_the_index():
    retriever = ContextPilotRetriever(base_retriever=returning([document("steps")]), order="throughput")
    for same in (copy.copy(retriever), copy.deepcopy(retriever), retriever.model_copy(update={"k": 1})):
        assert same.pilot is retriever.pilot
        assert same.adapter is retriever.adapter
    configurable = retriever.configurable_fields(k=ConfigurableField("k"))
    configurable.invoke("?", {"configurable": {"k": 1}})
    configurable.with_config({"configurable": {"k": 2}}).invoke("?")
    assert retriever.pilot.stats().requests == 2


def test_what_is_changed_in_a_document_stays_there():
    theirs = Document("Slices count from zero.", metadata={"authors": ["Ann"], "place": {"page": 7}})
    ours = ContextPilotRetriever(base_retriever=RunnableLambda(lambda _: [theirs])).invoke("?")[0]
    ours.metadata["authors"].append("Bert")
    ours.metadata["place"]["page"] = 8
    assert theirs.metadata == {"authors": ["Ann"], "place": {"page": 7}}


async def test_a_service_that_is_not_there_costs_the_order_and_nothing_else(ask):
    base = returning([document("slices"), document("steps")], [document("steps"), document("slices")])
    retriever = ContextPilotRetriever(base_retriever=base, pilot="http://127.0.0.1:9")  # where nothing listens
    for sources in (["slices", "steps"], ["steps", "slices"]):
        assert [one.metadata["source"] for one in await ask(retriever, "?")] == sources
    assert retriever.failures == 2
