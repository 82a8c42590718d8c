"""What is done with a batch, without processes: checked like any request, planned as in process, written in order."""

from __future__ import annotations

import itertools
from typing import Any

import msgspec
import pytest

from contextpilot_rag import BlockRef, LocalIndex, Namespace, OrderBudget, Request
from contextpilot_rag.index.plan import plan_batch
from contextpilot_rag.remote.wire import NamespaceIn, namespace_in
from contextpilot_rag.remote.wire_plan import PlanOut
from contextpilot_rag.service.plan_pipe import TreeOf
from contextpilot_rag.service.plan_work import Batch
from contextpilot_rag.service.problems import Malformed, TooLarge, Unusable
from contextpilot_rag.service.settings import ServiceSettings

LETTERS = "abcdefghijkl"
SETTINGS = ServiceSettings(max_plan=10, max_blocks=5, max_id=20, plan_seconds=100)


def block(name: str) -> dict[str, Any]:
    return {"id": name, "tokens": 10 + ord(name)}


def request(names: str, **more: Any) -> dict[str, Any]:
    return {"blocks": [block(name) for name in names], **more}


def batch(*requests: Any, **more: Any) -> Batch:
    return Batch.read(msgspec.json.encode({"requests": requests, **more}), SETTINGS)


def planned(batch: Batch) -> PlanOut:
    return msgspec.json.decode(batch.result(itertools.count().__next__), type=PlanOut)


def test_keys_positions_labels_and_repeated_blocks_come_back():
    plan = planned(batch(request("abac", key="one"), request("cb", key=2), request("ca")))
    assert sorted(one.request for one in plan.alignments) == [0, 1, 2]
    by = {one.request: one for one in plan.alignments}
    assert [by[0].key, by[1].key, by[2].key] == ["one", 2, None]
    assert by[0].merged == {2: 0}
    assert sorted(by[0].order) == [0, 1, 3]
    assert by[0].labels == [1, 2, 3]
    assert by[1].merged == {}


def test_an_order_that_is_new_has_a_hint_and_names_its_source():
    plan = planned(batch(request("ab"), request("cba"), order_hint=True))
    first, second = plan.alignments
    assert (first.request, second.request, second.order) == (0, 1, [2, 1, 0])
    assert second.order_hint == "Order of relevance, best first: [3] > [2] > [1]"
    assert (first.source, second.source) == (None, 0)
    assert first.order_hint is None
    assert plan.tokens == sum(10 + ord(name) for name in "abcba")
    assert plan.predicted_cached_tokens == second.predicted_cached_tokens == 20 + ord("a") + ord("b")
    assert plan.hit_ratio == plan.predicted_cached_tokens / plan.tokens
    assert (plan.changed, plan.complete, plan.ceiling_tokens) == (1, True, None)


def test_namespaces_share_nothing():
    plan = planned(batch(request("ab", namespace={"corpus": "x"}), request("ba", namespace={"corpus": "y"})))
    assert plan.predicted_cached_tokens == 0


def test_the_ceiling_is_worked_out_if_asked_for():
    assert planned(batch(request("ab"), request("cba"), ceiling=True)).ceiling_tokens == 20 + ord("a") + ord("b")


def test_nothing_to_plan_is_a_plan():
    plan = planned(batch())
    assert (plan.alignments, plan.tokens, plan.hit_ratio, plan.complete) == ([], 0, 0.0, True)
    assert planned(batch({"blocks": []})).alignments[0].order == []


def test_the_time_budget_ends_the_search():
    requests = [
        request(f"{one}{other}", budget={"order": "throughput"}) for one, other in itertools.permutations(LETTERS, 2)
    ]
    for seconds, complete in ((0, False), (None, True)):
        body = msgspec.json.encode({"requests": requests, "time_budget": seconds})
        assert planned(Batch.read(body, ServiceSettings())).complete is complete


def test_what_is_believed_cached_comes_first():
    index = LocalIndex()
    space = Namespace(corpus="x")
    refs = [BlockRef(name, 10 + ord(name)) for name in "abcde"]
    index.align(Request((refs[3], refs[1]), space))
    index.align(Request((refs[4],), Namespace()))
    given = batch(
        request("abd", namespace={"corpus": "x"}, budget={"order": "throughput"}), request("abe"), from_cache=True
    )
    assert given.spaces() == [NamespaceIn(corpus="x"), NamespaceIn()]
    for one in (space, Namespace()):
        for part in index.dump_tree(one):
            given.believe(msgspec.msgpack.encode(TreeOf(namespace_in(one), part)))
    plan = planned(given)
    here = plan_batch(
        [
            Request((refs[0], refs[1], refs[3]), space, OrderBudget("throughput")),
            Request((refs[0], refs[1], refs[4])),
        ],
        index.tree,
    )
    assert [one.order for one in plan.alignments] == [list(one.order) for one in here]
    assert plan.alignments[0].order[:2] == [2, 1]
    assert plan.predicted_cached_tokens == here.predicted_cached_tokens > 0


@pytest.mark.parametrize(
    ("body", "error", "where"),
    [
        (b"", Malformed, None),
        (b"{", Malformed, None),
        (b"\xff\xfe", Malformed, None),
        (b'{"requests": [{"blocks": [{"id": "\\ud800", "tokens": 1}]}]}', Malformed, None),
        (b'{"requests": ' + b"[" * 100_000, (Malformed, Unusable), None),
        (b"[]", Unusable, None),
        (b"{}", Unusable, "requests"),
        (b'{"requests": [], "more": 1}', Unusable, "more"),
        (b'{"requests": [], "time_budget": NaN}', Malformed, None),
        (b'{"requests": [], "time_budget": 1e999}', (Malformed, Unusable), None),
        (b'{"requests": [], "time_budget": -1}', Unusable, "time_budget"),
        (b'{"requests": [], "time_budget": 101}', Unusable, "100 seconds"),
        (b'{"requests": [{"blocks": [], "ticket": "aaaaaaaaaaaaaaaaaaaa"}]}', Unusable, "ticket"),
        (b'{"requests": [{"blocks": [], "key": 1e400}]}', (Malformed, Unusable), None),
        (b'{"requests": [{"blocks": [], "key": [1]}]}', Unusable, "key"),
        (b'{"requests": [{"blocks": []}, {"blocks": [{"id": "a"}]}]}', Unusable, r"requests\[1\]: blocks\[0\]"),
        (b'{"requests": [{"blocks": [{"tokens": 3}]}]}', Unusable, r"requests\[0\]: blocks\[0\]"),
        (
            b'{"requests": [{"blocks": [{"id": "a", "text": "x"}, {"id": "a", "text": "y"}]}]}',
            Unusable,
            r"requests\[0\]: blocks\[1\]",
        ),
        (b'{"requests": [{"blocks": [{"id": "' + b"a" * 21 + b'", "tokens": 1}]}]}', TooLarge, "requests"),
        (msgspec.json.encode({"requests": [request("abcdea")]}), TooLarge, r"requests\[0\]: 6 blocks"),
        (msgspec.json.encode({"requests": [request("a")] * 11}), TooLarge, "11 requests"),
    ],
)
def test_what_cannot_be_planned_is_refused_by_name(body, error, where):
    with pytest.raises(error, match=where):
        Batch.read(body, SETTINGS)
