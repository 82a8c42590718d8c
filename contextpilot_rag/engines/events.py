"""EventListener: what engines tell of their KV caches, over ZeroMQ, from several engines in one thread."""

from __future__ import annotations

import contextlib
import logging
import socket
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from ..errors import EventError
from ..forking import after_fork
from .engine import Engine
from .link import Link
from .names import Names
from .sink import EventCounts, Sink
from .sockets import check_zmq, new_context

__all__ = ["EventCounts", "EventListener", "Sink"]

logger = logging.getLogger("contextpilot_rag")

PATIENCE = 10.0
_ROUND = 100  # milliseconds that it waits at most while something is waited for
_IDLE = 500  # and otherwise
_STOPPING = 5.0  # seconds
_QUIET = 0.2  # seconds without a message after which those that were sent are taken to have arrived

_abandoned: list[Any] = []  # of the parent, in a forked child: not to be touched, nor closed by being forgotten


class EventListener:
    """Listens to engines, and tells a sink. Thread-safe; its thread starts with the first engine that has events.

    In a forked child it listens to nobody until an engine is added.

    Args:
        sink: is told, in the listener's thread.
        clock: seconds that never run backwards.
        patience: seconds after which an address where nobody publishes, or a replay that is not answered, is said to be
            broken.
    """

    def __init__(self, sink: Sink, clock: Callable[[], float] = time.monotonic, patience: float = PATIENCE) -> None:
        self._sink, self._clock, self._patience = sink, clock, patience
        self._lock = threading.Lock()
        self._engines: dict[str, Engine] = {}
        self._links: dict[str, tuple[Link, ...]] = {}
        self._thread: _Thread | None = None
        self._closed = False
        after_fork(self, EventListener._in_child)

    def __enter__(self) -> EventListener:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def add(self, engine: Engine) -> None:
        """Listen to an engine. If there is one of that name: instead of it, and what was told of it is lost.

        Nothing is done for one without events.

        Raises:
            MissingPackage: pyzmq is not installed.
            EventError: the listener is closed.
        """
        if not engine.events:
            self.remove(engine.name)
            return
        check_zmq()
        with self._lock:
            if self._closed:
                raise EventError("the listener of events is closed")
            self._remove(engine.name)
            again = engine.name in self._engines
            self._engines[engine.name] = engine
            self._listen(engine, again=again)

    def remove(self, name: str) -> None:
        """Listen to it no more. What the sink is being told right now may still come to its end."""
        with self._lock:
            self._engines.pop(name, None)
            self._remove(name)

    def close(self) -> None:
        """Listen to nobody any more. The thread has ended afterwards, unless it is this one, or hangs in the sink."""
        with self._lock:
            self._closed = True
            thread, self._thread = self._thread, None
            for name in list(self._links):
                self._remove(name)
            self._engines.clear()
        if thread is not None:
            thread.stop()

    def again(self, name: str) -> None:
        """Begin anew with one: the sink is told that what it knows of it is lost, and then all that it tells again.

        Nothing is done for one that is not listened to.
        """
        with self._lock:
            engine = self._engines.get(name)
            if engine is not None and name in self._links:
                self._remove(name)
                self._listen(engine, again=True)

    def complete(self, name: str, rank: int) -> bool:
        """Whether a rank told all that happened since its start, as far as it has told."""
        links = self._links.get(name, ())
        return rank < len(links) and links[rank].feed.complete

    def counts(self, name: str) -> EventCounts:
        """What came of an engine's events; zeros for one that is not listened to."""
        ranks = [link.counts() for link in self._links.get(name, ())]
        if not ranks:
            return EventCounts()
        names = "batches events unknown gaps replays lost restarts duplicates undecodable other_topics".split()
        return EventCounts(
            **{name: sum(getattr(rank, name) for rank in ranks) for name in names},
            connected=all(rank.connected for rank in ranks),
            in_step=all(rank.in_step for rank in ranks),
            complete=all(rank.complete for rank in ranks),
            last_seq=tuple(number for rank in ranks for number in rank.last_seq),
        )

    def drained(self, timeout: float = PATIENCE) -> bool:
        """Wait until all that the engines have published by now is passed on.

        Engines with replays are asked for what they have. With others, that nothing arrives for a moment has to do.

        Args:
            timeout: seconds to wait at most.

        Returns:
            Whether it is.
        """
        with self._lock:
            thread, links = self._thread, [link for ranks in self._links.values() for link in ranks]
        if thread is None or not links:
            return True
        drain = _Drain(links)
        thread.do(partial(thread.drains.append, drain))
        done = drain.done.wait(timeout)
        drain.wanted = False
        return done

    def _listen(self, engine: Engine, *, again: bool) -> None:
        if self._thread is None:
            self._thread = _Thread(self._clock)
        thread = self._thread
        make = partial(Link, engine, sink=self._sink, context=thread.context, poller=thread.poller, names=thread.names)
        links = tuple(make(rank=rank, patience=self._patience, again=again) for rank in range(engine.ranks))
        self._links[engine.name] = links
        thread.do(partial(thread.links.extend, links))

    def _remove(self, name: str) -> None:
        links = self._links.pop(name, ())
        for link in links:
            link.removed = True
        if links and self._thread is not None:
            self._thread.do(partial(self._thread.drop, links))

    def _in_child(self) -> None:
        _abandoned.append((self._thread, self._links))
        self._lock = threading.Lock()
        self._links, self._thread = {}, None


@dataclass(eq=False)
class _Drain:
    """Somebody waits until these have passed on all that there is."""

    links: list[Link]
    asked: set[Link] = field(default_factory=set)
    quiet: dict[Link, float] = field(default_factory=dict)  # without a message since then
    done: threading.Event = field(default_factory=threading.Event)
    wanted: bool = True  # somebody still waits

    def look(self, now: float) -> bool:
        """Whether all have, or nobody waits for it any more."""
        if not self.wanted:
            return True
        self.links = [link for link in self.links if not link.removed and not self._has(link, now)]
        if not self.links:
            self.done.set()
        return not self.links

    def _has(self, link: Link, now: float) -> bool:
        if not link.quiet:
            self.quiet[link] = now
        quiet = now - self.quiet.setdefault(link, now) >= _QUIET
        if not link.engine.replay:
            return quiet
        if link.feed.asking is not None or not link.connected:
            return False
        if link not in self.asked:
            self.asked.add(link)
            link.check(now)
            return False
        return link.feed.in_step


class _Thread:
    """The listener's thread, and what belongs to it."""

    def __init__(self, clock: Callable[[], float]) -> None:
        import zmq

        self.context = new_context()
        self.poller = zmq.Poller()
        self.names = Names()
        self.links: list[Link] = []
        self.drains: list[_Drain] = []
        self._clock = clock
        self._stopping = False
        self._jobs: deque[Callable[[], None]] = deque()
        self._woken, self._waker = socket.socketpair()
        self._woken.setblocking(False)
        self._waker.setblocking(False)
        self.poller.register(self._woken, zmq.POLLIN)
        self._thread = threading.Thread(target=self._run, name="contextpilot-events", daemon=True)
        self._thread.start()

    def do(self, job: Callable[[], None]) -> None:
        """Have something done in the thread."""
        self._jobs.append(job)
        with contextlib.suppress(OSError):  # full: it is awake anyway; closed: it has ended
            self._waker.send(b"\0")

    def drop(self, links: tuple[Link, ...]) -> None:
        """Close these."""
        for link in links:
            if link in self.links:
                self.links.remove(link)
                link.close()

    def stop(self) -> None:
        """End it."""
        self._stopping = True
        self.do(lambda: None)
        if threading.current_thread() is not self._thread:
            self._thread.join(_STOPPING)

    def _run(self) -> None:
        try:
            while not self._stopping:
                self._round()
        except Exception:
            logger.exception("the thread that listens to engines' events has ended")
        finally:
            for link in self.links:
                link.close()
            self.context.destroy(linger=0)
            self._woken.close()
            self._waker.close()

    def _round(self) -> None:
        busy = self.drains or not all(link.feed.in_step for link in self.links)
        ready = dict(self.poller.poll(_ROUND if busy else _IDLE))
        if self._woken.fileno() in ready:
            with contextlib.suppress(BlockingIOError):
                self._woken.recv(4096)
        while self._jobs:
            self._jobs.popleft()()
        now = self._clock()
        for link in list(self.links):
            link.work(ready, now)
        self.drains[:] = [drain for drain in self.drains if not drain.look(now)]
