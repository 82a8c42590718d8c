"""The published peer (PyPI ``contextpilot``) in an environment of its own: made once, spoken to over pipes.

This file is both sides: imported, it is ours; run by the peer's Python, it is the driver there.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

VERSION = "0.5.0"
ENVIRONMENT = Path(__file__).resolve().parent.parent / ".venv-peer"
# Its ordering needs only these; the rest of its dependencies (transformers, ...) are gigabytes that it never touches.
NEEDS = ("numpy", "scipy", "tqdm")


def environment() -> Path:
    """The peer's Python; installs it on first use.

    Raises:
        subprocess.CalledProcessError: it cannot be installed.
    """
    python = ENVIRONMENT / ("Scripts" if os.name == "nt" else "bin") / "python"
    if not (ENVIRONMENT / ".ready").exists():
        subprocess.run([sys.executable, "-m", "venv", str(ENVIRONMENT)], check=True)
        pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, *NEEDS], check=True)
        subprocess.run([*pip, "--no-deps", f"contextpilot=={VERSION}"], check=True)
        (ENVIRONMENT / ".ready").touch()
    return python


def order_online(contexts: Sequence[Sequence[str]]) -> tuple[list[list[str]], int, float]:
    """What the peer makes of contexts that come one after another.

    Args:
        contexts: the block ids of each request, best first, without repeats.

    Returns:
        Its orders (as retrieved where it failed), how often it failed (raised, or gave back another set of blocks), and
        the mean time of a call in microseconds.
    """
    result = subprocess.run(
        [str(environment()), __file__], input=json.dumps(contexts), capture_output=True, text=True, check=True
    )
    answer = json.loads(result.stdout.splitlines()[-1])
    return answer["orders"], answer["failed"], answer["microseconds"]


def _drive() -> None:
    """Runs in the peer's environment."""
    contexts = json.load(sys.stdin)
    silence = io.StringIO()
    orders, failed, seconds = [], 0, 0.0
    with contextlib.redirect_stdout(silence):
        from contextpilot import ContextPilot  # type: ignore[import-not-found]

        pilot = ContextPilot(use_gpu=False)
        for context in contexts:
            started = time.perf_counter()
            try:
                order = pilot.reorder(list(context))[0]
            except Exception:  # noqa: BLE001  whatever it raises, the request has to go out
                order = context
                failed += 1
            seconds += time.perf_counter() - started
            order = order[0] if order and isinstance(order[0], list) else list(order)
            if sorted(order) != sorted(context):
                order = context
                failed += 1
            orders.append(order)
            silence.seek(0)
            silence.truncate()
    print(json.dumps({"orders": orders, "failed": failed, "microseconds": 1e6 * seconds / max(1, len(contexts))}))


if __name__ == "__main__":
    _drive()
