"""Plans as jobs, with real processes: what comes of them, whose they are, and that nothing is left of them."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest

from contextpilot_rag.index.plan import plan_batch
from contextpilot_rag.remote import wire
from contextpilot_rag.remote.wire_plan import PlanOut
from contextpilot_rag.service import plan_pipe as pipe
from contextpilot_rag.service.core import Service
from contextpilot_rag.service.plan_child import Child, PlanBroke
from contextpilot_rag.service.plans import Plans
from contextpilot_rag.service.problems import Conflict, Malformed, NotFound, Unavailable, Unusable
from contextpilot_rag.service.settings import ServiceSettings
from tests.until import is_so

from .plan_batches import as_requests, batch, body, children, ended, endless, lives, status


class Desk:
    """Plans, and two tenants who ask for some."""

    def __init__(self, **given) -> None:
        self.settings = ServiceSettings(**given)
        self.service = Service(self.settings)
        self.told: list[tuple[str, float]] = []
        self.plans = Plans(self.settings, lambda ended, seconds: self.told.append((ended, seconds)))
        self.service.leaving.append(self.plans.leave)
        self.acme = self.service.tenant("acme")
        self.other = self.service.tenant("other")


@asynccontextmanager
async def desk(**given):
    made = Desk(**given)
    await made.plans.start()
    try:
        yield made
    finally:
        await made.plans.stop()
        assert not children(os.getpid())


async def test_the_result_is_what_is_planned_in_process_and_nothing_is_taken_as_sent():
    async with desk() as at:
        job = await at.plans.submit(at.acme, body(batch(ceiling=True)))
        assert (job.requests, job.namespaces) == (len(as_requests()), 1)
        assert job.tokens == sum(request.tokens for request in as_requests())
        assert job.blocks == sum(len(request.blocks) for request in as_requests())
        assert await ended(at.plans, at.acme, job.id) == "done"
        plan = msgspec.json.decode(at.plans.result(at.acme, job.id), type=PlanOut)
        here = plan_batch(as_requests(), ceiling=True)
        assert [one.order for one in plan.alignments] == [list(one.order) for one in here]
        assert [one.key for one in plan.alignments] == [one.request.key for one in here]
        assert [-1 if one.source is None else one.source for one in plan.alignments] == list(here.sources)
        assert [one.rule for one in plan.alignments] == [one.rule.value for one in here]
        assert plan.predicted_cached_tokens == here.predicted_cached_tokens > 0
        assert plan.retrieved_cached_tokens == here.retrieved_cached_tokens
        assert plan.ceiling_tokens == here.ceiling_tokens
        assert plan.hit_ratio == here.hit_ratio
        assert at.acme.stats().requests == at.acme.stats().tree_blocks == 0
        await is_so(lambda: [how for how, _ in at.told] == ["done"])
        assert at.plans.job(at.acme, job.id).result_bytes == len(at.plans.result(at.acme, job.id))


async def test_a_plan_may_start_from_what_is_believed_cached():
    async with desk() as at:
        a, b = wire.BlockIn(id="a", tokens=100), wire.BlockIn(id="b", tokens=100)
        at.acme.align(wire.AlignIn([b, a]))
        at.other.align(wire.AlignIn([a, b]))
        given = {"requests": [{"blocks": [{"id": "a", "tokens": 100}, {"id": "b", "tokens": 100}]}], "from_cache": True}
        found = []
        for tenant in (at.acme, at.other):
            job = await at.plans.submit(tenant, body(given))
            assert await ended(at.plans, tenant, job.id) == "done"
            found.append(msgspec.json.decode(at.plans.result(tenant, job.id), type=PlanOut))
        assert [plan.alignments[0].order for plan in found] == [[1, 0], [0, 1]]
        assert [plan.predicted_cached_tokens for plan in found] == [200, 200]
        assert at.acme.stats().requests == 1


async def test_many_namespaces_and_a_large_tree_go_through_the_pipes():
    async with desk(tenant_namespaces=300) as at:
        spaces = [{"corpus": f"corpus {number}"} for number in range(250)]
        for number in range(2_000):
            blocks = [wire.BlockIn(id=f"{number}/{place}", tokens=10) for place in range(10)]
            at.acme.align(wire.AlignIn(blocks, wire.NamespaceIn(corpus="corpus 0")))
        for space in spaces:
            at.acme.align(wire.AlignIn([wire.BlockIn(id=name, tokens=10) for name in "ba"], wire.NamespaceIn(**space)))
        blocks = [{"id": name, "tokens": 10} for name in "ab"]
        given = {"requests": [{"blocks": blocks, "namespace": space} for space in spaces], "from_cache": True}
        given["requests"].append(
            {"blocks": [{"id": f"77/{place}", "tokens": 10} for place in range(9, -1, -1)], "namespace": spaces[0]}
        )
        job = await at.plans.submit(at.acme, body(given))
        assert job.namespaces == len(spaces)
        assert await ended(at.plans, at.acme, job.id) == "done"
        plan = msgspec.json.decode(at.plans.result(at.acme, job.id), type=PlanOut)
        assert plan.predicted_cached_tokens == plan.tokens == 20 * len(spaces) + 100


@pytest.mark.parametrize(
    ("sent", "error"), [(b"{", Malformed), (b'{"requests": [{"blocks": [{"id": "a"}]}]}', Unusable)]
)
async def test_what_cannot_be_planned_is_refused_and_nothing_is_left_of_it(sent, error):
    async with desk() as at:
        with pytest.raises(error):
            await at.plans.submit(at.acme, sent)
        assert not children(os.getpid())
        assert len(at.plans) == 0
        assert not at.told


async def test_a_job_is_cancelled_while_it_runs_and_while_it_waits():
    async with desk() as at:
        running = await at.plans.submit(at.acme, body(endless()))
        await status(at.plans, at.acme, running.id, "running")
        waiting = await at.plans.submit(at.acme, body(batch()))
        pids = at.plans.processes
        assert waiting.status == "queued"
        assert len(pids) == 2
        for job, pid, others in ((waiting, pids[1], 1), (running, pids[0], 0)):
            assert lives(pid)
            assert (await at.plans.discard(at.acme, job.id)).status == "cancelled"
            assert not lives(pid)
            with pytest.raises(NotFound):
                at.plans.job(at.acme, job.id)
            assert len(at.plans.jobs(at.acme)) == others
        after = await at.plans.submit(at.acme, body(batch()))
        assert await ended(at.plans, at.acme, after.id) == "done"
        await is_so(lambda: [how for how, _ in at.told] == ["cancelled", "done"])  # one was never worked on


async def test_with_a_tenant_its_jobs_go():
    async with desk() as at:
        done = await at.plans.submit(at.acme, body(batch()))
        await ended(at.plans, at.acme, done.id)
        running = await at.plans.submit(at.acme, body(endless()))
        mine = await at.plans.submit(at.other, body(batch()))
        at.service.drop(["acme", "nobody"])
        await is_so(lambda: len(at.plans.processes) < 2)
        with pytest.raises(NotFound):
            at.plans.result(at.acme, done.id)
        assert at.plans.job(at.acme, running.id).status == "cancelled"
        assert await ended(at.plans, at.other, mine.id) == "done"


async def test_progress_is_told_while_it_runs():
    async with desk() as at:
        job = await at.plans.submit(at.acme, body(endless()))
        await is_so(lambda: at.plans.job(at.acme, job.id).progress is not None)
        progress = at.plans.job(at.acme, job.id).progress
        assert 0 <= progress.done <= progress.total
        assert progress.what
        with pytest.raises(Conflict, match="running"):
            at.plans.result(at.acme, job.id)


async def test_no_tenant_sees_fetches_or_ends_the_jobs_of_another_nor_of_a_former_one_of_its_name():
    async with desk() as at:
        job = await at.plans.submit(at.acme, body(batch()))
        await ended(at.plans, at.acme, job.id)
        at.service.leaving.clear()
        at.service.drop(["acme"])
        for stranger in (at.other, at.service.tenant("acme")):
            assert at.plans.jobs(stranger) == []
            with pytest.raises(NotFound):
                at.plans.job(stranger, job.id)
            with pytest.raises(NotFound):
                at.plans.result(stranger, job.id)
            with pytest.raises(NotFound):
                await at.plans.discard(stranger, job.id)
        assert at.plans.result(at.acme, job.id)


async def test_a_plan_that_takes_too_long_is_ended_and_its_process_with_it(caplog):
    async with desk(plan_seconds=0.01) as at:
        job = await at.plans.submit(at.acme, body({**endless(), "time_budget": 0.01}))
        assert await ended(at.plans, at.acme, job.id) == "failed"
        assert at.plans.job(at.acme, job.id).reason == "it was not finished in 0.01 seconds"
        with pytest.raises(Conflict, match=r"0\.01 seconds"):
            at.plans.result(at.acme, job.id)


async def test_a_result_that_is_too_large_is_not_kept_and_an_ended_job_only_for_a_while():
    async with desk(max_plan_body=1_000, plan_kept_seconds=0.5) as at:
        job = await at.plans.submit(at.acme, body(batch()))
        assert await ended(at.plans, at.acme, job.id) == "failed"
        assert "a tenant's results may have 1000 together" in str(at.plans.job(at.acme, job.id).reason)
        await is_so(lambda: len(at.plans) == 0)
        with pytest.raises(NotFound):
            at.plans.result(at.acme, job.id)


@pytest.mark.parametrize("queued", [False, True])
async def test_a_process_that_is_killed_fails_its_job_alone(queued, caplog):
    async with desk() as at:
        first = await at.plans.submit(at.acme, body(endless()))
        await status(at.plans, at.acme, first.id, "running")
        second = await at.plans.submit(at.other, body(batch()))
        tenant, job = (at.other, second) if queued else (at.acme, first)
        with caplog.at_level(logging.WARNING, "contextpilot_rag"):
            os.kill(at.plans.processes[queued], signal.SIGKILL)
            assert await ended(at.plans, tenant, job.id) == "failed"
        assert "memory" in str(at.plans.job(tenant, job.id).reason)
        assert [record.levelname for record in caplog.records] == ["WARNING"]
        if queued:
            assert at.plans.job(at.acme, first.id).status == "running"
        else:
            assert await ended(at.plans, at.other, second.id) == "done"


async def test_the_end_of_the_service_ends_all_processes():
    async with desk(plan_processes=2) as at:
        jobs = [await at.plans.submit(at.acme, body(endless())) for _ in range(2)]
        await status(at.plans, at.acme, jobs[0].id, "running")
        checking = asyncio.ensure_future(at.plans.submit(at.other, body(endless())))
        waiting = asyncio.ensure_future(at.plans.submit(at.other, body(endless())))
        await is_so(lambda: len(at.plans.processes) >= 3)
        pids = at.plans.processes
        await at.plans.stop()
        assert not [pid for pid in pids if lives(pid)]
        assert len(at.plans) == 0
        for asked in (checking, waiting):
            with pytest.raises(Unavailable):
                await asked
        with pytest.raises(Unavailable):
            await at.plans.submit(at.acme, body(batch()))


async def test_who_goes_before_the_batch_is_checked_leaves_nothing():
    async with desk() as at:
        for turns in (0, 1, 50):
            asked = asyncio.ensure_future(at.plans.submit(at.acme, body(batch())))
            for _ in range(turns):
                await asyncio.sleep(0)
            if turns:
                await asyncio.sleep(0.02)
            asked.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asked
        await is_so(lambda: len(at.plans) == 0)
        assert not children(os.getpid())


def in_proc(pid: int, name: str) -> bytes:
    return Path(f"/proc/{pid}/{name}").read_bytes()


async def test_nothing_of_the_services_is_in_the_processs_arguments_or_environment(monkeypatch):
    monkeypatch.setenv("CONTEXTPILOT_SERVE_SALT_SECRET", "hush")
    monkeypatch.setenv("PYTHONPATH", "/nowhere")
    async with desk(salt_secret="hush") as at:
        job = await at.plans.submit(at.acme, body(endless()))
        pid = at.plans.processes[0]
        for name in ("environ", "cmdline"):
            told = in_proc(pid, name)
            assert told
            assert not [word for word in (b"hush", b"/nowhere", b"CONTEXTPILOT_") if word in told]
        assert os.getpriority(os.PRIO_PROCESS, pid) > os.getpriority(os.PRIO_PROCESS, 0)
        assert os.getsid(pid) == pid  # where sessions share the processor, it takes nothing from the service's
        await at.plans.discard(at.acme, job.id)


async def test_a_process_that_cannot_be_started_is_no_fault_of_the_batch(monkeypatch):
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    async with desk() as at:
        with pytest.raises(Unavailable, match="no process can be started"):
            await at.plans.submit(at.acme, body(batch()))
        assert len(at.plans) == 0


async def said(child: Child, kind: bytes, data: bytes) -> None:
    await child.send(kind, data)
    await child.result(lambda progress: None, lambda size: None)


async def test_an_error_of_ours_in_the_process_is_logged_by_the_service(caplog):
    child = await Child.start()
    try:
        with pytest.raises(PlanBroke, match="an error of the service"):
            await said(child, pipe.LIMITS, b"\xc1")
        assert "Traceback" in caplog.text
    finally:
        await child.end()


@pytest.mark.parametrize("size", [0, 50_000_000])
async def test_a_process_that_ends_while_it_is_sent_something_is_noticed(size):
    child = await Child.start()
    try:
        with pytest.raises(PlanBroke, match="its process ended"):
            await said(child, b"?", bytes(size))
    finally:
        await child.end()
