"""Snapshots: what the service knows, written to disk now and then, and read when it starts.

Nothing that is asked waits for them: the state is put into data a millisecond's work at a time, and files are written
in a thread. A process that is killed loses what came after its last snapshot: warmth, and never more.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec

from ..errors import SettingsError, StateError
from ..types import Alignment, Namespace, Usage
from . import saved, snapshot_file
from .audit import audit
from .auth import Gate
from .core import Service
from .metrics import Metrics
from .shown import span
from .snapshot_file import SnapshotWriter

logger = logging.getLogger("contextpilot_rag.service")

_NAME = "snapshot"
_ASIDE_KEPT = 3  # damaged files
_BUFFER = 2**20
_SOON_SECONDS = 1.0
_LONGEST_REST = 0.005  # seconds between two parts


class Changes:
    """A watcher that knows whether anything changed since the last snapshot, and whether something was forgotten."""

    def __init__(self) -> None:
        self.any = False
        self.forgotten = asyncio.Event()

    def aligned(self, tenant: str, alignment: Alignment, engine: str | None, again_tokens: int) -> None:  # noqa: ARG002
        """Something was learnt."""
        self.any = True

    def observed(self, tenant: str, alignment: Alignment, engine: str | None, usage: Usage) -> None:  # noqa: ARG002
        """Something was used."""
        self.any = True

    def moved(self) -> None:
        """An engine's cache changed, and a tree with it."""
        self.any = True

    def forgot(self, tenant: str, namespace: Namespace | None) -> None:  # noqa: ARG002
        """What was forgotten shall not stay on disk for long."""
        self.soon()

    def soon(self) -> None:
        """Something shall not stay on disk for long."""
        self.any = True
        self.forgotten.set()


class Snapshots:
    """A part of the service: its state on disk. It must start before whatever enforces who there still is.

    Args:
        service: whose state.
        gate: knows which tenants there are, and what they share.
        changes: watches the service.
        folder: where; nobody else may use it meanwhile.
        seconds: between two snapshots.
        metrics: are told how it goes.
    """

    def __init__(
        self,
        service: Service,
        gate: Gate,
        changes: Changes,
        folder: Path,
        seconds: float,
        metrics: Metrics | None = None,
    ) -> None:
        self._service = service
        self._gate = gate
        self._changes = changes
        self._folder = folder
        self._seconds = seconds
        self._metrics = metrics
        self._encoder = msgspec.msgpack.Encoder()
        self._saving = asyncio.Lock()
        self._ending = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._lock: int | None = None

    async def start(self) -> None:
        """Take the folder, read what is there, and begin to save.

        Raises:
            SettingsError: the folder cannot be used, or somebody else uses it.
        """
        self._lock = lock_folder(self._folder)
        await self.restore()
        self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        """Save for the last time."""
        self._ending.set()
        self._changes.forgotten.set()
        if self._task is not None:
            await self._task
            self._task = None
            if self._changes.any:
                await self.save()
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def reload(self) -> None:
        """Nothing is read while the service runs."""

    def soon(self) -> None:
        """Save within about a second: something was forgotten that shall not stay on disk."""
        self._changes.soon()

    async def save(self) -> bool:
        """Write a snapshot; False: it could not be written, and the one from before is still there."""
        async with self._saving:
            began = time.perf_counter()
            self._changes.any = False
            writer: SnapshotWriter | None = None
            try:
                writer = await asyncio.to_thread(SnapshotWriter, self._folder / _NAME)
                await self._write(writer)
                await asyncio.to_thread(writer.finish)
            except (OSError, StateError) as error:
                self._changes.any = True
                logger.error("no snapshot could be written to %s: %s", self._folder, error)  # noqa: TRY400
                if writer is not None:
                    await asyncio.to_thread(writer.abandon)
                if self._metrics is not None:
                    self._metrics.snapshot_failed()
                return False
            if self._metrics is not None:
                self._metrics.snapshot_saved(time.perf_counter() - began)
            return True

    async def _write(self, writer: SnapshotWriter) -> None:
        """Write all parts. Until the end comes, at least half of the time is left to those who ask."""
        buffer = bytearray()
        began = time.perf_counter()
        for part in saved.dump(self._service):
            buffer += snapshot_file.frame(self._encoder.encode(part))
            if len(buffer) >= _BUFFER:
                await asyncio.to_thread(writer.write, buffer)
                buffer = bytearray()
            rest = min(time.perf_counter() - began, _LONGEST_REST)
            await asyncio.sleep(0 if self._ending.is_set() else rest)
            began = time.perf_counter()
        await asyncio.to_thread(writer.write, buffer)

    async def restore(self) -> bool:
        """Read the snapshot, if there is one; a damaged one is set aside. True: its state is the service's now.

        Raises:
            SettingsError: it cannot be read; whether it is damaged is not known.
        """
        path = self._folder / _NAME
        try:
            messages = await asyncio.to_thread(snapshot_file.read, path)
            decoder = msgspec.msgpack.Decoder(saved.SavedPart)
            with _no_collections():
                try:
                    parts = [decoder.decode(message) for message in messages]
                except msgspec.DecodeError as error:
                    raise StateError(f"a message in it is not understood: {error}") from None
                saved.load(parts, self._service, self._gate.tenants, self._gate.sharing)
        except FileNotFoundError:
            logger.info("there is no snapshot in %s: the service starts empty", self._folder)
            return False
        except StateError as error:
            aside = await asyncio.to_thread(_set_aside, path)
            logger.error("the snapshot cannot be used: %s; it is now %s, and the service starts empty", error, aside)  # noqa: TRY400
            audit("snapshot set aside", None, file=str(aside), reason=str(error), result="started empty")
            return False
        except OSError as error:
            raise SettingsError(f"--state {path}: {error.strerror or error}") from None
        self._tell_restored(path)
        return True

    def _tell_restored(self, path: Path) -> None:
        """What a start begins with: how much, and how old it is."""
        sizes = [pool.index.stats() for pool in self._service.pools().values()]
        spaces, blocks = sum(size.namespaces for size in sizes), sum(size.tree_blocks for size in sizes)
        talks = sum(len(tenant.ledgers) for tenant in self._service.tenants.values())
        age = "of an unknown age"
        with suppress(OSError):
            age = f"{span(max(0.0, time.time() - path.stat().st_mtime))} old"
        logger.info(
            "restored %d namespaces, %d blocks and %d conversations from a snapshot, %s",
            spaces,
            blocks,
            talks,
            age,
            extra={"restored": {"namespaces": spaces, "blocks": blocks, "conversations": talks}},
        )

    async def _run(self) -> None:
        while not self._ending.is_set():
            urgent = await _happens(self._changes.forgotten, self._seconds)
            if self._ending.is_set():
                return
            self._changes.forgotten.clear()
            if self._changes.any:
                try:
                    await self.save()
                except Exception:
                    logger.exception("writing a snapshot failed; it is tried again")
                    if self._metrics is not None:
                        self._metrics.snapshot_failed()
            elif self._metrics is not None:
                self._metrics.snapshot_current()
            if urgent:
                await _happens(self._ending, min(_SOON_SECONDS, self._seconds))


async def _happens(event: asyncio.Event, seconds: float) -> bool:
    """Wait for an event, but not longer; True: it came."""
    with suppress(asyncio.TimeoutError):
        await asyncio.wait_for(event.wait(), seconds)
    return event.is_set()


def lock_folder(folder: Path) -> int:
    """Take a state folder for this process, until the descriptor is closed or the process ends.

    Raises:
        SettingsError: it cannot be used, or another process uses it.
    """
    try:
        import fcntl
    except ModuleNotFoundError:
        raise SettingsError("--state: this system has no locks that a state folder needs") from None
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise SettingsError(f"--state {folder}: {error.strerror or error}") from None
    if not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
        os.close(descriptor)
        raise SettingsError(f"--state {folder}: this process may not read and write there")
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(descriptor)
        held = isinstance(error, BlockingIOError)
        reason = "another process uses it; each service has a folder of its own" if held else error.strerror
        raise SettingsError(f"--state {folder}: {reason}") from None
    return descriptor


def _set_aside(path: Path) -> Path:
    """Rename a file that cannot be used; of those that were, only a few are kept."""
    numbers = sorted(
        int(number)
        for number in (other.name.rpartition("-")[2] for other in path.parent.glob(f"{path.name}.damaged-*"))
        if number.isascii() and number.isdigit()
    )
    aside = path.with_name(f"{path.name}.damaged-{numbers[-1] + 1 if numbers else 1}")
    path.rename(aside)
    for number in numbers[: len(numbers) + 1 - _ASIDE_KEPT]:
        with suppress(OSError):  # a folder of that name is somebody else's
            path.with_name(f"{path.name}.damaged-{number}").unlink()
    return aside


@contextmanager
def _no_collections() -> Iterator[None]:
    """Without garbage collections: while a large state is built they would take longer than building it does.

    What was built counts as old after that: the next collection of what is young does not look at all of it.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
        if not gc.get_freeze_count():
            gc.freeze()
            gc.unfreeze()
    finally:
        if enabled:
            gc.enable()
