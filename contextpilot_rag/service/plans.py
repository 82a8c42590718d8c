"""Plans: large batches as jobs, each worked on by a process of its own.

A job's process is started when the batch arrives, and checks it; so a batch that cannot be planned is refused at once.
Then it waits for its turn. Whatever happens (cancelled, too slow, killed, the service stopped), the job's task ends its
process before it ends itself.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable

import msgspec

from ..remote.wire import NamespaceIn, namespace_from
from ..remote.wire_plan import JobOut, ProgressOut, Status
from . import plan_pipe as pipe
from .plan_child import Child, PlanBroke
from .plan_shelf import Job, Shelf
from .plan_slots import Slots
from .problems import Conflict, Rejected, Unavailable
from .settings import ServiceSettings
from .tenant import Tenant

_CHECK_SECONDS = 60.0  # a batch that is not checked in this time never will be

logger = logging.getLogger("contextpilot_rag")


class Plans:
    """The jobs of all tenants. A part of the service's life; all within its event loop.

    Args:
        settings: limits.
        told: how a job that was worked on has ended, and after how many seconds.
        clock: seconds that never run backwards.
    """

    def __init__(
        self,
        settings: ServiceSettings,
        told: Callable[[Status, float], None] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings = settings
        self._told = told
        self._clock = clock
        self._shelf = Shelf(settings)
        self._slots = Slots(settings.plan_processes)
        self._checking = Slots(settings.plan_processes)
        self._tasks: set[asyncio.Task[None]] = set()
        self._open = True

    async def start(self) -> None:
        """Nothing has to be made ready."""

    async def stop(self) -> None:
        """End all jobs and their processes; no new ones are taken."""
        self._open = False
        for job in self._shelf:
            job.cancel()
        if self._tasks:
            await asyncio.wait(set(self._tasks))
        for job in self._shelf:
            self._shelf.forget(job)

    def reload(self) -> None:
        """Nothing is read from files."""

    def __len__(self) -> int:
        return len(self._shelf)

    def states(self) -> dict[str, int]:
        """How many there are in each state."""
        return dict(Counter(job.status for job in self._shelf))

    @property
    def processes(self) -> list[int]:
        """The numbers of all processes that were started and are not known to be gone."""
        return [job.child.pid for job in self._shelf if job.child is not None]

    async def submit(self, tenant: Tenant, body: bytes | bytearray) -> JobOut:
        """Have a batch planned.

        Args:
            tenant: who asks.
            body: a `PlanIn`, as it came.

        Raises:
            Rejected: it cannot be planned, or there is no room for it; nothing is left of it.
        """
        if not self._open:
            raise Unavailable("the service is ending")
        job = self._shelf.new(tenant)
        admitted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        job.task = asyncio.create_task(self._live(job, [body], admitted))
        self._tasks.add(job.task)
        job.task.add_done_callback(lambda task: self._over(task, job, admitted))
        try:
            await admitted
        except asyncio.CancelledError:
            job.cancel()  # who asked is gone
            raise
        return job.out()

    def job(self, tenant: Tenant, name: str) -> JobOut:
        """How far a tenant's job is.

        Raises:
            NotFound: there is none of this name, or it is another tenant's.
        """
        return self._shelf.find(tenant, name).out()

    def jobs(self, tenant: Tenant) -> list[JobOut]:
        """All of a tenant's, the oldest first."""
        return [job.out() for job in self._shelf.of(tenant) if job.accepted is not None]

    def result(self, tenant: Tenant, name: str) -> bytearray:
        """What came of a job, as JSON.

        Raises:
            NotFound: there is no such job.
            Conflict: it has no result: not yet, or not at all.
        """
        job = self._shelf.find(tenant, name)
        if job.result is None:
            raise Conflict(f"the plan failed: {job.reason}" if job.status == "failed" else f"the plan is {job.status}")
        job.fetched = True
        return job.result

    async def discard(self, tenant: Tenant, name: str) -> JobOut:
        """End a job if it is under way, and forget it with its result. Its process is gone when this returns.

        Raises:
            NotFound: there is no such job.
        """
        job = self._shelf.find(tenant, name)
        job.cancel()
        if job.task is not None:
            await asyncio.wait([job.task])
        self._shelf.forget(job)
        return job.out()

    def leave(self, tenant: Tenant) -> None:
        """End and forget all jobs of a tenant that is no more."""
        for job in self._shelf.of(tenant):
            if job.ended:
                self._shelf.forget(job)
            else:
                job.cancel()

    async def _live(self, job: Job, body: list[bytes | bytearray], admitted: asyncio.Future[None]) -> None:
        """A job from its start to its end."""
        try:
            async with self._checking.turn(job.tenant):
                job.child = await Child.start()
                job.accepted = await self._admit(job.child, body.pop())
            if not admitted.done():
                admitted.set_result(None)
            await self._turn(job, job.child)
            job.status = "done"
        except asyncio.CancelledError:
            job.status = "cancelled"
        except Exception as error:  # noqa: BLE001  told to who asked, or asks
            self._fail(job, error)
        finally:
            await self._end(job)

    def _over(self, task: asyncio.Task[None], job: Job, admitted: asyncio.Future[None]) -> None:
        """A job's task has ended, perhaps before it began."""
        self._tasks.discard(task)
        if not job.ended:
            job.status = "cancelled"
            self._shelf.forget(job)
        if not admitted.done():
            admitted.set_exception(job.refusal or Unavailable("the service is ending"))

    async def _admit(self, child: Child, body: bytes | bytearray) -> pipe.Accepted:
        try:
            return await asyncio.wait_for(child.admit(body, self._settings), _CHECK_SECONDS)
        except asyncio.TimeoutError:
            raise PlanBroke(f"it was not checked in {_CHECK_SECONDS:g} seconds") from None

    async def _turn(self, job: Job, child: Child) -> None:
        """Wait for the job's turn, and have it; unless its process goes before."""
        working = asyncio.ensure_future(self._work(job, child))
        gone = asyncio.ensure_future(child.gone())
        try:
            await asyncio.wait({working, gone}, return_when=asyncio.FIRST_COMPLETED)
            if job.status == "queued" and not working.done():
                raise PlanBroke("its process was ended while it waited for its turn; perhaps memory ran out")
            await working
        finally:
            working.cancel()
            gone.cancel()
            await asyncio.wait({working, gone})

    async def _work(self, job: Job, child: Child) -> None:
        async with self._slots.turn(job.tenant):
            job.status = "running"
            job.begun = True
            begun = self._clock()
            try:
                job.result = await asyncio.wait_for(self._plan(job, child), self._settings.plan_seconds)
            except asyncio.TimeoutError:
                raise PlanBroke(f"it was not finished in {self._settings.plan_seconds:g} seconds") from None
            finally:
                job.seconds = self._clock() - begun

    async def _plan(self, job: Job, child: Child) -> bytearray:
        if job.accepted is not None and job.accepted.from_cache:
            async for spaces in child.spaces():
                for space in spaces:
                    await _send_tree(job.tenant, space, child)
                await child.send(pipe.MORE)
        await child.send(pipe.GO)

        def report(progress: ProgressOut) -> None:
            job.progress = progress

        return await child.result(report, lambda size: self._shelf.make_room(job, size))

    def _fail(self, job: Job, error: Exception) -> None:
        job.status = "failed"
        if isinstance(error, Rejected):
            job.refusal = error
            return
        ours = not isinstance(error, PlanBroke)
        job.reason = "an error of the service's" if ours else str(error)
        job.refusal = Unavailable(f"the plan cannot be checked: {job.reason}")
        if ours:
            logger.error("plan %s failed", job.name, exc_info=error)
        else:
            logger.warning("plan %s failed: %s", job.name, error)

    async def _end(self, job: Job) -> None:
        """Have the process gone, and keep the job for a while, if it was accepted."""
        if job.child is not None:
            await job.child.end()
            job.child = None
        if job.accepted is None:
            self._shelf.forget(job)
            return
        self._shelf.shelve(job)
        if self._told is not None and job.begun:
            self._told(job.status, job.seconds)


async def _send_tree(tenant: Tenant, space: NamespaceIn, child: Child) -> None:
    for part in tenant.tree_parts(namespace_from(space)):
        await child.send(pipe.TREE, msgspec.msgpack.encode(pipe.TreeOf(space, part)))
