"""Pilots that are replicas: they answer from memory, converge by a log, and go on whatever happens to it."""

from __future__ import annotations

import asyncio
import gc
import logging
import random
import subprocess
import sys
import threading
import weakref

import pytest

from contextpilot_rag import AsyncContextPilot, ContextPilot, Namespace, Settings
from contextpilot_rag import choosing as choosing_module
from contextpilot_rag.adapter import Adapter
from contextpilot_rag.errors import SettingsError
from contextpilot_rag.replicas.replicated import ReplicatedIndex
from tests.until import until

from .pilots import ADDRESS, in_memory, in_step, settled

TEXTS = [f"text {number} " * 60 for number in range(12)]


@pytest.fixture
def pilots(monkeypatch):
    with in_memory(monkeypatch) as make:
        yield make


def traffic(seed: int, many: int = 60) -> list[list[str]]:
    numbers = random.Random(seed)
    return [numbers.sample(TEXTS, 6) for _ in range(many)]


def ours() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("contextpilot")]


@pytest.mark.parametrize("order", ["retrieved", "balanced", "throughput", "fixed"])
def test_the_prompts_are_those_of_an_index_without_a_log(pilots, order):
    near, far = ContextPilot(order=order), pilots(order=order)
    for number, texts in enumerate(traffic(1)):
        one, other = near.align(texts, f"question {number}"), far.align(texts, f"question {number}")
        assert (one.order, one.rule, one.cached_blocks) == (other.order, other.rule, other.cached_blocks)
        assert one.messages("system") == other.messages("system")
        for pilot, prompt in ((near, one), (far, other)):
            pilot.observe(prompt, {"usage": {"prompt_tokens": 900, "prompt_tokens_details": {"cached_tokens": 9}}})
        settled(far)  # what reports and tails teach comes by the log
    assert far.failures == 0
    assert (far.stats().requests, far.stats().observed) == (near.stats().requests, near.stats().observed)


def test_what_one_sent_the_others_find_in_the_cache(pilots):
    first, second = pilots(), pilots()
    first.align(TEXTS[:3])
    in_step(first, second)
    assert second.align(TEXTS[2::-1]).order == (2, 1, 0)
    third = pilots()
    assert third.replica.ready(20)
    assert third.align(TEXTS[2::-1]).order == (2, 1, 0)
    assert third.align(TEXTS[2::-1], namespace="other").order == (0, 1, 2)


def test_what_one_learnt_from_an_engine_the_others_know(pilots):
    first, second = pilots(), pilots()
    for number, texts in enumerate(traffic(2, 30)):
        pilot = (first, second)[number % 2]
        cached = {"prompt_tokens": 3_000, "prompt_tokens_details": {"cached_tokens": 160}}
        pilot.observe(pilot.align(texts), {"usage": cached})
    in_step(first, second)
    for texts in traffic(3, 10):
        assert first.predict(first.prepare(texts)) == second.predict(second.prepare(texts))


def test_a_namespace_that_one_forgets_is_forgotten_by_all_and_by_the_log(pilots):
    first, second = pilots(), pilots()
    for space in ("acme", "other"):
        first.align(TEXTS[:3], namespace=space)
    in_step(first, second)
    second.forget("acme")
    assert second.predict(second.prepare(TEXTS[:3], namespace="acme")) == 0
    in_step(second, first)
    third = pilots()
    assert third.replica.ready(20)
    for pilot in (first, second, third):
        assert pilot.predict(pilot.prepare(TEXTS[:3], namespace="acme")) == 0
        assert pilot.predict(pilot.prepare(TEXTS[:3], namespace="other")) > 0


def test_other_secrets_are_other_indexes(pilots):
    first, stranger = pilots(), pilots(salt_secret="another")
    first.align(TEXTS[:3])
    settled(first)
    assert stranger.replica.ready(20)
    assert stranger.align(TEXTS[2::-1]).order == (0, 1, 2)


def test_tenants_salts_are_the_same_in_all_processes(pilots):
    first, second = pilots(), pilots()
    assert first.extra_body("acme") == second.extra_body("acme")
    assert first.extra_body("acme") != pilots(salt_secret="another").extra_body("acme")


def test_the_settings_of_an_index_count_and_those_of_a_connection_are_said_to_mean_nothing(pilots, caplog):
    with caplog.at_level(logging.WARNING):
        pilot = pilots(capacity_tokens=5_000, kv_block_tokens=16, max_blocks=7)
        assert (pilot.index.terms.capacity_tokens, pilot.index.terms.kv_block_tokens) == (5_000, 16)
        assert not caplog.records
        pilots(index_timeout=3.0)
    assert "index_timeout: for an index that is a service" in caplog.text


def test_a_secret_is_asked_for_once(pilots, caplog, monkeypatch):
    monkeypatch.setattr(choosing_module, "_unprotected", threading.Event())
    with caplog.at_level(logging.WARNING):
        pilots(salt_secret="")
        pilots(salt_secret="")
    assert [record.message.partition(":")[0] for record in caplog.records] == [
        "replicas without salt_secret (CONTEXTPILOT_SALT_SECRET)"
    ]


@pytest.mark.parametrize("scheme", ["redis", "rediss", "valkey", "valkeys"])
def test_the_address_may_come_from_anywhere(pilots, monkeypatch, scheme):
    address = f"{scheme}://log.example:7000/1"
    monkeypatch.setenv("CONTEXTPILOT_INDEX", address)
    made = [ContextPilot(), ContextPilot(settings=Settings(index=address)), ContextPilot(address)]
    adapter = Adapter(address)
    for pilot in [*made, adapter.pilot]:
        assert isinstance(pilot.index, ReplicatedIndex)
        assert pilot.align(TEXTS[:2]).rule == "nothing_gained"
        pilot.close()
    assert ContextPilot("embedded").replica is None


@pytest.mark.parametrize("address", ["redis://", "redis://user:hunter2@log.example:port", "redis://:hunter2@h/x?y=1"])
def test_addresses_that_are_none_are_refused_without_showing_a_password(address):
    with pytest.raises(SettingsError) as refused:
        ContextPilot(address)
    assert "hunter2" not in str(refused.value)
    assert "hunter2" not in repr(Settings(index=address))


def test_the_status_is_there_to_be_looked_at(pilots):
    pilot = pilots()
    assert pilot.replica.ready(20)
    pilot.align(TEXTS[:2])
    settled(pilot)
    status = pilot.replica.status
    assert (status.joined, status.spaces, status.applied) == (True, 1, 1)
    assert repr(pilot.replica) == "<ProcessReplica: joined, 1 namespace>"
    assert ContextPilot().replica is None
    with pytest.raises(AttributeError):
        pilot.replica = None


def test_a_log_that_is_away_from_the_start_costs_nothing_but_the_others(pilots, caplog):
    pilots.log.away = True
    with caplog.at_level(logging.INFO, "contextpilot_rag"):
        first, second = pilots(), pilots()
        for texts in traffic(4):
            first.align(texts)
        assert first.align(TEXTS[:3]).rule != "failed_open"
        assert not first.replica.ready(0.5)
        until(lambda: first.replica.status.why)
        assert not first.replica.status.joined
        assert first.failures == 0
        assert second.predict(second.prepare(TEXTS[:3])) == 0
        pilots.log.away = False
        in_step(first, second)
        assert second.predict(second.prepare(TEXTS[:3])) > 0
    said = [record.message for record in caplog.records if record.message.startswith("replica: the log c")]
    assert len([line for line in said if "cannot be used" in line]) == 2  # one of each replica
    assert len([line for line in said if "again" in line and "cannot" not in line]) == 2


def test_threads_that_align_notice_nothing_of_a_log_that_comes_and_goes(pilots):
    """It is away, hangs, is full, loses everything, and comes back, while eight threads align at two replicas."""
    made = [pilots(), pilots()]
    stop, errors = threading.Event(), []

    def work(number: int) -> None:
        numbers, pilot = random.Random(number), made[number % 2]
        try:
            while not stop.is_set():
                prompt = pilot.align(numbers.sample(TEXTS, 4), namespace=str(numbers.randrange(3)))
                assert sorted(prompt.order) == [0, 1, 2, 3]
                pilot.observe(prompt, {"usage": {"prompt_tokens": 700}})
                if numbers.random() < 0.01:
                    pilot.forget(str(numbers.randrange(3)))
        except BaseException as error:  # noqa: BLE001
            errors.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    log = pilots.log
    for fault, good in (("away", False), ("slow", 0.0), ("full", False)):
        setattr(log, fault, 5.0 if fault == "slow" else True)
        stop.wait(0.2)
        setattr(log, fault, good)
        stop.wait(0.1)
        log.lose_everything()
    stop.set()
    for thread in threads:
        thread.join(30)
    assert not errors
    assert [pilot.failures for pilot in made] == [0, 0]
    in_step(*made, seconds=30)

    def agree() -> bool:
        asked = [(texts, space) for texts in traffic(5, 20) for space in "012"]
        one, other = (
            [pilot.predict(pilot.prepare(texts, namespace=space)) for texts, space in asked] for pilot in made
        )
        return one == other

    until(agree)


def test_a_log_that_hangs_keeps_nobody_waiting(pilots):
    """That is, nothing that is asked of a pilot asks the log: it is asked by threads of the replica's own."""
    pilots.log.slow, pilots.log.timeout = 3_600.0, 0.2
    pilot = pilots()
    asked = []
    for name in ("append", "read", "now", "snapshot", "listen", "streams"):
        original = getattr(pilots.log, name)

        def noting(*args, _name=name, _original=original):
            asked.append(threading.current_thread())
            return _original(*args)

        setattr(pilots.log, name, noting)
    for texts in traffic(6, 20):
        prompt = pilot.align(texts)
        pilot.observe(prompt, {"usage": {"prompt_tokens": 900}})
        pilot.predict(prompt)
    pilot.forget("acme")
    pilot.stats()
    assert threading.current_thread() not in asked


async def test_an_event_loop_needs_no_threads_for_it(pilots, monkeypatch):
    def none(*_, **__):
        raise AssertionError("a thread")

    pilot = pilots()
    awaited = AsyncContextPilot.around(pilot)
    with monkeypatch.context() as patched:
        patched.setattr(asyncio, "to_thread", none)
        prompt = await awaited.align(TEXTS[:3])
        await awaited.observe(prompt, {"usage": {"prompt_tokens": 9}})
        async with awaited.window(size=2, max_wait=0.01) as window:
            await asyncio.gather(*(window.align(TEXTS[:3]) for _ in range(4)))
        await awaited.forget("acme")
        assert (await awaited.stats()).requests == 5
    assert awaited.replica is pilot.replica
    await awaited.aclose()
    assert pilot.replica.status.why == "closed"


def test_closing_tells_what_waits_and_a_pilot_that_is_used_again_joins_again(pilots):
    first, second = pilots(), pilots()
    assert first.replica.ready(20)
    with first:
        first.align(TEXTS[:3])
    assert all(connection.closed for connection in pilots.opened[:1])
    assert first.replica.status.why == "closed"
    until(lambda: second.predict(second.prepare(TEXTS[:3])))
    first.align(TEXTS[3:6])
    in_step(first, second)  # what it told and had not heard back when it was closed, it hears now
    assert first.align(TEXTS[2::-1]).order == (2, 1, 0)
    in_step(first, second)
    assert len(pilots.opened) == 3
    assert all(share.ahead is None for share in first.index._shares.values())


def test_closing_does_not_wait_for_a_log_that_is_away(pilots):
    pilots.log.away = True
    pilot = pilots()
    pilot.align(TEXTS[:3])
    until(lambda: pilot.replica.status.why)
    pilot.close()
    assert all(share.ahead is None for share in pilot.index._shares.values())
    pilot.close()


def test_nobody_holds_what_nobody_uses(pilots):
    before = len(ours())
    pilot = ContextPilot(ADDRESS, salt_secret="shared")
    assert pilot.replica.ready(20)
    pilot.align(TEXTS[:3])
    assert len(ours()) == before + 2
    index = weakref.ref(pilot.index)
    del pilot
    gc.collect()
    until(lambda: len(ours()) == before)
    assert index() is None


def test_an_index_can_be_shared_by_pilots_of_one_process(pilots):
    first = pilots()
    with ContextPilot(first.index) as second:
        first.align(TEXTS[:3])
        assert second.align(TEXTS[2::-1]).order == (2, 1, 0)
    assert first.replica.status.why != "closed"


def test_a_plan_begins_with_what_is_known_and_a_conversation_goes_on_elsewhere(pilots):
    first, second = pilots(), pilots()
    talk = first.conversation("c1", namespace="acme", system="Be brief.")
    talk.align(TEXTS[:2], "What?")
    talk.answer("This [1].")
    first.align(TEXTS[5:8])
    in_step(first, second)
    assert second.plan([TEXTS[7:4:-1]], index=second.index)[0].order == (2, 1, 0)
    resumed = second.conversation("c1", namespace="acme", system="Be brief.", messages=talk.messages)
    turn = resumed.align(TEXTS[:2], "And?")
    assert turn.again == {1, 2}
    assert "(given above)" in turn.user_message


def test_keys_that_mean_nothing_elsewhere_cost_the_order_and_nothing_else(pilots):
    pilot = pilots()
    prompt = pilot.align(TEXTS[:2], namespace=Namespace(head="h" * 1_000))
    assert (prompt.rule, pilot.failures) == ("failed_open", 1)


def test_a_package_that_is_missing_is_missed_when_the_pilot_is_made():
    code = (
        "import sys; sys.modules['redis'] = None; import contextpilot_rag as c; c.ContextPilot('redis://log.example')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False, text=True, timeout=60)
    assert "MissingPackage: replicas need redis" in done.stderr
