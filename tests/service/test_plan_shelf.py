"""Where jobs are kept: bounded in number, bytes and time, and what is one tenant's takes no room from another."""

from __future__ import annotations

import pytest

from contextpilot_rag.service.core import Service
from contextpilot_rag.service.plan_child import PlanBroke
from contextpilot_rag.service.plan_pipe import Accepted
from contextpilot_rag.service.plan_shelf import Job, Shelf
from contextpilot_rag.service.problems import NotFound, TooMany, Unavailable
from contextpilot_rag.service.settings import ServiceSettings
from contextpilot_rag.service.tenant import Tenant
from tests.until import is_so


class Kept:
    """A shelf, and two tenants who put jobs on it."""

    def __init__(self, **given) -> None:
        settings = ServiceSettings(**given)
        service = Service(settings)
        self.shelf = Shelf(settings)
        self.acme = service.tenant("acme")
        self.other = service.tenant("other")

    def begin(self, tenant: Tenant) -> Job:
        job = self.shelf.new(tenant)
        job.accepted = Accepted(1, 1, 1, 1, from_cache=False)
        return job

    def end(self, job: Job, size: int = 1, fetched: bool = False) -> Job:
        self.shelf.make_room(job, size)
        job.result = bytearray(size)
        job.fetched = fetched
        job.status = "done"
        self.shelf.shelve(job)
        return job

    def done(self, tenant: Tenant, size: int = 1, fetched: bool = False) -> Job:
        return self.end(self.begin(tenant), size, fetched)

    def fail(self, job: Job) -> None:
        job.status = "failed"
        self.shelf.shelve(job)


async def test_a_tenant_has_so_many_under_way_or_to_be_fetched():
    kept = Kept(tenant_plans=2)
    first = kept.begin(kept.acme)
    kept.done(kept.acme)
    with pytest.raises(TooMany, match="2 plans") as refused:
        kept.shelf.new(kept.acme)
    assert int(refused.value.headers["Retry-After"]) >= 1
    kept.begin(kept.other)
    kept.end(first, fetched=True)
    kept.fail(kept.begin(kept.acme))
    kept.begin(kept.acme)
    with pytest.raises(TooMany):
        kept.shelf.new(kept.acme)


async def test_one_that_is_being_checked_counts_and_is_not_seen():
    kept = Kept(tenant_plans=1)
    job = kept.shelf.new(kept.acme)
    with pytest.raises(TooMany):
        kept.shelf.new(kept.acme)
    with pytest.raises(NotFound):
        kept.shelf.find(kept.acme, job.name)
    kept.shelf.forget(job)
    kept.shelf.new(kept.acme)


async def test_all_tenants_together_have_so_many_under_way():
    kept = Kept(max_plans=2)
    first = kept.begin(kept.acme)
    kept.begin(kept.other)
    with pytest.raises(Unavailable) as refused:
        kept.shelf.new(kept.other)
    assert int(refused.value.headers["Retry-After"]) >= 1
    kept.end(first)
    kept.begin(kept.other)


async def test_of_those_that_ended_the_last_are_kept():
    kept = Kept()
    mine = kept.done(kept.other)
    jobs = [kept.done(kept.acme, fetched=True) for _ in range(50)]
    found = kept.shelf.of(kept.acme)
    assert found == jobs[-20:]
    assert kept.shelf.of(kept.other) == [mine]


async def test_none_that_waits_to_be_fetched_is_crowded_out():
    kept = Kept(tenant_plans=50)
    jobs = [kept.done(kept.acme) for _ in range(50)]
    assert kept.shelf.of(kept.acme) == jobs


async def test_results_are_bounded_in_bytes_and_what_was_fetched_goes_first():
    kept = Kept(max_plan_body=10)
    old, fetched, new = kept.done(kept.acme, 4), kept.done(kept.acme, 4, fetched=True), kept.begin(kept.acme)
    with pytest.raises(PlanBroke, match="11 bytes"):
        kept.shelf.make_room(new, 11)
    kept.fail(new)
    assert kept.shelf.of(kept.acme) == [old, fetched, new]  # no room is made in vain
    kept.done(kept.acme, 6)
    with pytest.raises(PlanBroke, match="10 together"):
        kept.done(kept.acme, 1)
    assert fetched.name not in [job.name for job in kept.shelf]
    kept.done(kept.other, 10)


async def test_room_that_is_set_aside_is_not_given_away_and_comes_back():
    kept = Kept(max_plan_body=10)
    first, second = kept.begin(kept.acme), kept.begin(kept.acme)
    kept.shelf.make_room(first, 6)
    with pytest.raises(PlanBroke):
        kept.shelf.make_room(second, 6)
    kept.fail(first)
    kept.end(second, 6)


async def test_results_of_all_tenants_are_bounded_and_nobody_loses_one_for_another():
    kept = Kept(max_plan_body=10)
    tenants = [Service(ServiceSettings()).tenant(str(number)) for number in range(5)]
    for tenant in tenants[:4]:
        kept.done(tenant, 10, fetched=True)
    with pytest.raises(PlanBroke, match="others"):
        kept.done(tenants[4], 1)
    assert [len(kept.shelf.of(tenant)) for tenant in tenants[:4]] == [1, 1, 1, 1]


async def test_an_ended_job_is_kept_for_a_while():
    kept = Kept(plan_kept_seconds=0.05)
    job, running = kept.done(kept.acme), kept.begin(kept.acme)
    assert kept.shelf.find(kept.acme, job.name) is job
    await is_so(lambda: len(kept.shelf) == 1)
    with pytest.raises(NotFound):
        kept.shelf.find(kept.acme, job.name)
    assert kept.shelf.find(kept.acme, running.name) is running


async def test_jobs_are_their_tenants_alone():
    kept = Kept()
    job = kept.done(kept.acme)
    with pytest.raises(NotFound):
        kept.shelf.find(kept.other, job.name)
    with pytest.raises(NotFound):
        kept.shelf.find(kept.acme, "x")
    assert kept.shelf.of(kept.other) == []


async def test_among_replicas_it_is_said_that_only_one_of_them_has_a_plan():
    kept = Kept(replicate="redis://log.example")
    with pytest.raises(NotFound, match="only the replica that took it has it"):
        kept.shelf.find(kept.acme, "another-s")
    with pytest.raises(NotFound, match=r"for a while only$"):
        Kept().shelf.find(kept.acme, "nobody-s")
