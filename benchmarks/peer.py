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


def order_offline(contexts: Sequence[Sequence[str]]) -> tuple[list[int], list[list[str]], float, float]:
    """What the peer makes of contexts that are all known.

    Args:
        contexts: the block ids of each request, best first, without repeats.

    Returns:
        The positions of the contexts in its order of sending, their orders, the seconds that it took and the megabytes
        that its process took at most.

    Raises:
        RuntimeError: it lost or changed something.
    """
    result = subprocess.run(
        [str(environment()), __file__, "offline"],
        input=json.dumps(contexts),
        capture_output=True,
        text=True,
        check=True,
    )
    answer = json.loads(result.stdout.splitlines()[-1])
    sending, orders = answer["sending"], answer["orders"]
    if sorted(sending) != list(range(len(contexts))) or any(
        sorted(order) != sorted(contexts[position]) for position, order in zip(sending, orders, strict=True)
    ):
        raise RuntimeError("the peer's plan is no order of these contexts")
    return sending, orders, answer["seconds"], answer["megabytes"]


def _drive_offline() -> None:
    """Runs in the peer's environment."""
    import resource

    contexts = json.load(sys.stdin)
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        from contextpilot import ContextPilot  # type: ignore[import-not-found]

        started = time.perf_counter()
        orders, sending = ContextPilot(use_gpu=False).reorder([list(context) for context in contexts])
        seconds = time.perf_counter() - started
    megabytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (2**20 if sys.platform == "darwin" else 2**10)
    print(json.dumps({"orders": orders, "sending": sending, "seconds": seconds, "megabytes": megabytes}))


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
    if sys.argv[1:] == ["offline"]:
        _drive_offline()
    else:
        _drive()
