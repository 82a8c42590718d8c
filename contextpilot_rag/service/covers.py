"""Covers: what clients tell of where their prompts stand, worked on in a thread, off the event loop."""

from __future__ import annotations

import logging
import threading
from collections import Counter, deque
from dataclasses import dataclass
from itertools import pairwise

from ..engines.covering import Covering
from ..remote.wire import DIGEST, CoverIn
from ..types import BlockRef
from .handover import Forgetting, Space
from .problems import Unusable
from .residency import Residency

logger = logging.getLogger("contextpilot_rag")

MOST_BYTES = 32 * 2**20  # of coverings that wait; beyond, new ones are let go
MOST_FORGETTING = 1_000
_BESIDES = 1_000  # bytes that one takes besides its digests
_ENDING = 5.0


@dataclass(frozen=True, slots=True)
class Cover:
    """One prompt that an engine has answered.

    Args:
        space: whose tree its blocks are in.
        salt: of it.
        blocks: in prompt order.
        told: what the client told, checked by `check`.
        engine: who answered, as the client calls it.
    """

    space: Space
    salt: str | None
    blocks: tuple[BlockRef, ...]
    told: CoverIn
    engine: str | None

    @property
    def size(self) -> int:
        """Bytes that it takes while it waits, roughly."""
        return len(self.told.keys) + len(self.told.contents) + 16 * len(self.blocks) + _BESIDES


def check(told: CoverIn, blocks: int) -> None:
    """That what a client tells can be. That no digest stands twice is looked at later, in the thread.

    Args:
        told: by the client.
        blocks: of the prompt.

    Raises:
        Unusable: it cannot.
    """
    full = told.tokens // told.block_size
    for name in ("keys", "contents"):
        if len(getattr(told, name)) != full * DIGEST:
            raise Unusable(f"{name}: not {DIGEST} bytes for each of the prompt's {full} full KV blocks")
    ends = told.ends
    if len(ends) != blocks + 1:
        raise Unusable(f"ends: {len(ends)} of them; the ticket's prompt has {blocks} blocks, so there are {blocks + 1}")
    if any(later < earlier for earlier, later in pairwise(ends)):
        raise Unusable("ends: one is before an earlier one")
    if ends[-1] > told.tokens:
        raise Unusable("ends: one is behind the prompt's last token")
    if told.cached_tokens is not None and told.cached_tokens > told.tokens:
        raise Unusable("cached_tokens: more than the prompt has")


class Covers:
    """Tells a `Residency` of prompts, in a thread of its own, in the order in which they came.

    Args:
        residency: is told.
    """

    def __init__(self, residency: Residency) -> None:
        self.taken = 0
        self.dropped = 0
        self._residency = residency
        self._waiting: deque[Cover | Forgetting] = deque()
        self._bytes = 0
        self._forgetting: Counter[tuple[str, str]] = Counter()  # how many wait, of each pool
        self._changed = threading.Condition()
        self._stopped = self._busy = False
        self._thread = threading.Thread(target=self._run, name="contextpilot-covers", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End, and wait for it; what waits is let go."""
        with self._changed:
            self._stopped = True
            self._waiting.clear()
            self._changed.notify_all()
        if self._thread.is_alive():
            self._thread.join(_ENDING)

    def put(self, cover: Cover) -> bool:
        """Have one taken in; whether there was room for it. Returns at once."""
        with self._changed:
            if self._stopped or self._bytes + cover.size > MOST_BYTES:
                self.dropped += 1
                return False
            self._bytes += cover.size
            self._waiting.append(cover)
            self._changed.notify_all()
        return True

    def forget(self, forgetting: Forgetting) -> Forgetting | None:
        """Have what came before of a namespace, or a pool, forgotten. Returns at once.

        Returns:
            What is forgotten: of a pool of which very much waits to be forgotten, all; None: that waits already.
        """
        with self._changed:
            if self._stopped:
                return None
            if self._forgetting[forgetting.kind, forgetting.name] >= MOST_FORGETTING:
                forgetting = Forgetting(forgetting.kind, forgetting.name, None)
                if forgetting in self._waiting:
                    return None
            self._forgetting[forgetting.kind, forgetting.name] += 1
            self._waiting.append(forgetting)
            self._changed.notify_all()
        return forgetting

    def drained(self, timeout: float) -> bool:
        """Wait until nothing waits here, for tests."""
        with self._changed:
            return self._changed.wait_for(lambda: self._stopped or not (self._waiting or self._busy), timeout)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._busy = False
                self._changed.notify_all()
                self._changed.wait_for(lambda: self._stopped or self._waiting)
                if self._stopped:
                    return
                self._busy, job = True, self._waiting.popleft()
                self._took(job)
            try:
                self._do(job)
            except Exception:
                logger.exception("what a client told of a prompt's place could not be taken in")

    def _took(self, job: Cover | Forgetting) -> None:
        """It waits no longer."""
        if isinstance(job, Cover):
            self._bytes -= job.size
            return
        pool = (job.kind, job.name)
        self._forgetting[pool] -= 1
        if not self._forgetting[pool]:
            del self._forgetting[pool]

    def _do(self, job: Cover | Forgetting) -> None:
        if isinstance(job, Forgetting):
            self._residency.forget(job)
            return
        told = job.told
        keys, contents = _digests(told.keys), _digests(told.contents)
        if len(set(keys)) < len(keys):
            self.dropped += 1
            return
        covering = Covering(keys, contents, tuple(told.ends), told.tokens, told.block_size)
        self._residency.cover_space(job.space, job.salt, job.blocks, covering, job.engine, told.cached_tokens)
        self.taken += 1


def _digests(raw: bytes) -> tuple[bytes, ...]:
    return tuple([raw[at : at + DIGEST] for at in range(0, len(raw), DIGEST)])
