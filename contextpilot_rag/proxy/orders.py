"""Orders: what the pilot's index is asked and told about the blocks that stand first in a prompt."""

from __future__ import annotations

from dataclasses import replace

from ..async_pilot import AsyncContextPilot
from ..prompt.prompt import AlignedPrompt
from ..types import Rule
from ..waiting import AlignmentWindow

# Reasons for an order that nobody chose now.
AGAIN = "as when it was first sent"
FORGOTTEN = "it was sent before, and nothing is remembered of that: as retrieved"


class Orders:
    """Asks a pilot's index. Whatever fails there, blocks go out as they were prepared.

    Args:
        pilot: whose index it is.
        window: lets requests wait for a better order of sending; None: none waits.
    """

    def __init__(self, pilot: AsyncContextPilot, window: AlignmentWindow | None = None) -> None:
        self.pilot = pilot
        self._window = window

    async def chosen(self, prepared: AlignedPrompt) -> AlignedPrompt:
        """A prompt in the order that the index chooses, when its turn has come."""
        if self._window is None:
            return await self._decided(prepared)
        return await self._window.decide(prepared)

    async def again(self, prepared: AlignedPrompt, engine: str | None) -> AlignedPrompt:
        """A prompt in an order that was decided before; the index hears that it is used once more.

        Args:
            prepared: in that order, and to be kept in it.
            engine: where its conversation is; None: anywhere.
        """
        pilot = self.pilot.blocking
        if engine is None or len(pilot.engines) < 2:
            return await self._decided(prepared)
        # A conversation stays where it is: more than its blocks is cached there.
        kept = replace(prepared, engine=engine, rule=Rule.CONVERSATION)
        try:
            await pilot.asker.asent(kept)
        except Exception as error:  # noqa: BLE001  fails open: it is only about what is believed cached
            pilot.asker.failures.note(error, "sent")
        return kept

    async def _decided(self, prepared: AlignedPrompt) -> AlignedPrompt:
        try:
            return await self.pilot.blocking.asker.adecide(prepared)
        except Exception:  # noqa: BLE001  fails open; a pilot that is to raise has noted it before it did
            return prepared
