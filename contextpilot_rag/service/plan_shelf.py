"""The jobs of all tenants, as far as they are kept: bounded in number and time, their results in bytes."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Iterator
from dataclasses import dataclass, field

from ..remote.wire_plan import JobOut, ProgressOut, Status
from .plan_child import Child, PlanBroke
from .plan_pipe import Accepted
from .problems import NotFound, Rejected, TooMany, Unavailable
from .settings import ServiceSettings
from .tenant import Tenant

_ENDED_EACH = 20  # jobs of a tenant that have ended and are still shown; beyond, the oldest go
_RESULTS_ALL = 4  # the results of all tenants together: so many times what those of one tenant may be
_LATER = 10.0  # seconds after which to try again where there was no room


@dataclass(slots=True, eq=False)
class Job:
    """One plan.

    Args:
        tenant: whose; not by name: a later tenant of the same name is another one.
        name: what it is asked for by.
        accepted: what was sent; None while that is being checked.
        status: how far it is.
        progress: while it is running.
        reason: why it failed.
        refusal: why it was not accepted.
        result: JSON.
        size: bytes that are set aside for it.
        fetched: whether the result was.
        begun: whether it had its turn.
        seconds: that it was worked on.
        child: its process, until that is gone.
        task: has it worked on.
    """

    tenant: Tenant
    name: str = field(default_factory=lambda: secrets.token_urlsafe(16))
    accepted: Accepted | None = None
    status: Status = "queued"
    progress: ProgressOut | None = None
    reason: str | None = None
    refusal: Rejected | None = None
    result: bytearray | None = None
    size: int = 0
    fetched: bool = False
    begun: bool = False
    seconds: float = 0.0
    child: Child | None = None
    task: asyncio.Task[None] | None = None

    @property
    def ended(self) -> bool:
        """Whether nothing more will become of it."""
        return self.status not in {"queued", "running"}

    @property
    def counts(self) -> bool:
        """Whether it is under way, or waits to be fetched."""
        return not self.ended or (self.status == "done" and not self.fetched)

    def cancel(self) -> None:
        """Have it end, if it has not."""
        if not self.ended and self.task is not None:
            self.task.cancel()

    def out(self) -> JobOut:
        """For who asks how far it is."""
        accepted = self.accepted or Accepted(0, 0, 0, 0, from_cache=False)
        return JobOut(
            self.name,
            self.status,
            accepted.requests,
            accepted.blocks,
            accepted.tokens,
            accepted.namespaces,
            self.progress if self.status == "running" else None,
            self.reason,
            None if self.result is None else len(self.result),
        )


class Shelf:
    """Where jobs are kept.

    Args:
        settings: limits.
    """

    def __init__(self, settings: ServiceSettings) -> None:
        self._settings = settings
        self._jobs: dict[str, Job] = {}
        self._expiring: dict[str, asyncio.TimerHandle] = {}

    def __len__(self) -> int:
        return len(self._jobs)

    def __iter__(self) -> Iterator[Job]:
        return iter(list(self._jobs.values()))

    def of(self, tenant: Tenant) -> list[Job]:
        """A tenant's, the oldest first."""
        return [job for job in self._jobs.values() if job.tenant is tenant]

    def find(self, tenant: Tenant, name: str) -> Job:
        """A tenant's job.

        Raises:
            NotFound: there is none of this name, or it is another tenant's.
        """
        job = self._jobs.get(name)
        if job is None or job.tenant is not tenant or job.accepted is None:
            where = "; only the replica that took it has it" if self._settings.replicate else ""
            raise NotFound(f"no plan of this name; one that has ended is kept for a while only{where}")
        return job

    def new(self, tenant: Tenant) -> Job:
        """A job that begins.

        Raises:
            TooMany: the tenant has as many as it may.
            Unavailable: all tenants together have.
        """
        most = self._settings.tenant_plans
        if sum(job.counts for job in self.of(tenant)) >= most:
            raise TooMany(f"{most} plans are under way or wait to be fetched; fetch their results, or end some", _LATER)
        if sum(not job.ended for job in self) >= self._settings.max_plans:
            raise Unavailable("as many plans as can be are under way", _LATER)
        job = Job(tenant)
        self._jobs[job.name] = job
        return job

    def make_room(self, job: Job, size: int) -> None:
        """Make room for a job's result: what the tenant has fetched goes first. Nothing goes that is another's.

        Raises:
            PlanBroke: there is none.
        """
        most = self._settings.max_plan_body
        jobs = self.of(job.tenant)
        if sum(other.size for other in jobs if not other.fetched) + size > most:
            raise PlanBroke(f"its result has {size} bytes; a tenant's results may have {most} together")
        for other in jobs:
            if other.fetched and sum(kept.size for kept in self.of(job.tenant)) + size > most:
                self.forget(other)
        if sum(kept.size for kept in self) + size > most * _RESULTS_ALL:
            raise PlanBroke("too many results of others wait to be fetched; try again later")
        job.size = size

    def shelve(self, job: Job) -> None:
        """Keep a job that has ended for a while."""
        if job.result is None:
            job.size = 0
        ended = [other for other in self.of(job.tenant) if other.ended]
        for other in ended[: max(0, len(ended) - max(_ENDED_EACH, self._settings.tenant_plans))]:
            self.forget(other)
        loop = asyncio.get_running_loop()
        self._expiring[job.name] = loop.call_later(self._settings.plan_kept_seconds, self.forget, job)

    def forget(self, job: Job) -> None:
        """Keep a job no longer."""
        self._jobs.pop(job.name, None)
        timer = self._expiring.pop(job.name, None)
        if timer is not None:
            timer.cancel()
