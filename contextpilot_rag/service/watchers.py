"""Who is told what the service did: metrics, the status page. They see names; what they show of them is theirs."""

from __future__ import annotations

from typing import Protocol

from ..types import Alignment, Namespace, Usage


class Watcher(Protocol):
    """Told after each act. Must be quick, and may raise nothing."""

    def aligned(self, tenant: str, alignment: Alignment, engine: str | None, again_tokens: int) -> None:
        """A request was aligned, or taken as sent.

        Args:
            tenant: whose.
            alignment: what was answered; it holds the request, with its namespace.
            engine: which engine it goes to, if the client says so.
            again_tokens: tokens of blocks that the conversation had been given before, and that a hint replaces.
        """
        ...

    def observed(self, tenant: str, alignment: Alignment, engine: str | None, usage: Usage) -> None:
        """Usage was reported for an alignment."""
        ...

    def forgot(self, tenant: str, namespace: Namespace | None) -> None:
        """A namespace, or all of a tenant, was forgotten."""
        ...
