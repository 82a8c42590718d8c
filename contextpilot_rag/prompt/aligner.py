"""What everybody who aligns in two steps asks of a pilot: check now, decide later."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import TYPE_CHECKING, Protocol

from ..intake import BlockLike
from ..settings import RequestOptions
from ..types import Namespace
from .prompt import AlignedPrompt

if TYPE_CHECKING:
    from typing_extensions import Unpack


class Aligner(Protocol):
    """The two halves of `ContextPilot.align`."""

    def prepare(
        self,
        blocks: Iterable[BlockLike],
        question: str = "",
        *,
        namespace: Namespace | str | None = None,
        key: Hashable = None,
        system: str | None = None,
        **options: Unpack[RequestOptions],
    ) -> AlignedPrompt:
        """Check and count a request's blocks; the order is the retriever's."""
        ...

    def decide(self, prepared: AlignedPrompt) -> AlignedPrompt:
        """Choose the order of a prepared request and take it as about to be sent."""
        ...
