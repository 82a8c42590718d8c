"""Installs what is in dist/ into clean environments, the oldest and the newest supported, and uses it there.

    python -m scripts.release_install [--python 3.10=/path/to/python3.10 ...]

Two environments for each Python: the core, first without extras and then with them, every dependency as old as its
metadata allows (the oldest Python) or as new (the newest); and all packages with the oldest or the newest frameworks
that were tested. In each, from a folder elsewhere, release_smoke.py uses what is installed, mypy checks a user's code,
and release_types.py every public name.
A Python that this machine does not have is skipped, and said; in CI (CI=true) there must be one at least.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from packaging.requirements import Requirement

from scripts.release_contents import metadata_of

ROOT = Path(__file__).resolve().parent.parent
DIST = ROOT / "dist"
SUPPORTED = ("3.10", "3.11", "3.12", "3.13")
CORE_EXTRAS = "events,replicas,retrieval,service,testing"
FRAMEWORKS = re.compile(r"^(langchain|langchain-core|langgraph|llama-index-core|mem0ai)==.*$", re.MULTILINE)


def main() -> None:
    """Try each environment; ends with 1 and the names of those where something failed."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--python", action="append", default=[], metavar="3.N=PATH", help="an interpreter that is not found"
    )
    named = dict(pair.split("=", 1) for pair in parser.parse_args().python)
    if not list(DIST.glob("*.whl")):
        sys.exit("contextpilot-rag: there is nothing in dist/; make dist builds it")
    tried, failed = 0, []
    for version, age in ((SUPPORTED[0], "oldest"), (SUPPORTED[-1], "newest")):
        python = named.get(version) or found(version)
        if python is None:
            print(f"Skipped Python {version}: it is not on this machine; --python {version}=PATH names one")
            continue
        for what in ("the core alone", f"all packages, the {age} frameworks"):
            tried += 1
            print(f"== Python {version}, {what}", flush=True)
            with tempfile.TemporaryDirectory(prefix="contextpilot-dist-") as folder:
                try:
                    (core if what == "the core alone" else integrations)(python, Path(folder), age)
                except subprocess.CalledProcessError as error:
                    ended = f"{' '.join(map(str, error.cmd[:4]))} ... ended with {error.returncode}"
                    failed.append(f"Python {version}, {what}: {ended}")
    if not tried and os.environ.get("CI") == "true":
        sys.exit(f"contextpilot-rag: neither Python {SUPPORTED[0]} nor {SUPPORTED[-1]} is here")
    if failed:
        sys.exit("\n".join(["Failed:", *failed]))
    print(f"{tried} environments passed")


def found(version: str) -> str | None:
    """An interpreter of a version (3.10): one on PATH, this one, or one of pyenv's."""
    folder = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    candidates = [
        shutil.which(f"python{version}"),
        sys.executable,
        *map(str, sorted(folder.glob(f"{version}.*/bin/python"), reverse=True)),
    ]
    return next((path for path in candidates if path and _is(path, version)), None)


def core(python: str, folder: Path, age: str) -> None:
    """The core without extras, and then with those that bring no framework."""
    environment = _new(python, folder)
    wheel = _wheel("contextpilot_rag")
    limits = folder / "limits.txt"
    limits.write_text(floor(wheel) if age == "oldest" else "", encoding="utf-8")
    _install(environment, wheel, limits)
    _use(environment, folder, "core", "missing")
    _types(environment, folder, "contextpilot_rag")
    _install(environment, f"{wheel}[{CORE_EXTRAS}]", limits)
    _use(environment, folder, "core", "engine", "retrieval", "service")


def integrations(python: str, folder: Path, age: str) -> None:
    """The integrations' wheels together, with the core's."""
    environment = _new(python, folder)
    limits = folder / "limits.txt"
    tested = (ROOT / "integrations" / "constraints" / f"{age}.txt").read_text(encoding="utf-8")
    limits.write_text("\n".join(match[0] for match in FRAMEWORKS.finditer(tested)) + "\n", encoding="utf-8")
    wheels = [
        _wheel("langchain_contextpilot"),
        _wheel("llama_index_postprocessor_contextpilot"),
        _wheel("mem0_contextpilot"),
    ]
    _install(environment, f"{_wheel('contextpilot_rag')}[testing]", limits, f"{wheels[0]}[agents]", *wheels[1:])
    _use(environment, folder, "core", "engine", "langchain", "llamaindex", "mem0")
    if age == "newest":  # the oldest frameworks leave types of their own out, and ours are made of them
        _types(environment, folder, "langchain_contextpilot", "mem0_contextpilot")


def floor(wheel: Path) -> str:
    """Constraints that hold each package a wheel needs at the oldest version it says it can work with."""
    lines = []
    for line in metadata_of(wheel).get_all("Requires-Dist") or ():
        need = Requirement(line)
        lowest = [clause.version for clause in need.specifier if clause.operator == ">="]
        extra = need.marker is None or any(need.marker.evaluate({"extra": name}) for name in CORE_EXTRAS.split(","))
        if lowest and extra:
            lines.append(f"{need.name}=={lowest[0]}")
    return "\n".join(sorted(set(lines))) + "\n"


def _new(python: str, folder: Path) -> Path:
    subprocess.run([python, "-m", "venv", str(folder / "venv")], check=True)
    return folder / "venv" / ("Scripts" if os.name == "nt" else "bin") / "python"


def _install(environment: Path, wheel: Path | str, limits: Path, *others: Path | str) -> None:
    install = [environment, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--find-links", DIST]
    subprocess.run([*install, "--constraint", limits, wheel, *others], check=True)
    subprocess.run([environment, "-m", "pip", "check"], check=True, stdout=subprocess.DEVNULL)


def _use(environment: Path, folder: Path, *parts: str) -> None:
    elsewhere = folder / "elsewhere"
    elsewhere.mkdir(exist_ok=True)
    # Isolated: neither the folder of the script nor variables may bring the checkout back.
    subprocess.run([environment, "-I", ROOT / "scripts" / "release_smoke.py", *parts], cwd=elsewhere, check=True)


def _types(environment: Path, folder: Path, *packages: str) -> None:
    """A user's code under mypy's strictest rules, and every public name's type by pyright."""
    elsewhere = folder / "elsewhere"
    if "contextpilot_rag" in packages:
        copy = shutil.copy(ROOT / "tests" / "test_typing_sample.py", elsewhere / "user.py")
        mypy = [sys.executable, "-m", "mypy", "--strict", "--no-incremental", "--config-file="]
        subprocess.run([*mypy, "--python-executable", environment, copy], cwd=elsewhere, check=True)
    subprocess.run([sys.executable, "-m", "scripts.release_types", environment, *packages], cwd=ROOT, check=True)


def _wheel(name: str) -> Path:
    return next(DIST.glob(f"{name}-*.whl"))


def _is(python: str, version: str) -> bool:
    code = "import sys; print('%d.%d' % sys.version_info[:2])"
    try:
        return (
            subprocess.run([python, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == version
        )
    except (OSError, subprocess.CalledProcessError):
        return False


if __name__ == "__main__":
    main()
