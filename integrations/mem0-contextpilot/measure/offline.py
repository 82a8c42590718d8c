"""Mem0 without anything outside this machine: its embedded vector stores, and an embedding that needs no download.

Import this before ``mem0``: some of its settings are read when it is imported.
"""

from __future__ import annotations

import inspect
import os
import tempfile
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

os.environ["MEM0_TELEMETRY"] = "False"
os.environ.setdefault("MEM0_DIR", tempfile.mkdtemp(prefix="mem0-"))

from contextpilot_rag.retrieval import LsaEmbedding

if TYPE_CHECKING:
    from mem0 import AsyncMemory, Memory

DIMENSIONS = 48


class Embedder:
    """An embedding in the form that Mem0 asks for, fitted to the memories that are to be stored.

    Args:
        texts: the memories.
    """

    def __init__(self, texts: Sequence[str]) -> None:
        self._embedding = LsaEmbedding(texts, DIMENSIONS)

    def embed(self, text: str, memory_action: str | None = None) -> list[float]:
        """The vector of a text, `DIMENSIONS` long."""
        return self.embed_batch([text], memory_action)[0]

    def embed_batch(self, texts: Sequence[str], memory_action: str | None = None) -> list[list[float]]:  # noqa: ARG002
        """The vectors of texts."""
        vectors = self._embedding([text or "?" for text in texts]).tolist()
        return [vector + [0.0] * (DIMENSIONS - len(vector)) for vector in vectors]


def config(folder: Path, store: str = "faiss") -> dict[str, Any]:
    """Mem0's configuration: everything in a folder, no address but one where nothing answers."""
    options: dict[str, Any] = {
        "collection_name": "memories",
        "path": str(folder / "store"),
        "embedding_model_dims": DIMENSIONS,
    }
    options.update({"distance_strategy": "cosine"} if store == "faiss" else {"on_disk": True})
    nowhere = {"openai_base_url": "http://127.0.0.1:9/v1", "api_key": "none"}
    return {
        "vector_store": {"provider": store, "config": options},
        "llm": {"provider": "openai", "config": nowhere},
        "embedder": {"provider": "openai", "config": nowhere},
        "history_db_path": str(folder / "history.db"),
    }


@contextmanager
def offline_memory(folder: Path, texts: Sequence[str], store: str = "faiss") -> Iterator[Memory]:
    """An empty ``mem0.Memory`` whose embedding is fitted to these texts."""
    from mem0 import Memory

    memory = Memory.from_config(config(folder, store))
    memory.embedding_model = Embedder(texts)
    with closing(memory):
        yield memory


@asynccontextmanager
async def offline_async_memory(folder: Path, texts: Sequence[str], store: str = "faiss") -> AsyncIterator[AsyncMemory]:
    """As `offline_memory`, an ``mem0.AsyncMemory``."""
    from mem0 import AsyncMemory

    made: Any = AsyncMemory.from_config(config(folder, store))
    memory: AsyncMemory = await made if inspect.isawaitable(made) else made
    memory.embedding_model = Embedder(texts)
    with closing(memory):
        yield memory
