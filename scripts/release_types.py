"""Whether a type checker knows the type of every public name of what is installed, by pyright's --verifytypes.

    python -m scripts.release_types ENVIRONMENT/bin/python PACKAGE...

Pyright takes all that has no underscore for public. Here it is what CONTRIBUTING names: what `PUBLIC` modules export,
with all attributes and methods. Of the rest the share is only told. The package for LlamaIndex is not asked about: what
its classes inherit from LlamaIndex has types that pyright does not know.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

PUBLIC = {
    "contextpilot_rag": ("", ".adapter", ".errors", ".replay", ".retrieval", ".testing"),
    "langchain_contextpilot": ("",),
    "mem0_contextpilot": ("",),
}
_EXPORTED = """
import importlib, json, sys
found = set()
for name in sys.argv[1:]:
    module = importlib.import_module(name)
    own = [key for key, value in vars(module).items() if getattr(value, "__module__", "") == name and key[0] != "_"]
    for key in getattr(module, "__all__", own):
        value = getattr(module, key)
        home = getattr(value, "__module__", None)
        found.add(f"{home}.{key}" if isinstance(home, str) and home.startswith(sys.argv[1]) else f"{name}.{key}")
print(json.dumps(sorted(found)))
"""


def main(python: str, packages: list[str]) -> None:
    """Check each package; ends with 1 and what is not known."""
    missing = []
    for package in packages:
        exported = _exported(python, [package + module for module in PUBLIC[package]])
        symbols = [symbol for symbol in _symbols(python, package) if symbol["isExported"]]
        public = [symbol for symbol in symbols if _within(symbol["name"], exported)]
        known = [symbol for symbol in public if symbol["isTypeKnown"]]
        missing += [f"{symbol['name']}: {_why(symbol)}" for symbol in public if not symbol["isTypeKnown"]]
        shares = f"{len(known)} of {len(public)} public symbols have known types"
        print(f"   {package}: {shares}, {sum(symbol['isTypeKnown'] for symbol in symbols)} of {len(symbols)} of all")
        if not public:
            missing.append(f"{package}: pyright found nothing public")
    if missing:
        sys.exit("\n".join(missing))


def _exported(python: str, modules: list[str]) -> list[str]:
    """The full names of what modules export, where it is defined."""
    asked = subprocess.run([python, "-I", "-c", _EXPORTED, *modules], capture_output=True, text=True, check=True)
    names: list[str] = json.loads(asked.stdout)
    return names


def _symbols(python: str, package: str) -> list[dict[str, Any]]:
    """What pyright says of each symbol. It looks into the environment that is active, and no other can be named."""
    folder = Path(python).parent
    environment = os.environ | {"VIRTUAL_ENV": str(folder.parent), "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}"}
    ask = [sys.executable, "-m", "pyright", "--verifytypes", package, "--ignoreexternal", "--outputjson"]
    with tempfile.TemporaryDirectory() as elsewhere:
        said = subprocess.run(ask, env=environment, cwd=elsewhere, capture_output=True, text=True, check=False)
    symbols: list[dict[str, Any]] = json.loads(said.stdout)["typeCompleteness"]["symbols"]
    return symbols


def _within(name: str, exported: list[str]) -> bool:
    return any(name == whole or name.startswith(f"{whole}.") for whole in exported)


def _why(symbol: dict[str, Any]) -> str:
    return str(symbol["diagnostics"][0]["message"]).partition("\n")[0] if symbol["diagnostics"] else "not known"


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
