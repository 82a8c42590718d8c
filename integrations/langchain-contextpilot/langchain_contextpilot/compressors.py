"""ContextPilotCompressor: the last compressor of a `ContextualCompressionRetriever`, or of a pipeline in one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from contextpilot_rag import Namespace
from langchain_core.callbacks import BaseCallbackManager, Callbacks
from langchain_core.documents import BaseDocumentCompressor, Document
from langchain_core.runnables import ensure_config
from pydantic import ConfigDict

from ._piloted import Piloted


class ContextPilotCompressor(Piloted, BaseDocumentCompressor):
    """Puts documents into the order that the engine's prefix cache can reuse. Nothing is dropped but repeats.

    Whatever sorts or filters goes before it. Documents are marked as by `ContextPilotRetriever`.

    Args:
        pilot: see `Piloted`, as for all other settings.

    Raises:
        SettingsError: an unknown setting, index or namespace, or a value that a setting cannot have; for a request a
            namespace that is none.

    >>> compressor = ContextPilotCompressor()
    >>> twice = [Document("Slices count from zero.", id="a"), Document("Slices count from zero.", id="b")]
    >>> [document.metadata for document in compressor.compress_documents(twice, "Where do slices start?")]
    [{'contextpilot': {'rank': 0, 'label': 1, 'hint': False, 'duplicates': [{'id': 'b', 'metadata': {}}]}}]
    """

    model_config: ClassVar[ConfigDict] = ConfigDict(validate_assignment=True)

    def compress_documents(
        self, documents: Sequence[Document], query: str, callbacks: Callbacks | None = None
    ) -> Sequence[Document]:
        """The documents, each text once.

        Args:
            documents: best first. They are not changed.
            query: the question.
            callbacks: a manager's metadata may have a ``contextpilot_namespace``.
        """
        return self._place(documents, query, self._named(callbacks))

    async def acompress_documents(
        self, documents: Sequence[Document], query: str, callbacks: Callbacks | None = None
    ) -> Sequence[Document]:
        """As `compress_documents`, awaiting the index."""
        return await self._aplace(documents, query, self._named(callbacks))

    def _named(self, callbacks: Callbacks | None) -> Namespace | str | None:
        metadata = callbacks.metadata if isinstance(callbacks, BaseCallbackManager) else None
        config = ensure_config()  # of the chain that this runs in
        return self._space(config.get("configurable"), metadata, config.get("metadata"))
