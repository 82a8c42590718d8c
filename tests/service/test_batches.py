"""Batches: tenants take turns, all of a batch or none of it counts, and what is no batch is found out soon."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from contextpilot_rag.remote import wire
from contextpilot_rag.service.auth import Caller
from contextpilot_rag.service.batch_routes import OPERATIONS
from contextpilot_rag.service.life import assemble
from contextpilot_rag.service.operation import Call
from contextpilot_rag.service.plan_child import Child
from contextpilot_rag.service.problems import Conflict, Rejected
from contextpilot_rag.service.settings import ServiceSettings
from tests.until import is_so

from .harness import serving
from .plan_batches import batch, body

ALIGN = OPERATIONS[0].handler


@pytest.fixture
def hub():
    return assemble(ServiceSettings()).hub


def call(hub, tenant, requests):
    return Call(hub, Caller(tenant), None, msgspec.json.encode({"requests": requests}), {}, {})


def request(name, **more):
    return {"blocks": [{"id": name, "tokens": 100}, {"id": "x", "tokens": 100}], **more}


async def test_a_batch_of_one_waits_for_no_whole_batch_of_another_tenant(hub):
    order = []

    async def ask(tenant, requests):
        await ALIGN(call(hub, tenant, requests))
        order.append(tenant)

    long = [asyncio.ensure_future(ask("acme", [request(f"{number}") for number in range(100)])) for _ in range(5)]
    await asyncio.sleep(0)
    await asyncio.gather(ask("globex", [request("a")]), *long)
    assert order == ["globex", *["acme"] * 5]
    assert hub.service.tenant("acme").stats().requests == 500


async def test_a_ticket_of_a_batch_under_way_is_taken_by_no_other_request(hub):
    tenant, name = hub.service.tenant("acme"), "ticket-of-the-last-one"
    same = msgspec.convert(request("last", ticket=name), wire.AlignIn)
    asked = asyncio.ensure_future(
        ALIGN(call(hub, "acme", [*(request(f"{number}") for number in range(100)), request("last", ticket=name)]))
    )
    while tenant.stats().requests < 1:  # noqa: ASYNC110  nothing tells that the first was answered
        await asyncio.sleep(0)
    assert not asked.done()
    with pytest.raises(Conflict):
        tenant.align(msgspec.convert(request("other", ticket=name), wire.AlignIn))
    first = tenant.align(same)
    assert (await asked).alignments[-1] == first
    assert tenant.stats().requests == 101
    assert tenant.tickets.aside(name) is None


async def test_a_batch_that_is_refused_keeps_no_ticket(hub):
    tenant, name = hub.service.tenant("acme"), "ticket-of-the-first-one"
    for bad in ({"blocks": [{"id": "a"}]}, request("b", ticket=name)):
        with pytest.raises(Rejected, match=r"^requests\[2\]: "):
            await ALIGN(call(hub, "acme", [request("a", ticket=name)] * 2 + [bad]))
        assert tenant.tickets.aside(name) is None
    assert tenant.align(msgspec.convert(request("b", ticket=name), wire.AlignIn)).ticket == name
    assert tenant.stats().requests == 1


@pytest.mark.parametrize(
    ("path", "fields"), [("/v1/align/batch", "requests"), ("/v1/align", "blocks"), ("/v1/predict", "blocks")]
)
def test_what_is_no_object_is_found_before_all_of_them_are_counted(path, fields):
    """Not with how many they are, that is."""
    few = "{" * 3_000 if fields == "blocks" else ""
    given = b'{"%s":[{"blocks":[],"text":"%s"},' % (fields.encode(), few.encode()) + b"1," * 1_000_000 + b"1]}"
    with serving(max_body=4 * 2**20) as service:
        reply = service.ask("POST", path, given)
    assert (reply.status, "1000" in reply.json()["detail"]) == (422, False)


async def test_a_plan_is_checked_after_one_of_another_tenant_not_after_all(hub, monkeypatch):
    checked = []
    admit = Child.admit

    async def admitting(self, given, settings):
        checked.append("acme" if b"acme" in bytes(given if isinstance(given, bytes) else given[0]) else "globex")
        return await admit(self, given, settings)

    monkeypatch.setattr(Child, "admit", admitting)
    plans = hub.plans
    try:
        acme, globex = hub.service.tenant("acme"), hub.service.tenant("globex")
        requests = batch()["requests"]
        asked = [
            asyncio.ensure_future(plans.submit(acme, body({"requests": [{**requests[0], "key": "acme"}]})))
            for _ in range(3)
        ]
        await is_so(lambda: len(plans) == 3)
        await plans.submit(globex, body({"requests": requests[:1]}))
        await asyncio.gather(*asked)
        assert checked == ["acme", "globex", "acme", "acme"]
    finally:
        await plans.stop()
