"""The package: a namespace that many share, its names, its versions."""

from __future__ import annotations

import subprocess
import sys
from importlib import metadata
from pathlib import Path

import llama_index.postprocessor.contextpilot as package

FOLDER = Path(__file__).parent.parent


def test_it_shares_its_namespaces():
    assert not (FOLDER / "llama_index" / "__init__.py").exists()
    assert not (FOLDER / "llama_index" / "postprocessor" / "__init__.py").exists()
    assert (FOLDER / "llama_index" / "postprocessor" / "contextpilot" / "py.typed").exists()


def test_all_names_are_there_and_documented():
    assert sorted(package.__all__, key=lambda name: (not name.isupper(), name)) == package.__all__
    for name in package.__all__:
        value = getattr(package, name)
        assert name.isupper() or value.__doc__


def test_it_needs_its_framework_and_nothing_else():
    found = metadata.requires("llama-index-postprocessor-contextpilot")
    needed = sorted(line.split(">")[0] for line in found if "extra" not in line)
    assert [line.split("<")[0].strip() for line in needed] == ["contextpilot-rag", "llama-index-core"]


def test_importing_it_prints_nothing_and_asks_no_network():
    code = (
        "import socket\n"
        "def refuse(*_): raise AssertionError('network')\n"
        "socket.socket.connect = refuse\n"
        "from llama_index.postprocessor.contextpilot import ContextPilotPostprocessor\n"
        "ContextPilotPostprocessor().postprocess_nodes([])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (0, "")
    assert "contextpilot" not in done.stderr  # an old llama-index warns of a new pydantic


def test_files_are_short():
    for file in FOLDER.rglob("*.py"):
        assert len(file.read_text(encoding="utf-8").splitlines()) < 400, file
