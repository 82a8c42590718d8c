"""vLLM on the CPU with SmolLM2-135M-Instruct, for benchmarks/quality.py: from what `make test-engines` installs."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
PYTHON = ROOT / ".venv-engines" / "bin" / "python"
MODEL = ROOT / "build" / "smollm2"
START_SECONDS = 300.0
LIFE_SECONDS = 6 * 3600  # a server whose benchmark was killed ends by itself
NEEDED = "vLLM is missing: run make test-engines once, or name an engine that runs: --endpoint URL --model NAME"


@contextmanager
def started(name: str, port: int) -> Iterator[str]:
    """An engine that serves until the block ends; its address.

    Args:
        name: of the model, as requests name it.
        port: where it listens.
    """
    if not PYTHON.exists():
        sys.exit(NEEDED)
    _make_model()
    with tempfile.TemporaryDirectory(prefix="quality-") as folder:
        log = Path(folder, "log")
        with log.open("wb") as out:
            running = subprocess.Popen(
                ["/usr/bin/env", "timeout", "--signal=KILL", str(LIFE_SECONDS), *_command(name, port)],
                env={**os.environ, **_environment(folder)},
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        try:
            _until_healthy(running, port, log)
            yield f"http://127.0.0.1:{port}"
        finally:
            os.killpg(running.pid, 9)
            running.wait(30)


def _make_model() -> None:
    if not (MODEL / "model.safetensors").exists():
        code = f"import engines_models, pathlib; engines_models.made('smollm2', pathlib.Path({str(MODEL.parent)!r}))"
        subprocess.run([str(PYTHON), "-c", code], env={**os.environ, "PYTHONPATH": str(HERE)}, check=True)


def _command(name: str, port: int) -> list[str]:
    switches = ["enforce-eager", "enable-prefix-caching", "enable-prompt-tokens-details", "disable-uvicorn-access-log"]
    options = {
        "--model": MODEL,
        "--served-model-name": name,
        "--host": "127.0.0.1",
        "--port": port,
        "--dtype": "bfloat16",
        "--block-size": 32,
        "--max-model-len": 8192,
        "--max-num-batched-tokens": 8192,
        "--max-num-seqs": 32,
    }
    command = [str(PYTHON), "-m", "vllm.entrypoints.openai.api_server", *(f"--{switch}" for switch in switches)]
    return command + [str(part) for option in options.items() for part in option]


def _environment(folder: str) -> dict[str, str]:
    openmp = PYTHON.parent.parent / "lib" / "libiomp5.so"
    return {
        "HF_HUB_OFFLINE": "1",
        "VLLM_CPU_OMP_THREADS_BIND": ",".join(map(str, sorted(os.sched_getaffinity(0)))),
        "VLLM_CPU_KVCACHE_SPACE": "8",
        "VLLM_CACHE_ROOT": f"{folder}/cache",
        "VLLM_CONFIG_ROOT": f"{folder}/config",
        "VLLM_NO_USAGE_STATS": "1",
        **({"LD_PRELOAD": str(openmp)} if openmp.exists() else {}),
    }


def _until_healthy(running: subprocess.Popen[bytes], port: int, log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while True:
        try:
            with urlopen(f"http://127.0.0.1:{port}/health", timeout=5):
                return
        except (URLError, OSError):
            if running.poll() is not None or time.monotonic() > deadline:
                end = "\n".join(log.read_text(errors="replace").splitlines()[-30:])
                sys.exit(f"vLLM did not start; the end of its log:\n{end}")
            time.sleep(0.5)
