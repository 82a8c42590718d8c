"""The service's end of the process that works on one plan. All that takes time is done there; here bytes are passed on.

The process is started fresh, never forked: it holds nothing of the service's, and is given nothing of its environment
that could be secret. It finds its modules exactly where the service finds its own.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from pathlib import Path

import msgspec

from ..errors import ContextPilotError
from ..remote.wire_plan import ProgressOut
from . import plan_pipe as pipe
from . import problems
from .problems import Rejected
from .settings import ServiceSettings

logger = logging.getLogger("contextpilot_rag")

_RUN = str(Path(__file__).with_name("planner_start.py"))
_INHERITED = ("PATH", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "SYSTEMROOT", "LANG", "LC_ALL", "TZ")
_ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
_SMALL = 1 << 20  # bytes of a frame that is decoded here; only results are larger
_REFUSALS = {
    kind.kind: kind for kind in vars(problems).values() if isinstance(kind, type) and issubclass(kind, Rejected)
}


class PlanBroke(ContextPilotError):
    """A job ends without a result; the message says why, for who asked for it."""


class Child:
    """A process that works on one plan. Made by `start`; `end` has to be awaited, whatever happens."""

    def __init__(self, process: Process) -> None:
        assert process.stdin is not None  # noqa: S101  as started below
        assert process.stdout is not None  # noqa: S101
        self._process = process
        self._to = process.stdin
        self._from = process.stdout

    @classmethod
    async def start(cls) -> Child:
        """Start one.

        Raises:
            PlanBroke: the system has no room for it.
        """
        environment = {name: os.environ[name] for name in _INHERITED if name in os.environ} | _ONE_THREAD
        arguments = ("-I", _RUN, _search_path())
        try:
            process = await asyncio.create_subprocess_exec(
                sys.executable, *arguments, stdin=PIPE, stdout=PIPE, stderr=None, env=environment, limit=2 * pipe.CHUNK
            )
        except OSError as error:
            raise PlanBroke(f"no process can be started for it: {error.strerror}") from error
        return cls(process)

    @property
    def pid(self) -> int:
        """The process's number."""
        return self._process.pid

    async def gone(self) -> None:
        """Return when the process has ended."""
        await self._process.wait()

    async def admit(self, body: bytes | bytearray, settings: ServiceSettings) -> pipe.Accepted:
        """Have a batch checked.

        Args:
            body: as it came from the client.
            settings: the service's; what the process has to know of them is told.

        Raises:
            Rejected: it cannot be planned.
            PlanBroke: the process ended.
        """
        limits = pipe.Limits(settings.max_plan, settings.max_blocks, settings.max_id, settings.plan_seconds)
        await self.send(pipe.LIMITS, msgspec.msgpack.encode(limits))
        await self.send(pipe.BODY, body)
        del body
        kind, data = await self._small()
        if kind == pipe.REJECTED:
            refusal = msgspec.msgpack.decode(data, type=pipe.Refusal)
            raise _REFUSALS.get(refusal.kind, Rejected)(refusal.detail)
        return msgspec.msgpack.decode(data, type=pipe.Accepted)

    async def spaces(self) -> AsyncIterator[pipe.Spaces]:
        """The batch's namespaces, some at a time. To be read to the end, where the batch starts from the cache.

        Raises:
            PlanBroke: the process ended.
        """
        while True:
            _, data = await self._small()
            spaces = msgspec.msgpack.decode(data, type=pipe.Spaces)
            if not spaces:
                return
            yield spaces

    async def send(self, kind: bytes, data: bytes | bytearray = b"") -> None:
        """Send a frame, a piece at a time; others have their turn in between.

        Raises:
            PlanBroke: the process ended.
        """
        try:
            self._to.write(pipe.HEAD.pack(kind, len(data)))
            for start in range(0, len(data), pipe.CHUNK):
                self._to.write(data[start : start + pipe.CHUNK])
                await self._to.drain()
                await asyncio.sleep(0)
            await self._to.drain()
        except (OSError, RuntimeError):  # closed; which of them depends on the event loop
            await self._small()  # perhaps it said why
            raise await self._broke() from None

    async def result(self, report: Callable[[ProgressOut], None], room: Callable[[int], None]) -> bytearray:
        """The plan, as it goes to the client.

        Args:
            report: told about progress.
            room: told the size before it is read; what it raises is raised here.

        Raises:
            PlanBroke: the process ended.
        """
        while True:
            kind, length = await self._head()
            if kind == pipe.RESULT:
                room(length)
                return await self._large(length)
            data = await self._rest(kind, length)
            if kind == pipe.PROGRESS:
                report(msgspec.msgpack.decode(data, type=ProgressOut))

    async def end(self) -> None:
        """Kill the process if it still runs, and wait until it is gone."""
        with suppress(ProcessLookupError):
            self._process.kill()
        self._to.close()
        with suppress(OSError):
            while await self._from.read(pipe.CHUNK):  # else the event loop does not see the end of the pipe
                pass
        await self._process.wait()
        with suppress(OSError, RuntimeError):
            await self._to.wait_closed()

    async def _small(self) -> tuple[bytes, bytes]:
        kind, length = await self._head()
        return kind, await self._rest(kind, length)

    async def _rest(self, kind: bytes, length: int) -> bytes:
        if length > _SMALL:
            raise PlanBroke("its process wrote what cannot be read")
        try:
            data = await self._from.readexactly(length)
        except (asyncio.IncompleteReadError, OSError):
            raise await self._broke() from None
        if kind == pipe.BROKEN:
            refusal = msgspec.msgpack.decode(data, type=pipe.Refusal)
            logger.error("the process of a plan broke off: %s\n%s", refusal.kind, refusal.detail)
            raise PlanBroke(f"an error of the service's: {refusal.kind}")
        return data

    async def _head(self) -> tuple[bytes, int]:
        try:
            kind, length = pipe.HEAD.unpack(await self._from.readexactly(pipe.HEAD.size))
        except (asyncio.IncompleteReadError, OSError):
            raise await self._broke() from None
        return kind, length

    async def _large(self, length: int) -> bytearray:
        data = bytearray(length)  # filled piece by piece: joining pieces would hold everybody up
        place = 0
        while place < length:
            piece = await self._from.read(min(pipe.CHUNK, length - place))
            if not piece:
                raise await self._broke()
            data[place : place + len(piece)] = piece
            place += len(piece)
        return data

    async def _broke(self) -> PlanBroke:
        """Why there is nothing more to read."""
        code = await self._process.wait()
        if code < 0:
            return PlanBroke(f"its process was ended by signal {-code}; perhaps memory ran out")
        return PlanBroke(f"its process ended with status {code}")


def _search_path() -> str:
    return json.dumps([str(Path(entry).absolute()) for entry in sys.path])
