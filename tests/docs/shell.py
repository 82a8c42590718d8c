"""The documentation's shell commands, run by a real bash in which some programs only note how they were called.

What would install packages, start servers or change machines is noted, and its arguments are checked. All else runs.
"""

from __future__ import annotations

import doctest
import json
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from scripts.docs_pages import BlockFailed, CodeBlock

ROOT = Path(__file__).resolve().parents[2]
NOTED = (
    *("pip", "make", "docker", "kubectl", "sudo", "vllm", "gunicorn", "valkey-server", "redis-server", "systemctl"),
    *("git", "helm", "apt", "apt-get"),
)
# How a program was called, as a file of its own: several may be called at once.
_NOTE = """
import json, os, sys, time
ours = {name: value for name, value in os.environ.items() if name.startswith("CONTEXTPILOT_")}
with open(os.path.join(os.environ["NOTES"], f"{time.time_ns()}-{os.getpid()}"), "w") as note:
    json.dump([sys.argv[1], sys.argv[2:], ours], note)
"""
_STAND_IN = """#!/usr/bin/env bash
me=${0##*/}
note() { exec "$PYTHON" -ISc "$NOTE" "$me" "$@"; }
case "$me $1 " in
    "contextpilot-rag serve "* | "contextpilot-rag proxy "* | "contextpilot-rag demo "*) note "$@" ;;
    "contextpilot-rag plan "*) case " $* " in *" --ray"*) note "$@" ;; esac ;;
    "contextpilot-rag "*) ;;
    python*" -i "* | python*" -m "*) note "$@" ;;
    python*" examples/"*) note "$@" ;;
    python* | "curl "*) ;;
    "sudo tee "*) cat > /dev/null; note "$@" ;;
    *) note "$@" ;;
esac
case "$me" in
    contextpilot-rag) exec "$PYTHON" -m contextpilot_rag "$@" ;;
    python*) exec "$PYTHON" "$@" ;;
    curl) exec "$CURL" --no-progress-meter --fail-with-body --max-time 30 "$@" ;;
esac
"""


@dataclass(frozen=True, slots=True)
class Call:
    """How a program was called that only noted it.

    Args:
        program: its name.
        arguments: behind the name.
        environ: our variables, as they were then.
    """

    program: str
    arguments: tuple[str, ...]
    environ: dict[str, str] = field(default_factory=dict)


class Shell:
    """A bash in a folder.

    Args:
        folder: where blocks run; programs that only note stand in ``.bin`` in it.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._notes = folder / ".notes"
        programs = folder / ".bin"
        programs.mkdir()
        self._notes.mkdir()
        stand_in = programs / ".stand-in"
        stand_in.write_text(_STAND_IN)
        stand_in.chmod(0o755)
        for name in (*NOTED, "contextpilot-rag", "python", "python3", "curl"):
            (programs / name).symlink_to(stand_in)
        (folder / ".venv").mkdir()
        (folder / ".venv" / "bin").symlink_to(programs)
        self._environ = {
            **{name: value for name, value in os.environ.items() if not name.startswith("CONTEXTPILOT_")},
            "PATH": f"{programs}{os.pathsep}{os.defpath}",
            "PYTHON": sys.executable,
            "PYTHONPATH": str(ROOT),
            "CURL": shutil.which("curl") or "curl",
            "NOTE": _NOTE,
            "NOTES": str(self._notes),
            "COLUMNS": "120",
        }

    def run(self, block: CodeBlock, text: str) -> str:
        """Run a block of commands; what they print.

        Raises:
            BlockFailed: one of them fails.
        """
        done = self._bash(f"set -eu -o pipefail\n{text}")
        if done.returncode:
            raise BlockFailed(f"line {block.line}: exit status {done.returncode}\n{text}\n{done.stdout}{done.stderr}")
        return done.stdout

    def run_session(self, block: CodeBlock, text: str) -> None:
        """Run commands that stand behind ``$``, and compare what they print.

        Raises:
            BlockFailed: one prints something else.
        """
        for command, expected in session(text):
            done = self._bash(command)
            printed = done.stdout + done.stderr
            if not doctest.OutputChecker().check_output(expected, printed, doctest.ELLIPSIS):
                raise BlockFailed(f"line {block.line}: {command}\nexpected:\n{expected}\nprinted:\n{printed}")

    def parse(self, block: CodeBlock, text: str) -> None:
        """That a block is a script.

        Raises:
            BlockFailed: it is none.
        """
        done = subprocess.run(["bash", "-n"], input=text, capture_output=True, text=True, check=False, timeout=60)
        if done.returncode:
            raise BlockFailed(f"line {block.line}: {done.stderr}")

    def calls(self) -> Iterator[Call]:
        """How programs were called that only noted it."""
        for note in sorted(self._notes.iterdir()):
            program, arguments, environ = json.loads(note.read_text(encoding="utf-8"))
            yield Call(program, tuple(arguments), environ)

    def _bash(self, script: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["bash", "-c", script],
            cwd=self._folder,
            env=self._environ,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=100,
        )


def session(text: str) -> Iterator[tuple[str, str]]:
    r"""Commands behind ``$``, each with what it prints.

    >>> list(session("$ echo one \\\n  two\none two\n$ true\n"))
    [('echo one \\\n  two\n', 'one two\n'), ('true\n', '')]
    """
    lines = text.splitlines(keepends=True)
    while lines:
        first = lines.pop(0)
        if not first.startswith("$ "):
            raise BlockFailed(f"a console block begins with `$ `: {first}")
        command = first[2:]
        while command.endswith("\\\n"):
            command += lines.pop(0)
        expected = ""
        while lines and not lines[0].startswith("$ "):
            expected += lines.pop(0)
        yield command, expected


def words(call: Call) -> str:
    """A call as one would type it."""
    return shlex.join((call.program, *call.arguments))
