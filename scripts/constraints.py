"""Writes constraints files: the versions installed in the environments named, which the tests have passed with.

    python scripts/constraints.py .venv/bin/python other/bin/python > constraints.txt
    python scripts/constraints.py .venv-oldest/bin/python > integrations/constraints/oldest.txt

Where Python versions need different versions of a package, each gets a line with a marker. Versions only: no addresses.
"""

from __future__ import annotations

import subprocess
import sys
from collections import defaultdict

OURS = {"pip", "setuptools", "wheel"}  # and everything with "contextpilot" in its name


def installed(python: str) -> tuple[str, dict[str, str]]:
    """An environment's Python version (3.11) and its packages' versions by name."""
    code = (
        "import sys; from importlib.metadata import distributions as d;"
        "print('%d.%d' % sys.version_info[:2]); [print(x.name.lower().replace('_', '-'), x.version) for x in d()]"
    )
    lines = subprocess.run([python, "-c", code], capture_output=True, text=True, check=True).stdout.split("\n")
    return lines[0], dict(line.split() for line in lines[1:] if line)


def main(pythons: list[str]) -> None:
    """Print the constraints for some environments."""
    environments = dict(installed(python) for python in pythons)
    versions: dict[str, dict[str, str]] = defaultdict(dict)
    for python, packages in environments.items():
        for name, version in packages.items():
            if name not in OURS and "contextpilot" not in name:
                versions[name][python] = version.split("+")[0]
    pythons_shown = ", ".join(sorted(environments, key=order))
    print(f"# Tested versions, on Python {pythons_shown}. Written by scripts/constraints.py.")
    for name, by_python in sorted(versions.items()):
        if len(set(by_python.values())) == 1:
            print(f"{name}=={next(iter(by_python.values()))}")
            continue
        for python in sorted(by_python, key=order):
            print(f"{name}=={by_python[python]}; python_version == '{python}'")


def order(python: str) -> list[int]:
    """3.9 before 3.10."""
    return [int(part) for part in python.split(".")]


if __name__ == "__main__":
    main(sys.argv[1:])
