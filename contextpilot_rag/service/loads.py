"""Loads: how many bytes of requests a tenant may have on their way at a time. Rates count, these weigh."""

from __future__ import annotations

from .problems import TooMany
from .settings import ServiceSettings

_BODIES = 16  # of the longest that there may be
_PLANS = 2


class Loads:
    """Bytes of bodies that are being read or worked on, by tenant; those of plans are counted apart.

    A body weighs what its head says, or, where that says nothing, as much as it could.

    Args:
        settings: how long bodies may be.

    >>> loads = Loads(ServiceSettings(max_body=10))
    >>> loads.take("acme", 160)
    >>> loads.take("globex", 10)
    >>> loads.take("acme", 1)
    Traceback (most recent call last):
    contextpilot_rag.service.problems.TooMany: 160 bytes of bodies are on their way; one more of 1 is too many
    """

    def __init__(self, settings: ServiceSettings) -> None:
        self._most = {False: _BODIES * settings.max_body, True: _PLANS * settings.max_plan_body}
        self._held: dict[tuple[str, bool], int] = {}

    def __len__(self) -> int:
        return len(self._held)

    def take(self, tenant: str, size: int, *, long: bool = False) -> None:
        """Count a body that comes now.

        Args:
            tenant: whose.
            size: bytes.
            long: it is a plan's.

        Raises:
            TooMany: the tenant has too many on their way; nothing was counted.
        """
        held = self._held.get((tenant, long), 0)
        if held + size > self._most[long]:
            raise TooMany(f"{held} bytes of bodies are on their way; one more of {size} is too many")
        self._held[tenant, long] = held + size

    def give_back(self, tenant: str, size: int, *, long: bool = False) -> None:
        """A body that was counted is done with."""
        held = self._held.pop((tenant, long), 0) - size  # not there: it weighed nothing, and another one ended
        if held:
            self._held[tenant, long] = held
