"""Who asks: from an Authorization header to a tenant."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks.

    Args:
        tenant: whose index it is.
        operator: may see all tenants' figures, and act on shared corpora.
        rate: requests a second, where it is not the service's.
    """

    tenant: str = ""
    operator: bool = False
    rate: float | None = None


class Gate(Protocol):
    """Decides who may ask."""

    @property
    def sharing(self) -> Mapping[str, frozenset[str]]:
        """Corpora that several tenants share, and which."""
        ...

    def identify(self, authorization: str | None) -> Caller:
        """Who sent this header.

        Raises:
            Unauthorized: nobody that is known.
        """
        ...


class OpenGate:
    """No keys: everybody who reaches the address is the one tenant without a name."""

    sharing: Mapping[str, frozenset[str]] = {}

    def identify(self, authorization: str | None) -> Caller:  # noqa: ARG002
        """The one tenant."""
        return Caller(operator=True)
