"""AlignmentWindow: requests of an event loop that wait for their turn, the longest cached prefix first."""

from __future__ import annotations

import asyncio
from collections.abc import Hashable, Iterable
from typing import TYPE_CHECKING, Protocol

from .errors import SettingsError
from .index.window import Window
from .intake import BlockLike
from .prompt.aligner import Aligner
from .prompt.prompt import AlignedPrompt
from .settings import RequestOptions
from .types import Namespace

if TYPE_CHECKING:
    from typing_extensions import Unpack


class Decider(Aligner, Protocol):
    """The two halves of `ContextPilot.align`, and the question in between."""

    def predict(self, prepared: AlignedPrompt) -> int:
        """How much of it is cached now."""
        ...


class _Turn:
    """A request that waits, and the future that its caller waits for."""

    __slots__ = ("future", "prepared")

    def __init__(self, prepared: AlignedPrompt, future: asyncio.Future[AlignedPrompt]) -> None:
        self.prepared = prepared
        self.future = future


class AlignmentWindow:
    """Made by ``pilot.window()``; to be used with ``async with``, in one event loop.

    A request is given its order when its turn comes: when more wait than the window is wide, or when it has waited long
    enough. At the end of the ``async with`` all that still wait get their turn.

    Args:
        pilot: decides the orders.
        size: how many wait before one has to go.
        max_wait: seconds that a request waits at most.
        max_overtaken: how often a request may be overtaken; None: four times the size.
    """

    def __init__(self, pilot: Decider, size: int, max_wait: float, max_overtaken: int | None = None) -> None:
        self._pilot = pilot
        if max_wait is None:
            raise SettingsError("a window of waiting requests needs a max_wait, in seconds")
        self._window: Window[_Turn] = Window(size, max_overtaken, max_wait)
        self._timer: asyncio.TimerHandle | None = None

    async def __aenter__(self) -> AlignmentWindow:
        return self

    async def __aexit__(self, *_: object) -> None:
        while len(self._window):
            self._release()
        if self._timer is not None:
            self._timer.cancel()

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
        **options: Unpack[RequestOptions],
    ) -> AlignedPrompt:
        """As `ContextPilot.align`, after waiting for this request's turn. Who is cancelled gives up the turn."""
        prepared = self._pilot.prepare(blocks, question, namespace=namespace, key=key, **options)
        loop = asyncio.get_running_loop()
        turn = _Turn(prepared, loop.create_future())
        self._window.add(turn, loop.time())
        if self._window.full:
            self._release()
        self._wake_at_due()
        try:
            return await turn.future
        except asyncio.CancelledError:
            self._window.discard(turn)
            raise

    def _release(self) -> None:
        turn = self._window.pop(
            lambda waiting: self._pilot.predict(waiting.prepared), asyncio.get_running_loop().time()
        )
        if turn.future.done():  # given up a moment ago
            return
        try:
            turn.future.set_result(self._pilot.decide(turn.prepared))
        except Exception as error:  # noqa: BLE001  it belongs to the one who asked, not to whose arrival triggered it
            turn.future.set_exception(error)

    def _release_due(self) -> None:
        self._timer = None
        now = asyncio.get_running_loop().time()
        while (due := self._window.due_at()) is not None and due <= now:
            self._release()
        self._wake_at_due()

    def _wake_at_due(self) -> None:
        due = self._window.due_at()
        if due is not None and self._timer is None:
            self._timer = asyncio.get_running_loop().call_at(due, self._release_due)
