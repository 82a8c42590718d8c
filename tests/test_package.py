"""The package as a whole: what it exports, what importing it costs, and the house's rules that no linter knows."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import contextpilot_rag

ROOT = Path(contextpilot_rag.__file__).parent
MODULES = sorted(ROOT.rglob("*.py"))
# From DESIGN's map: who may import whom. A room imports only what stands to its left.
FLOORS = (
    "errors deprecation forking failing types batch _version checking settings identity tokens dedup intake index "
    "prompt quality expand conversation remote replicas engines retrieval waiting deciding asking choosing run_options "
    "results sending learning upkeep pilot async_pilot adapter trace replay evaluation batches service proxy"
).split()
HEAVY = tuple(
    "openai scipy faiss rank_bm25 matplotlib rich starlette uvicorn pydantic tqdm tenacity httpcore jinja2 "
    "prometheus_client opentelemetry zmq redis ray".split()
)


def floor(module: Path) -> str:
    return module.relative_to(ROOT).parts[0].removesuffix(".py")


def imports(module: Path) -> list[str]:
    """The rooms of this package that a module imports."""
    depth = len(module.relative_to(ROOT).parts)
    rooms = []
    for node in ast.walk(ast.parse(module.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.level == depth:
            rooms.extend([node.module.split(".")[0]] if node.module else [alias.name for alias in node.names])
    return rooms


def test_all_is_sorted_and_complete():
    assert contextpilot_rag.__all__ == sorted(contextpilot_rag.__all__)
    for name in contextpilot_rag.__all__:
        assert hasattr(contextpilot_rag, name)


@pytest.mark.parametrize("use", ["pass", "contextpilot_rag.ContextPilot().align(['x'], '?').messages('s')"])
def test_importing_and_aligning_load_nothing_heavy(use):
    code = f"import sys, contextpilot_rag; {use}; print([name for name in {HEAVY!r} if name in sys.modules])"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.relative_to(ROOT).as_posix())
def test_nothing_imports_upwards(module):
    own = floor(module)
    if own not in FLOORS:
        return  # cli, demo, testing: the top of the house may use all of it
    for room in imports(module):
        assert room in FLOORS, f"{own} imports {room}"
        assert FLOORS.index(room) <= FLOORS.index(own), f"{own} imports {room}, which stands above it"


@pytest.mark.parametrize("folder", ["index", "prompt", "dedup", "conversation"])
def test_pure_rooms_do_no_input_or_output_and_read_no_clock(folder):
    for module in (ROOT / folder).rglob("*.py"):
        for node in ast.walk(ast.parse(module.read_text(encoding="utf-8"))):
            names = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.level == 0:
                in_memory = node.module == "io" and {alias.name for alias in node.names} <= {"StringIO", "SEEK_END"}
                names = [] if in_memory else [node.module or ""]
            assert not {"time", "datetime", "os", "io", "socket", "pathlib", "random"} & set(names), module


def test_only_the_command_line_prints():
    for module in MODULES:
        if floor(module) in {"cli", "demo"}:
            continue
        calls = [node for node in ast.walk(ast.parse(module.read_text(encoding="utf-8"))) if isinstance(node, ast.Call)]
        assert not [call for call in calls if isinstance(call.func, ast.Name) and call.func.id == "print"], module
