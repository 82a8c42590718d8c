"""The postprocessor: same nodes, another order, nothing lost, nothing changed that is not ours."""

from __future__ import annotations

import asyncio
import copy
import json
import pickle

import pytest
from contextpilot_rag import AsyncContextPilot, ContextPilot, Namespace
from contextpilot_rag.errors import SettingsError
from li_support import LONG, pick, scored
from llama_index.core.callbacks import CallbackManager, CBEventType, LlamaDebugHandler
from llama_index.core.instrumentation import get_dispatcher
from llama_index.core.instrumentation.event_handlers import BaseEventHandler
from llama_index.core.instrumentation.events.rerank import ReRankEndEvent, ReRankStartEvent
from llama_index.core.schema import ImageNode, IndexNode, MediaResource, MetadataMode, Node, NodeWithScore, TextNode

from llama_index.postprocessor.contextpilot import HIDDEN_METADATA, ContextPilotPostprocessor


def texts(nodes, mode=MetadataMode.LLM):
    return [node.node.get_content(metadata_mode=mode) for node in nodes]


async def arranged(postprocessor, nodes, question=None, *, asynchronous=False):
    if asynchronous:
        return await postprocessor.apostprocess_nodes(nodes, query_str=question)
    return postprocessor.postprocess_nodes(nodes, query_str=question)


@pytest.mark.parametrize("asynchronous", [False, True])
async def test_what_was_sent_before_comes_first(asynchronous):
    postprocessor = ContextPilotPostprocessor()
    await arranged(postprocessor, pick(0, 1, 2), "one", asynchronous=asynchronous)
    found = await arranged(postprocessor, pick(3, 2, 1, 0), "two", asynchronous=asynchronous)
    assert [node.node_id for node in found] == ["n0", "n1", "n2", "n3"]
    assert [node.metadata["contextpilot"]["rank"] for node in found] == [3, 2, 1, 0]
    assert [node.metadata["contextpilot"]["label"] for node in found] == [1, 2, 3, 4]
    assert [node.score for node in found] == [1 / 4, 1 / 3, 1 / 2, 1]
    assert postprocessor.failures == 0


def test_with_nothing_to_gain_nothing_moves_and_no_byte_changes():
    given = scored(*LONG, metadata={"title": "T"})
    found = ContextPilotPostprocessor().postprocess_nodes(given, query_str="?")
    assert texts(found) == texts(given)
    assert texts(found, MetadataMode.EMBED) == texts(given, MetadataMode.EMBED)
    assert [node.metadata["contextpilot"]["rank"] for node in found] == list(range(6))
    assert not any(node.metadata["contextpilot"]["changed"] for node in found)


def test_the_callers_nodes_are_never_changed():
    shared = {"title": "T", "retrieval_score": 0.7, "tags": ["a"]}
    given = [NodeWithScore(node=TextNode(text=text, metadata=shared), score=0.5) for text in [*LONG, LONG[0]]]
    before = [node.model_dump() for node in given]
    for annotation in ("none", "node"):
        postprocessor = ContextPilotPostprocessor(annotation=annotation)
        postprocessor.postprocess_nodes(given[::-1])
        postprocessor.postprocess_nodes(given)
    assert [node.model_dump() for node in given] == before


def test_it_works_without_a_query_and_without_nodes():
    postprocessor = ContextPilotPostprocessor()
    assert postprocessor.postprocess_nodes([]) == []
    assert len(postprocessor.postprocess_nodes(pick(0, 1))) == 2
    with pytest.raises(ValueError, match="both"):
        postprocessor.postprocess_nodes(pick(0), query_bundle="q", query_str="q")


def test_the_same_text_under_other_ids_is_placed_once_and_stays_known():
    class When:
        def __str__(self):
            return "yesterday"

    again = NodeWithScore(node=TextNode(id_="again", text=LONG[0], metadata={"indexed_at": When()}), score=0.1)
    found = ContextPilotPostprocessor().postprocess_nodes([*pick(0, 1), again])
    assert [node.node_id for node in found] == ["n0", "n1"]
    (known,) = found[0].metadata["contextpilot"]["duplicates"]
    assert known == {"rank": 2, "node_id": "again", "score": 0.1, "metadata": {"indexed_at": "yesterday"}}
    assert json.loads(json.dumps(found[0].metadata)) == found[0].metadata


def test_the_same_text_with_other_visible_metadata_is_not_the_same():
    given = [NodeWithScore(node=TextNode(text="Refunds within 30 days.", metadata={"year": year})) for year in (1, 2)]
    assert len(ContextPilotPostprocessor().postprocess_nodes(given)) == 2


def test_what_is_no_text_is_neither_merged_nor_dropped():
    def image():
        return NodeWithScore(node=ImageNode(image_url="http://127.0.0.1/i.png", text=LONG[0]), score=1)

    media = Node(
        text_resource=MediaResource(text=LONG[0]), image_resource=MediaResource(data=b"x", mimetype="image/png")
    )
    empty = scored("")[0]
    others = [image(), NodeWithScore(node=media), empty, image()]
    postprocessor = ContextPilotPostprocessor()
    first = postprocessor.postprocess_nodes([others[0], *pick(0, 1), *others[1:]])
    assert [node.node_id for node in first[:3]] == [others[0].node_id, "n0", "n1"]
    assert len(first) == 6
    second = postprocessor.postprocess_nodes([others[0], *pick(2, 1, 0), *others[1:]])
    assert [node.node_id for node in second] == ["n0", "n1", "n2", *(node.node_id for node in others)]
    assert [type(node.node) for node in second[3:]] == [ImageNode, Node, TextNode, ImageNode]
    assert [node.metadata["contextpilot"]["label"] for node in second] == [1, 2, 3, None, None, None, None]


def test_other_kinds_of_text_nodes_stay_what_they_are():
    index_node = IndexNode(text=LONG[0], index_id="inner")
    plain = Node(text_resource=MediaResource(text=LONG[1]))
    found = ContextPilotPostprocessor().postprocess_nodes([NodeWithScore(node=one) for one in (index_node, plain)])
    assert [type(node.node) for node in found] == [IndexNode, Node]
    assert found[0].node.index_id == "inner"


def test_settings_reach_the_pilot():
    postprocessor = ContextPilotPostprocessor(protect_top=1, order="throughput")
    postprocessor.postprocess_nodes(pick(0, 1, 2))
    assert postprocessor.postprocess_nodes(pick(3, 2, 1, 0))[0].node_id == "n3"
    off = ContextPilotPostprocessor(order="retrieved")
    off.postprocess_nodes(pick(0, 1, 2))
    assert [node.node_id for node in off.postprocess_nodes(pick(2, 1, 0))] == ["n2", "n1", "n0"]


@pytest.mark.parametrize(
    "wrong",
    [{"min_gain": 2}, {"protect_top": -1}, {"pilot": "http://"}, {"namespace": ""}],
)
def test_what_cannot_be_is_said_when_it_is_made(wrong):
    with pytest.raises(SettingsError):
        ContextPilotPostprocessor(**wrong)
    with pytest.raises(ValueError, match="annotation"):
        ContextPilotPostprocessor(annotation="both")
    with pytest.raises(ValueError, match="frozen"):
        ContextPilotPostprocessor().order = "throughput"


def test_a_pilot_is_shared():
    pilot = ContextPilot()
    for shared in (pilot, AsyncContextPilot.around(pilot), pilot.index):
        assert ContextPilotPostprocessor(shared).adapter.pilot.index is pilot.index
    assert ContextPilotPostprocessor().adapter.pilot.index is not pilot.index


CONFIGURED = {
    "namespace": Namespace(tenant="acme", corpus="docs"),
    "hidden_metadata": ("page*",),
    "annotation": "node",
    "order": "throughput",
    "min_gain": 0.2,
    "protect_top": 1,
    "max_displacement": 5,
    "echo": 2,
    "order_hint": False,
}


@pytest.mark.parametrize("configured", [{}, CONFIGURED, {"namespace_key": "tenant", "hidden_metadata": None}])
def test_it_survives_serialisation(configured):
    postprocessor = ContextPilotPostprocessor(ContextPilot(), **configured)
    data = postprocessor.to_dict()
    assert data["class_name"] == "ContextPilotPostprocessor"
    assert data["pilot"] is None
    for again in (
        ContextPilotPostprocessor.from_dict(data),
        ContextPilotPostprocessor.from_json(postprocessor.to_json()),
        pickle.loads(pickle.dumps(postprocessor)),
        copy.deepcopy(postprocessor),
    ):
        assert again.to_dict() == data
        assert len(again.postprocess_nodes(scored(*LONG, metadata={"tenant": "t"}))) >= 6
    assert copy.deepcopy([postprocessor])[0].adapter is postprocessor.adapter
    assert ContextPilotPostprocessor().hidden_metadata == HIDDEN_METADATA


def test_both_ways_of_watching_see_it():
    seen = []

    class Handler(BaseEventHandler):
        def handle(self, event, **_):
            seen.append(event)

    root, handler, debug = get_dispatcher(), Handler(), LlamaDebugHandler(print_trace_on_end=False)
    root.add_event_handler(handler)
    postprocessor = ContextPilotPostprocessor(callback_manager=CallbackManager([debug]))
    try:
        postprocessor.postprocess_nodes(pick(0, 1), query_str="Why?")
        postprocessor.postprocess_nodes([])
    finally:
        root.event_handlers.remove(handler)
    starts = [event for event in seen if isinstance(event, ReRankStartEvent)]
    ends = [event for event in seen if isinstance(event, ReRankEndEvent)]
    assert [len(event.nodes) for event in (*starts, *ends)] == [2, 0, 2, 0]
    assert (starts[0].query.query_str, starts[0].top_n, starts[0].model_name) == ("Why?", 2, "contextpilot")
    assert len(debug.get_event_pairs(CBEventType.RERANKING)) == 2


def test_an_updated_text_under_its_old_id_is_another_block():
    postprocessor = ContextPilotPostprocessor(min_gain=0)
    postprocessor.postprocess_nodes(pick(0, 1))
    updated = [NodeWithScore(node=TextNode(id_=name, text=text)) for name, text in (("n1", LONG[5]), ("n0", LONG[0]))]
    found = postprocessor.postprocess_nodes([*updated, NodeWithScore(node=TextNode(id_="n0", text="third text"))])
    assert [node.text for node in found] == [LONG[0], LONG[5], "third text"]
    assert [node.node_id for node in found] == ["n0", "n1", "n0"]
    assert postprocessor.failures == 0


async def test_an_index_elsewhere_is_awaited_and_blocks_nobody(monkeypatch):
    postprocessor = ContextPilotPostprocessor()
    answered, aligned = asyncio.Event(), postprocessor.adapter.pilot.align

    async def slow(*args, **options):
        await answered.wait()
        return aligned(*args, **options)

    monkeypatch.setattr(postprocessor.adapter._async, "align", slow)
    waiting = asyncio.create_task(postprocessor.apostprocess_nodes(pick(0, 1)))
    await asyncio.sleep(0.01)
    assert not waiting.done()
    answered.set()
    assert len(await waiting) == 2


@pytest.mark.parametrize("asynchronous", [False, True])
async def test_a_service_that_is_not_there_costs_the_order_and_nothing_else(asynchronous):
    postprocessor = ContextPilotPostprocessor(pilot="http://127.0.0.1:9")  # where nothing listens
    for order in [(0, 1, 2), (2, 1, 0)]:
        found = await arranged(postprocessor, pick(*order), "?", asynchronous=asynchronous)
        assert [node.node_id for node in found] == [f"n{number}" for number in order]
    assert postprocessor.failures == 2
    assert postprocessor.to_dict()["pilot"] == "http://127.0.0.1:9"
