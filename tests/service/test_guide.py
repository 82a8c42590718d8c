"""The guide's examples, run as they stand there."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.service.harness import serving

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "service.md"


def examples():
    """The shell blocks that ask the service something, in their order."""
    blocks = re.findall(r"```sh\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL)
    return [block for block in blocks if "curl" in block]


@pytest.mark.skipif(shutil.which("curl") is None, reason="the guide's examples need curl")
def test_all_examples_work_as_they_stand_there(tmp_path):
    assert len(examples()) == 4
    with serving() as served:
        script = "\n".join(["set -e", *examples()]).replace("http://127.0.0.1:8765", served.address)
        script = script.replace("curl -s ", "curl -sS --fail-with-body --max-time 30 -w '\\n' ")
        done = subprocess.run(
            ["bash", "-c", script], check=False, cwd=tmp_path, capture_output=True, text=True, timeout=100
        )
    assert done.returncode == 0, done.stdout + done.stderr
    first, second, observed, talk, plan = [json.loads(line) for line in done.stdout.splitlines() if line]
    shown = re.search(r"```json\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL)
    assert shown is not None
    assert second == json.loads(shown[1]) | {"ticket": second["ticket"]}
    assert first["order"] == [0, 1]
    assert observed == {"counted": True}
    assert talk["labels"] == [3, 2]
    assert talk["location_hints"] == {"2": "(given above)"}
    assert [alignment["key"] for alignment in plan["alignments"]] == ["q1", "q3", "q2"]
