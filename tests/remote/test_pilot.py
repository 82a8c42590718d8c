"""Pilots whose index is a service: nothing else changes for the caller."""

from __future__ import annotations

import asyncio
import random
import threading

import pytest

from contextpilot_rag import AsyncContextPilot, ContextPilot, Namespace, RemoteIndex, Settings
from contextpilot_rag.adapter import Adapter
from contextpilot_rag.errors import IndexFailed, IndexUnreachable, SettingsError
from contextpilot_rag.identity import cache_salt
from contextpilot_rag.testing import FakeEngine
from tests.remote.service import fresh_key
from tests.remote.stub import always, honestly, never, reply, stub

TEXTS = [f"text {number} " * 60 for number in range(12)]


def pilot_for(service, **options) -> ContextPilot:
    return ContextPilot(service.address, **{"api_key": fresh_key(), "index_timeout": 20, **options})


def traffic(seed: int, many: int = 60) -> list[list[str]]:
    numbers = random.Random(seed)
    return [numbers.sample(TEXTS, 6) for _ in range(many)]


@pytest.mark.parametrize("order", ["retrieved", "balanced", "throughput", "fixed"])
def test_the_prompts_are_those_of_an_index_in_the_process(service, order):
    near, far = ContextPilot(order=order, order_hint=True), pilot_for(service, order=order, order_hint=True)
    with far:
        for number, texts in enumerate(traffic(1)):
            one, other = near.align(texts, f"question {number}"), far.align(texts, f"question {number}")
            assert (one.order, one.rule, one.cached_blocks) == (other.order, other.rule, other.cached_blocks)
            assert one.messages("system") == other.messages("system")
            for pilot, prompt in ((near, one), (far, other)):
                pilot.observe(prompt, {"usage": {"prompt_tokens": 900, "prompt_tokens_details": {"cached_tokens": 9}}})
        assert far.failures == 0
        assert far.stats() == near.stats()


async def test_the_same_awaited(service):
    near = AsyncContextPilot(order="throughput")
    async with AsyncContextPilot(service.address, api_key=fresh_key(), index_timeout=20, order="throughput") as far:
        for number, texts in enumerate(traffic(2)):
            one = await near.align(texts, f"question {number}", key=number)
            other = await far.align(texts, f"question {number}", key=number)
            assert (one.order, one.rule, one.request.key) == (other.order, other.rule, other.request.key)
            await near.observe(one, {"usage": {"prompt_tokens": 900}})
            await far.observe(other, {"usage": {"prompt_tokens": 900}})
        assert await far.stats() == await near.stats()
        await far.forget()
        assert (await far.stats()).namespaces == 0
        assert far.failures == 0


async def test_no_thread_is_used_for_what_can_be_awaited(service, monkeypatch):
    def none(*_, **__):
        raise AssertionError("a thread")

    monkeypatch.setattr(asyncio, "to_thread", none)
    async with AsyncContextPilot(service.address, api_key=fresh_key(), index_timeout=20) as pilot:
        prompt = await pilot.align(TEXTS[:3])
        await pilot.observe(prompt, {"usage": {"prompt_tokens": 9}})
        async with pilot.window(size=2, max_wait=0.01) as window:
            await asyncio.gather(*(window.align(TEXTS[:3]) for _ in range(4)))
        await pilot.forget("acme")
        assert (await pilot.stats()).requests == 5
        assert pilot.failures == 0


def test_several_pilots_share_one_index(service):
    key = fresh_key()
    with pilot_for(service, api_key=key) as first, pilot_for(service, api_key=key) as second:
        first.align(TEXTS[:3])
        assert second.align(TEXTS[2::-1]).order == (2, 1, 0)
        with pilot_for(service) as stranger:
            assert stranger.align(TEXTS[2::-1]).order == (0, 1, 2)


@pytest.mark.usefixtures("stopped_clock", "never_late")
def test_a_service_that_is_down_costs_the_order_and_nothing_else():
    with stub(never) as service:
        with pilot_for(service, index_timeout=0.05) as pilot:
            for _ in range(100):
                prompt = pilot.align(TEXTS[:3], "?")
                assert [block.text for block in prompt.blocks] == TEXTS[:3]
                assert (prompt.rule, prompt.order_hint) == ("failed_open", None)
                pilot.observe(prompt, {"usage": {"prompt_tokens": 100}})
            assert pilot.failures == 100
            assert service.connections <= 5  # what the machine had no time for in 50 ms is none
        with pilot_for(service, index_timeout=0.05, on_error="raise") as pilot:
            with pytest.raises(IndexFailed, match="did not answer within 50 ms"):
                pilot.align(TEXTS[:3])
            with pytest.raises(IndexUnreachable):
                RemoteIndex(service.address, patience=0.05).stats()


@pytest.mark.usefixtures("stopped_clock", "never_late")
async def test_the_same_for_those_who_await():
    with stub(never) as service:
        async with AsyncContextPilot(service.address, index_timeout=0.05) as pilot:
            prompts = [await pilot.align(TEXTS[:3], "?") for _ in range(50)]
            async with pilot.window(size=4, max_wait=0.01) as window:
                prompts += await asyncio.gather(*(window.align(TEXTS[:3], "?") for _ in range(20)))
            assert {prompt.rule for prompt in prompts} == {"failed_open"}
            assert {prompt.order for prompt in prompts} == {(0, 1, 2)}
            assert service.connections <= 5  # what the machine had no time for in 50 ms is none
        async with AsyncContextPilot(service.address, index_timeout=0.05, on_error="raise") as pilot:
            with pytest.raises(IndexFailed):
                await pilot.align(TEXTS[:3])
            async with pilot.window(size=2, max_wait=0.01) as window:
                results = await asyncio.gather(*(window.align(TEXTS[:3]) for _ in range(4)), return_exceptions=True)
            assert {type(result) for result in results} == {IndexFailed}


def test_prompts_carry_the_services_salt(service):
    key = fresh_key()
    space = Namespace("acme", "m", "c")
    with pilot_for(service, api_key=key) as pilot, pilot_for(service, api_key=key) as other:
        prompt = pilot.align(TEXTS[:3], namespace=space)
        salts = {prompt.salt, pilot.extra_body(space)["cache_salt"], other.extra_body(space)["cache_salt"]}
        assert salts == {service.hub.service.tenant(key).salt(space)}
        assert other.prepare(TEXTS[:3], namespace=space).salt in salts  # it knows by now
        assert pilot.align(TEXTS[:3]).salt not in {None, *salts}
        plan = pilot.plan([TEXTS[:3]], namespace=Namespace("never asked before"))
        assert plan[0].salt == service.hub.service.tenant(key).salt(Namespace("never asked before"))
        talk = pilot.conversation(namespace=space, messages=[{"role": "user", "content": "Hello"}])
        assert talk.align(TEXTS[:3]).salt in salts  # the head of a conversation has no salt of its own
    with pilot_for(service) as stranger:
        assert stranger.extra_body(space)["cache_salt"] not in salts


def test_a_services_salt_is_not_the_clients_to_choose(service):
    with pilot_for(service, salt_secret="mine") as pilot:
        assert pilot.align(TEXTS[:3], namespace="acme").salt != cache_salt(Namespace("acme"), "mine")


@pytest.mark.usefixtures("stopped_clock")
def test_salts_while_the_service_was_never_reached():
    """Two tenants do not meet in the engine's cache; one tenant's processes do."""
    with stub(always(reply(b"", "503 Unavailable"))) as service:
        keys = ("one-key", "one-key", "other-key")
        pilots = [ContextPilot(service.address, api_key=key, index_timeout=5) for key in keys]
        for space in (Namespace(), Namespace("acme")):
            one, same, other = ({pilot.align(TEXTS[:2], namespace=space).salt} for pilot in pilots)
            assert one == same != other
            assert None not in one | other
            assert {pilots[0].extra_body(space)["cache_salt"]} == one
        assert all("key" not in str(pilot.extra_body()) for pilot in pilots)
        with ContextPilot(service.address, index_timeout=5, salt_secret="mine") as without:
            assert without.align(TEXTS[:2]).salt is None
            assert without.align(TEXTS[:2], namespace="acme").salt == cache_salt(Namespace("acme"), "mine")


def test_a_service_without_keys_gives_the_default_namespace_no_salt():
    with stub(honestly) as service, ContextPilot(service.address, index_timeout=5, salt_secret="mine") as pilot:
        assert pilot.align(TEXTS[:2], namespace="acme").salt is None  # as this one says
        assert pilot.prepare(TEXTS[:2], namespace="acme").salt is None


def test_a_plan_begins_with_what_the_service_believes(service):
    with pilot_for(service) as pilot:
        pilot.align(TEXTS[3:6][::-1])
        fresh = pilot.plan([TEXTS[3:6]])
        warm = pilot.plan([TEXTS[3:6]], index=pilot.index)
        assert (fresh[0].order, warm[0].order) == ((0, 1, 2), (2, 1, 0))
        assert pilot.plan([TEXTS[3:6]], index=pilot.index, namespace="other")[0].order == (0, 1, 2)


async def test_a_plan_is_sent_and_counted(service):
    with pilot_for(service) as pilot, FakeEngine() as engine:
        plan = pilot.plan(dict(enumerate(traffic(3, 20))))
        report = await pilot.run(plan, engine.base_url, max_tokens=2)
        assert len(report) == 20
        stats = pilot.stats()
        assert (stats.requests, stats.observed) == (20, 20)
        assert stats.reported_cached_tokens > 0
        assert pilot.failures == 0
        salts = {request.cache_salt for request in engine.requests}
        assert salts == {pilot.extra_body()["cache_salt"]}


async def test_a_plan_is_sent_where_the_service_is_gone():
    with stub(always(b"", stays=False)) as service, FakeEngine() as engine, ContextPilot(service.address) as pilot:
        plan = pilot.plan(dict(enumerate(traffic(3, 20))), index=pilot.index)
        assert plan.changed
        assert len(await pilot.run(plan, engine.base_url, max_tokens=2)) == 20
        assert pilot.failures > 1


async def test_a_window_lets_those_follow_who_share_what_went_before(service):
    async with AsyncContextPilot(service.address, api_key=fresh_key(), index_timeout=20) as pilot:
        await pilot.align(TEXTS[:3], "warm")
        order: list[str] = []

        async def ask(window, name, texts):
            await window.align(texts, name)
            order.append(name)

        async with pilot.window(size=5, max_wait=60) as window:
            groups = {"x1": TEXTS[3:6], "y1": TEXTS[6:9], "hot": TEXTS[:3], "y2": TEXTS[6:9], "x2": TEXTS[3:6]}
            asking = [asyncio.ensure_future(ask(window, name, texts)) for name, texts in groups.items()]
            while "hot" not in order:  # noqa: ASYNC110  it takes answers of a service
                await asyncio.sleep(0.005)
            assert order == ["hot"]
            await window.__aexit__()
            await asyncio.gather(*asking)
        # What is cached decides first; then those follow each other who share what has just been sent.
        assert "".join(name[0] for name in order[1:]) in {"xxyy", "yyxx"}
        assert len(window) == 0


async def test_who_is_cancelled_in_a_window_gives_up_the_turn(service):
    async with AsyncContextPilot(service.address, api_key=fresh_key(), index_timeout=20) as pilot:
        async with pilot.window(size=50, max_wait=3_600) as window:
            tasks = [asyncio.ensure_future(window.align(texts)) for texts in traffic(4, 10)]
            while len(window) < 10:  # noqa: ASYNC110  it takes answers of a service
                await asyncio.sleep(0.005)
            for task in tasks[::2]:
                task.cancel()
        answers = await asyncio.gather(*tasks, return_exceptions=True)
        assert [isinstance(answer, asyncio.CancelledError) for answer in answers] == [True, False] * 5
        assert (await pilot.stats()).requests == 5


def test_conversations_and_forgetting(service):
    with pilot_for(service) as pilot:
        talk = pilot.conversation("c1", namespace="acme", system="Be brief.")
        first = talk.align(TEXTS[:2], "What?")
        assert first.ticket
        talk.answer("This [1].")
        assert "(given above)" in talk.align(TEXTS[:2], "And?").user_message
        pilot.forget("acme", conversations=True)
        assert not pilot.conversation("c1", namespace="acme").messages
        assert pilot.stats().namespaces == 0
        pilot.index.forget(conversations=True)


def test_forgetting_is_never_only_believed():
    with stub(always(reply(b"", "500 Oops"))) as service, ContextPilot(service.address) as pilot:
        with pytest.raises(IndexFailed):
            pilot.forget("acme")
        with pytest.raises(IndexFailed):
            pilot.stats()


async def test_adapters_do_not_keep_an_event_loop_waiting(service, monkeypatch):
    adapter = Adapter(pilot_for(service))
    blocking = adapter.arrange(TEXTS[:3], "?")
    awaited = await adapter.aarrange(TEXTS[2::-1], "??")
    assert (blocking.order, awaited.order) == ((0, 1, 2), (2, 1, 0))
    went_on = threading.Event()
    observe = adapter.pilot.index.observe

    def slow(*given):
        assert went_on.wait(30)
        observe(*given)

    monkeypatch.setattr(adapter.pilot.index, "observe", slow)
    assert adapter.learn("\n".join(TEXTS[:3]) + "?", {"usage": {"prompt_tokens": 300}})
    went_on.set()
    await asyncio.get_running_loop().shutdown_default_executor()
    assert adapter.pilot.stats().observed == 1
    assert adapter.failures == 0
    adapter.pilot.close()


def test_adapters_take_an_address(monkeypatch):
    monkeypatch.setenv("CONTEXTPILOT_INDEX_TIMEOUT", "5")
    with stub(honestly) as service:
        adapter = Adapter(service.address)
        assert adapter.arrange(TEXTS[:3], "?").rule == "nothing_gained"
        assert adapter.failures == 0
        adapter.pilot.close()
    with pytest.raises(SettingsError):
        Adapter("http://")


def test_only_an_index_of_its_own_is_closed(service):
    with RemoteIndex(service.address, api_key=fresh_key(), timeout=20) as index:
        with ContextPilot(index, settings=Settings()) as pilot:
            pilot.align(TEXTS[:2])
        assert index._own().calls.transport._idle
