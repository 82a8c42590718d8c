"""The process that works on one plan: checks the batch, waits for its turn, plans, writes the result, and ends.

It is started fresh for each plan and lives no longer than who started it: when its standard input closes, it ends. What
it knows came through that input; it is given no secrets, and reads no settings and no files.
"""

from __future__ import annotations

import gc
import os
import sys
import threading
import time
import traceback
from contextlib import suppress
from typing import BinaryIO, NoReturn

import msgspec

from ..remote.wire_plan import ProgressOut
from . import plan_pipe as pipe
from .plan_work import Batch
from .planner_start import STEP, step_back
from .problems import Rejected
from .settings import ServiceSettings

_REPORTS = 0.2  # seconds between two reports of progress
_MOST_SPACES = 100  # namespaces in a frame


def main() -> NoReturn:
    """Work on one plan, on this process's standard streams."""
    source, sink = _streams()
    try:
        _work(source, sink)
    except (EOFError, BrokenPipeError):
        pass  # nobody waits for it any more
    except MemoryError:
        _broken(sink, "out of memory", "")
    except Exception as error:  # noqa: BLE001  told to the service, which logs it
        _broken(sink, type(error).__name__, traceback.format_exc(limit=-8)[-4_000:])
    os._exit(0)  # there is much to take apart, and no need to


def _work(source: BinaryIO, sink: BinaryIO) -> None:
    limits = msgspec.msgpack.decode(_expected(source, pipe.LIMITS), type=pipe.Limits)
    settings = ServiceSettings(
        max_plan=limits.max_plan,
        max_blocks=limits.max_blocks,
        max_id=limits.max_id,
        plan_seconds=limits.plan_seconds,
    )
    gc.disable()  # it would look at millions of objects again and again, and none of them is garbage
    try:
        batch = Batch.read(_expected(source, pipe.BODY), settings)
    except Rejected as error:
        pipe.send(sink, pipe.REJECTED, msgspec.msgpack.encode(pipe.Refusal(error.kind, str(error))))
        return
    gc.freeze()
    gc.enable()
    pipe.send(sink, pipe.ACCEPTED, msgspec.msgpack.encode(batch.accepted))
    step_back(2 * STEP)
    if batch.from_cache:
        _ask_for_trees(batch, source, sink)
    _expected(source, pipe.GO)
    _end_with(source)
    reports = _Reports(sink)
    result = batch.result(time.monotonic, reports.report)
    pipe.send(sink, pipe.RESULT, result)


def _ask_for_trees(batch: Batch, source: BinaryIO, sink: BinaryIO) -> None:
    spaces = batch.spaces()
    for start in range(0, len(spaces), _MOST_SPACES):
        pipe.send(sink, pipe.SPACES, msgspec.msgpack.encode(spaces[start : start + _MOST_SPACES]))
        kind, data = pipe.receive(source)
        while kind == pipe.TREE:
            batch.believe(data)
            kind, data = pipe.receive(source)
    pipe.send(sink, pipe.SPACES, msgspec.msgpack.encode([]))


class _Reports:
    """Progress, told now and then."""

    def __init__(self, sink: BinaryIO) -> None:
        self._sink = sink
        self._next = 0.0

    def report(self, what: str, done: int, total: int) -> None:
        now = time.monotonic()
        if now >= self._next:
            self._next = now + _REPORTS
            pipe.send(self._sink, pipe.PROGRESS, msgspec.msgpack.encode(ProgressOut(what, done, total)))


def _expected(source: BinaryIO, wanted: bytes) -> bytes:
    kind, data = pipe.receive(source)
    if kind != wanted:
        raise EOFError
    return data


def _streams() -> tuple[BinaryIO, BinaryIO]:
    """The pipes. What anybody else prints goes to the error stream, and not between the frames."""
    sink = os.fdopen(os.dup(1), "wb", buffering=pipe.CHUNK)
    os.dup2(2, 1)
    return sys.stdin.buffer, sink


def _end_with(source: BinaryIO) -> None:
    """End when the input does, whatever is being worked on."""

    def wait() -> None:
        with suppress(OSError):
            source.read(1)
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


def _broken(sink: BinaryIO, kind: str, trace: str) -> None:
    with suppress(OSError):
        pipe.send(sink, pipe.BROKEN, msgspec.msgpack.encode(pipe.Refusal(kind, trace)))
