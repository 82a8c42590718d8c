"""The package: what it exports, that it is light to import, and that nothing is asked of anybody outside."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import mem0_contextpilot

FOLDER = Path(__file__).parents[1]


def test_what_is_exported():
    assert sorted(mem0_contextpilot.__all__) == mem0_contextpilot.__all__
    public = {
        name for name, value in vars(mem0_contextpilot).items() if getattr(value, "__module__", "").startswith("mem0_")
    }
    assert public == set(mem0_contextpilot.__all__) - {"__version__"}
    assert version("mem0-contextpilot") == mem0_contextpilot.__version__
    assert (FOLDER / "mem0_contextpilot" / "py.typed").exists()


def test_importing_it_imports_neither_mem0_nor_openai():
    program = "import sys, mem0_contextpilot; print({'mem0', 'openai', 'faiss', 'scipy'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "set()\n"


def test_files_stay_short():
    for file in [*FOLDER.glob("*/*.py"), FOLDER / "conftest.py"]:
        assert len(file.read_text(encoding="utf-8").splitlines()) < 400, file


def test_what_mem0_needs_to_be_like(filled):
    """The interface that is relied on, in the version that is installed."""
    import inspect

    from mem0 import AsyncMemory, Memory, MemoryClient
    from mem0.reranker.base import BaseReranker

    assert [inspect.iscoroutinefunction(kind.search) for kind in (Memory, MemoryClient, AsyncMemory)] == [0, 0, 1]
    own = inspect.signature(BaseReranker.rerank).parameters
    ours = inspect.signature(mem0_contextpilot.ContextPilotReranker.rerank).parameters
    assert list(own) == list(ours)
    assert hasattr(filled, "vector_store")
    assert not hasattr(MemoryClient, "vector_store")
