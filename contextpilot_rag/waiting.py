"""AlignmentWindow: requests of an event loop that wait for their turn, the longest cached prefix first."""

from __future__ import annotations

import asyncio
from collections.abc import Hashable, Iterable
from typing import TYPE_CHECKING, Protocol, cast

from .errors import SettingsError
from .index.local import LocalIndex
from .index.window import Window
from .intake import BlockLike
from .prompt.aligner import Aligner
from .prompt.prompt import AlignedPrompt
from .settings import RequestOptions
from .types import Namespace

if TYPE_CHECKING:
    from typing_extensions import Unpack

_RECENT_BLOCKS = 10_000
_RECENT_NAMESPACES = 100


class Decider(Aligner, Protocol):
    """The two halves of `ContextPilot.align`, and the question in between."""

    def predict(self, prepared: AlignedPrompt) -> int:
        """How much of it is cached now."""
        ...


class AwaitedDecider(Protocol):
    """The same, where the index is elsewhere."""

    async def adecide(self, prepared: AlignedPrompt) -> AlignedPrompt:
        """Choose the order of a prepared request and take it as about to be sent."""
        ...

    async def apredict(self, prepared: AlignedPrompt) -> int:
        """How much of it is cached now."""
        ...


class _Turn:
    """A request that waits, the future that its caller waits for, and what was cached of it when it came."""

    __slots__ = ("cached", "future", "prepared")

    def __init__(self, prepared: AlignedPrompt, future: asyncio.Future[AlignedPrompt], cached: int = 0) -> None:
        self.prepared = prepared
        self.future = future
        self.cached = cached


class AlignmentWindow:
    """Made by ``pilot.window()``; to be used with ``async with``, in one event loop.

    A request is given its order when its turn comes: when more wait than the window is wide, or when it has waited long
    enough. At the end of the ``async with`` all that still wait get their turn.

    Where the index is elsewhere, turns follow each other's answers, since each one's order depends on those before it;
    but who has waited long enough waits for no answer of another's.

    Args:
        pilot: decides the orders.
        size: how many wait before one has to go.
        max_wait: seconds that a request waits at most.
        max_overtaken: how often a request may be overtaken; None: four times the size.
        elsewhere: decides instead, where that is to be awaited. It is asked for each request once how much of it is
            cached, when it comes; what later turns make of that, the window works out itself.
    """

    def __init__(
        self,
        pilot: Decider,
        size: int,
        max_wait: float,
        max_overtaken: int | None = None,
        elsewhere: AwaitedDecider | None = None,
    ) -> None:
        self._pilot = pilot
        if max_wait is None:
            raise SettingsError("a window of waiting requests needs a max_wait, in seconds")
        self._window: Window[_Turn] = Window(size, max_overtaken, max_wait)
        self._timer: asyncio.TimerHandle | None = None
        self._elsewhere = elsewhere
        self._recent = LocalIndex(max_blocks=_RECENT_BLOCKS, max_namespaces=_RECENT_NAMESPACES)
        self._releasing: set[asyncio.Task[None]] = set()
        self._predicting: set[asyncio.Task[int]] = set()
        self._leaving = False

    async def __aenter__(self) -> AlignmentWindow:
        self._leaving = False
        return self

    async def __aexit__(self, *_: object) -> None:
        self._leaving = True
        self._go()
        while self._releasing or self._predicting:  # who is cancelled here leaves nobody waiting
            await asyncio.wait({*self._releasing, *self._predicting})
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def __len__(self) -> int:
        """How many wait."""
        return len(self._window)

    async def align(
        self,
        blocks: Iterable[BlockLike],
        question: str = "",
        *,
        namespace: Namespace | str | None = None,
        key: Hashable = None,
        system: str | None = None,
        **options: Unpack[RequestOptions],
    ) -> AlignedPrompt:
        """As `ContextPilot.align`, after waiting for this request's turn. Who is cancelled gives up the turn."""
        return await self.decide(
            self._pilot.prepare(blocks, question, namespace=namespace, key=key, system=system, **options)
        )

    async def decide(self, prepared: AlignedPrompt) -> AlignedPrompt:
        """The second half of `align`: the order of what ``pilot.prepare`` gave, after waiting for its turn."""
        loop = asyncio.get_running_loop()
        turn, came = _Turn(prepared, loop.create_future()), loop.time()
        if self._elsewhere is not None and self._window.size > 1 and self._window.max_wait:
            await self._predicted(turn, self._elsewhere)
        self._window.add(turn, came)
        self._go()
        try:
            return await turn.future
        except asyncio.CancelledError:
            self._window.discard(turn)
            raise

    def _go(self) -> None:
        """Release whoever has to go now, and see to it that the others are released when they are due."""
        loop = asyncio.get_running_loop()
        if self._elsewhere is None:
            while self._somebody_goes():
                self._release()
        else:
            while self._somebody_is_due() or (not self._releasing and self._somebody_goes()):
                self._release_elsewhere(self._elsewhere)
        due = self._window.due_at()
        if due is not None and self._timer is not None and self._timer.when() > due:
            self._timer.cancel()
            self._timer = None
        if due is not None and self._timer is None:
            self._timer = loop.call_at(due, self._at_due)

    def _release(self) -> None:
        turn = self._window.pop(lambda waiting: self._pilot.predict(waiting.prepared), self._now())
        if turn.future.done():  # given up a moment ago
            return
        try:
            turn.future.set_result(self._pilot.decide(turn.prepared))
        except Exception as error:  # noqa: BLE001  it belongs to the one who asked, not to whose arrival triggered it
            turn.future.set_exception(error)

    def _release_elsewhere(self, elsewhere: AwaitedDecider) -> None:
        turn = self._window.pop(self._cached, self._now())
        if not turn.future.done():
            self._releasing.add(asyncio.create_task(self._decided(turn, elsewhere)))

    async def _decided(self, turn: _Turn, elsewhere: AwaitedDecider) -> None:
        """Have an order chosen, hand it over, and let those go who waited for that."""
        try:
            decided = await elsewhere.adecide(turn.prepared)
            self._recent.sent(decided)
        except Exception as error:  # noqa: BLE001  it belongs to the one who asked
            if not turn.future.done():
                turn.future.set_exception(error)
        else:
            if not turn.future.done():
                turn.future.set_result(decided)
        finally:
            turn.future.cancel()  # which does nothing to one that has its answer
            self._releasing.discard(cast("asyncio.Task[None]", asyncio.current_task()))
        self._go()

    async def _predicted(self, turn: _Turn, elsewhere: AwaitedDecider) -> None:
        """Ask how much of a request is cached, and wait for that no longer than for its turn."""
        asked = asyncio.create_task(elsewhere.apredict(turn.prepared))
        self._predicting.add(asked)
        asked.add_done_callback(self._predicting.discard)
        try:
            await asyncio.wait({asked}, timeout=self._window.max_wait)
        except asyncio.CancelledError:
            asked.cancel()
            raise
        if asked.done():
            turn.cached = asked.result()

    def _at_due(self) -> None:
        self._timer = None
        self._go()

    def _somebody_goes(self) -> bool:
        return len(self._window) > 0 and (self._leaving or self._window.full or self._somebody_is_due())

    def _somebody_is_due(self) -> bool:
        due = self._window.due_at()
        return due is not None and due <= self._now()

    def _cached(self, turn: _Turn) -> int:
        return max(turn.cached, self._recent.predict(turn.prepared.request))

    def _now(self) -> float:
        return asyncio.get_running_loop().time()
