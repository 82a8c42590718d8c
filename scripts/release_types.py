"""Whether a type checker knows the type of every public name of what is installed, by pyright's --verifytypes.

    python -m scripts.release_types ENVIRONMENT/bin/python PACKAGE...

Pyright takes all that has no underscore for public. Here it is what the API reference shows (docs/reference), with all
attributes and methods. Of the rest the share is only told. The package for LlamaIndex is not asked about: what its
classes inherit from LlamaIndex has types that pyright does not know.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
_WITH_RAY = "contextpilot_rag.batches."
"""Names with Ray's types in them: known where Ray is installed."""
_DEFINED = """
import importlib, json, sys, types
found = []
for name in sys.argv[1:]:
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        try:
            value = importlib.import_module(".".join(parts[:length]))
            break
        except ModuleNotFoundError:
            pass
    for part in parts[length:]:
        value = getattr(value, part)
    home = getattr(value, "__module__", None)
    found.append(f"{home}.{value.__qualname__}" if hasattr(value, "__qualname__") and home else name)
print(json.dumps(found))
"""


def main(python: str, packages: list[str]) -> None:
    """Check each package; ends with 1 and what is not known."""
    missing = []
    for package in packages:
        names = documented(package)
        if not _has_ray(python):
            names = [name for name in names if not name.startswith(_WITH_RAY)]
        defined = _defined(python, names)
        symbols = [symbol for symbol in _symbols(python, package) if symbol["isExported"]]
        public = [symbol for symbol in symbols if _within(symbol["name"], defined)]
        known = [symbol for symbol in public if symbol["isTypeKnown"]]
        missing += [f"{symbol['name']}: {_why(symbol)}" for symbol in public if not symbol["isTypeKnown"]]
        shares = f"{len(known)} of {len(public)} public symbols have known types"
        print(f"   {package}: {shares}, {sum(symbol['isTypeKnown'] for symbol in symbols)} of {len(symbols)} of all")
        if not public:
            missing.append(f"{package}: pyright found nothing public")
    if missing:
        sys.exit("\n".join(missing))


def documented(package: str) -> list[str]:
    """The names of a package that the API reference shows."""
    pages = sorted((ROOT / "docs" / "reference").rglob("*.md"))
    texts = [page.read_text(encoding="utf-8") for page in pages]
    return [name for text in texts for name in re.findall(rf"^::: ({re.escape(package)}\b\S*)", text, re.MULTILINE)]


def _defined(python: str, names: list[str]) -> list[str]:
    """The same names where they are defined."""
    asked = subprocess.run([python, "-I", "-c", _DEFINED, *names], capture_output=True, text=True, check=True)
    found: list[str] = json.loads(asked.stdout)
    return found


def _has_ray(python: str) -> bool:
    code = "import importlib.util, sys; sys.exit(importlib.util.find_spec('ray') is None)"
    return subprocess.run([python, "-I", "-c", code], check=False).returncode == 0


def _symbols(python: str, package: str) -> list[dict[str, Any]]:
    """What pyright says of each symbol. It looks into the environment that is active, and no other can be named."""
    folder = Path(python).parent
    environment = os.environ | {"VIRTUAL_ENV": str(folder.parent), "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}"}
    ask = [sys.executable, "-m", "pyright", "--verifytypes", package, "--ignoreexternal", "--outputjson"]
    with tempfile.TemporaryDirectory() as elsewhere:
        said = subprocess.run(ask, env=environment, cwd=elsewhere, capture_output=True, text=True, check=False)
    symbols: list[dict[str, Any]] = json.loads(said.stdout)["typeCompleteness"]["symbols"]
    return symbols


def _within(name: str, public: list[str]) -> bool:
    return any(name == whole or name.startswith(f"{whole}.") for whole in public)


def _why(symbol: dict[str, Any]) -> str:
    return str(symbol["diagnostics"][0]["message"]).partition("\n")[0] if symbol["diagnostics"] else "not known"


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
