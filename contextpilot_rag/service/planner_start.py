"""The first thing that a plan's process does: leave the processor to those who are waited for. Run as a file.

Only then does it import anything, this package above all: that alone would hold up others for half a second.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress

STEP = 5  # in niceness; one while who sent the batch waits for an answer, another when nobody does


def step_back(niceness: int) -> None:
    """Let others go first where the processor is short.

    Args:
        niceness: after this step, of a session that had none.
    """
    if hasattr(os, "nice"):
        os.nice(STEP)
    with suppress(OSError):
        _tell("autogroup", niceness)


def step_aside() -> None:
    """Take nothing from what the service is given, and be the first to go where memory runs out.

    Linux shares the processor out between sessions before it looks at processes: so this one has a session of its own,
    and takes nothing from the service's share. What its terminal tells the service is then nothing to this, either.
    """
    if hasattr(os, "setsid"):
        os.setsid()
    with suppress(OSError):
        _tell("oom_score_adj", 1000)


def _tell(name: str, value: int) -> None:
    with open(f"/proc/self/{name}", "w", encoding="ascii") as file:  # noqa: PTH123
        file.write(str(value))


if __name__ == "__main__":
    step_aside()
    step_back(STEP)
    import json

    sys.path[:] = json.loads(sys.argv[1])
    from contextpilot_rag.service.planner import main

    main()
