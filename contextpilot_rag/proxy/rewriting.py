"""What the proxy's two halves ask of each other: the one that knows HTTP, and the one that knows prompts."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, Protocol

from ..prompt.prompt import AlignedPrompt
from ..types import Usage
from .words import Api, Report, Wishes

Cloud = Literal["", "openai", "anthropic"]
"""Whose cloud an upstream is; empty: an engine, which knows ``cache_salt``."""


@dataclass(frozen=True, slots=True)
class Call:
    """A request that may be rewritten.

    Args:
        api: its format.
        raw: its whole body.
        tenant: who asks; only requests of one tenant share anything.
        wishes: of its headers.
        cloud: whose the upstreams are.
    """

    api: Api
    raw: bytes
    tenant: str = ""
    wishes: Wishes = field(default_factory=Wishes)
    cloud: Cloud = ""


@dataclass(frozen=True, slots=True)
class Outcome:
    """A request as it is to be forwarded.

    Args:
        body: all of it; the very one that came, where nothing was to be done.
        report: what was done.
        engine: the name of the upstream that it should go to; None: any.
        alignment: to be observed once it is answered; None: nothing was aligned.
        chain: stands for the conversation so far; empty: it is none.
        tokens: of its prompt, about; 0: not known.
        beginning: stands for how its prompt begins, where others may begin so, too; empty: nothing is known of that.
        tenant: whose it is.
    """

    body: bytes
    report: Report = field(default_factory=Report)
    engine: str | None = None
    alignment: AlignedPrompt | None = field(default=None, repr=False)
    chain: bytes = b""
    tokens: int = 0
    beginning: bytes = b""
    tenant: str = ""


class Rewriting(Protocol):
    """The half that knows prompts. Its methods are called in one event loop."""

    async def rewrite(self, call: Call) -> Outcome:
        """A request as it is to be forwarded. What fails inside is counted, and the body passes as it is.

        Raises:
            Unusable: what the client asked for, by its body's ``contextpilot`` field, cannot be done, and to forward
                the rest would lose its blocks; or its tenant cannot be kept apart in it: there is no place for a
                salt, or one of the client's own.
            Busy: its tenant's salt is not known at present.
        """
        ...

    def salt(self, tenant: str) -> str | None:
        """The ``cache_salt`` that requests of a tenant carry which are not looked into; None: they carry none."""
        ...

    async def answered(self, outcome: Outcome, usage: Usage | None, engine: str | None) -> None:
        """It was answered. Never raises.

        Args:
            outcome: what `rewrite` returned.
            usage: as the answer reports it; None: it does not.
            engine: the name of the upstream that answered.
        """
        ...

    def failed(self, outcome: Outcome) -> None:
        """It was not answered, and will not be. Never raises."""
        ...
