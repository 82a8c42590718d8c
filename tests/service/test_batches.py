"""Batches: tenants take turns, all of a batch or none of it counts, and what is no batch is found out soon."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from contextpilot_rag.service.auth import Caller
from contextpilot_rag.service.batch_routes import OPERATIONS
from contextpilot_rag.service.life import assemble
from contextpilot_rag.service.operation import Call
from contextpilot_rag.service.plan_child import Child
from contextpilot_rag.service.settings import ServiceSettings

from .plan_batches import batch, body, until

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
        await until(lambda: len(plans) == 3)
        await plans.submit(globex, body({"requests": requests[:1]}))
        await asyncio.gather(*asked)
        assert checked == ["acme", "globex", "acme", "acme"]
    finally:
        await plans.stop()
