"""Whether a call that a page shows could work: its options, settings, extras, targets, packages and files exist."""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path, PurePosixPath
from unittest import mock

from contextpilot_rag import proxy_command, serve_command
from contextpilot_rag.cli import command_parser

from .shell import ROOT, Call, words

# Programs of others: that they are called at all is all that can be said here.
OTHERS = frozenset({"vllm", "gunicorn", "valkey-server", "redis-server", "systemctl", "git", "helm", "apt", "apt-get"})
_PROJECTS = [ROOT / "pyproject.toml", *sorted(ROOT.glob("integrations/*/pyproject.toml"))]


class CannotWork(AssertionError):
    """A call that would fail."""


def check(call: Call, folder: Path) -> None:
    """Check a call.

    Args:
        call: how a program was called.
        folder: where it was called.

    Raises:
        CannotWork: it names what is not there.
    """
    name = PurePosixPath(call.program).name
    known: dict[str, Callable[[Call, Path], None]] = {
        "contextpilot-rag": _ours,
        "pip": _pip,
        "make": _make,
        "docker": _docker,
        "kubectl": _kubectl,
        "sudo": _sudo,
        "cp": _cp,
        "python": _python,
        "python3": _python,
    }
    if name in known:
        known[name](call, folder)
    elif name not in OTHERS:
        raise CannotWork(f"{words(call)}: nothing is known of {name}")


def extras() -> dict[str, set[str]]:
    """Our distributions and their extras."""
    found = {}
    for project in _PROJECTS:
        text = project.read_text(encoding="utf-8")
        name = re.search(r'^name = "(.+)"$', text, re.MULTILINE)
        assert name is not None
        table = re.search(r"^\[project.optional-dependencies\]\n(.*?)(?=^\[)", text, re.MULTILINE | re.DOTALL)
        found[name[1]] = set(re.findall(r"^([\w-]+) = \[", table[1], re.MULTILINE)) if table else set()
    return found


def _ours(call: Call, _: Path) -> None:
    """A server's settings are those of the call; of a demo, only its options are looked at."""
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said), contextlib.redirect_stdout(said):
            options = command_parser().parse_args(call.arguments)
    except SystemExit as ended:
        if ended.code:
            raise CannotWork(f"{words(call)}\n{said.getvalue()}") from None
        return
    with mock.patch.dict(os.environ, call.environ):
        if call.arguments[0] == "serve":
            serve_command.settings_of(options)
        elif call.arguments[0] == "proxy":
            assert proxy_command.settings_of(options).engines
            proxy_command.pilot_settings_of(options)


def _pip(call: Call, _: Path) -> None:
    if call.arguments[:1] != ("install",):
        raise CannotWork(f"{words(call)}: pip is for installing here")
    theirs = "".join(project.read_text(encoding="utf-8") for project in _PROJECTS)
    for package in call.arguments[1:]:
        if package.startswith("-"):
            continue
        named = re.fullmatch(r"([^\[\]]+)(?:\[([\w,-]+)\])?", package)
        if named is None:
            raise CannotWork(f"{words(call)}: {package} is no package")
        name, asked = named[1], set((named[2] or "").split(",")) - {""}
        if name == ".":
            name = "contextpilot-rag"
        elif name.startswith("./"):
            name = PurePosixPath(name).name
        have = extras().get(name)
        if have is None and not re.search(rf'"{re.escape(name)}["\[<>=!~; ]', theirs):
            raise CannotWork(f"{words(call)}: {name} is neither ours nor named by a package of ours")
        if have is not None and asked - have:
            raise CannotWork(f"{words(call)}: {name} has no extra {', '.join(sorted(asked - have))}")


def _make(call: Call, folder: Path) -> None:
    targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    for argument in call.arguments:
        if argument.startswith("ARGS=") and "demo" in call.arguments:
            _ours(Call("contextpilot-rag", ("demo", *shlex.split(argument[5:]))), folder)
        elif "=" not in argument and argument not in targets:
            raise CannotWork(f"{words(call)}: the Makefile has no {argument}")


def _docker(call: Call, folder: Path) -> None:
    for path in _behind(call, "-f"):
        if not (folder / path).is_file():
            raise CannotWork(f"{words(call)}: there is no {path}")


def _kubectl(call: Call, folder: Path) -> None:
    folders = _behind(call, "-k")
    if "kustomize" in call.arguments:
        folders += [call.arguments[-1]]
    for path in folders:
        if not (folder / path / "kustomization.yaml").is_file():
            raise CannotWork(f"{words(call)}: there is no kustomization in {path}")


def _sudo(call: Call, folder: Path) -> None:
    program, *arguments = call.arguments
    if PurePosixPath(program).name in {"pip", "contextpilot-rag", "cp"}:
        check(Call(program, tuple(arguments), call.environ), folder)


def _cp(call: Call, folder: Path) -> None:
    for path in call.arguments[:-1]:
        if not path.startswith("-") and not (folder / path).exists():
            raise CannotWork(f"{words(call)}: there is no {path}")


def _python(call: Call, folder: Path) -> None:
    """A program of ours, or a line of one; of others' modules nothing can be said."""
    if "-c" in call.arguments:
        compile(_behind(call, "-c")[0], "-c", "exec")
        return
    first = next((one for one in call.arguments if not one.startswith("-")), "")
    if first.endswith(".py") and not (folder / first).is_file():
        raise CannotWork(f"{words(call)}: there is no {first}")


def _behind(call: Call, option: str) -> list[str]:
    return [value for name, value in pairwise(call.arguments) if name == option]
