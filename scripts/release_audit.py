"""Looks the tested versions up among known vulnerabilities, with pip-audit: those of every constraints file.

    python -m scripts.release_audit

Ends with 1 where there is a vulnerability. A version that pip-audit could not look up is no clean one: in CI (CI=true)
that fails, too; elsewhere it is said.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
FILES = ("constraints.txt", "integrations/constraints/newest.txt", "integrations/constraints/oldest.txt")


def pins(text: str) -> set[tuple[str, str]]:
    """The (package, version) pairs of a constraints file, for whichever Python they are."""
    return set(re.findall(r"^([A-Za-z0-9._-]+)==([^\s;]+)", text, re.MULTILINE))


def lists(pairs: set[tuple[str, str]]) -> list[list[str]]:
    """Requirements in as many lists as it takes for none to name a package twice."""
    by_name: dict[str, list[str]] = defaultdict(list)
    for name, version in sorted(pairs):
        by_name[name].append(version)
    most = max(map(len, by_name.values()), default=0)
    return [
        [f"{name}=={found[place]}" for name, found in by_name.items() if place < len(found)] for place in range(most)
    ]


def audited(requirements: list[str]) -> list[dict[str, Any]]:
    """What pip-audit says of some requirements: name, version, and vulns or a skip_reason."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "requirements.txt")
        file.write_text("\n".join(requirements) + "\n", encoding="utf-8")
        ask = [
            sys.executable,
            "-m",
            "pip_audit",
            "--disable-pip",
            "--no-deps",
            "--format=json",
            "--progress-spinner=off",
        ]
        said = subprocess.run([*ask, "--requirement", str(file)], capture_output=True, text=True, check=False)
    try:
        dependencies: list[dict[str, Any]] = json.loads(said.stdout)["dependencies"]
    except ValueError:
        reason = (said.stderr.strip().splitlines() or ["it said nothing"])[-1]
        return [{"name": line, "skip_reason": reason} for line in requirements]
    return dependencies


def main() -> None:
    """Audit, and tell."""
    pairs = {pair for file in FILES for pair in pins((ROOT / file).read_text(encoding="utf-8"))}
    found = [dependency for requirements in lists(pairs) for dependency in audited(requirements)]
    bad = [dependency for dependency in found if dependency.get("vulns")]
    unknown = [dependency for dependency in found if "skip_reason" in dependency]
    for dependency in bad:
        for known in dependency["vulns"]:
            mended = ", ".join(known["fix_versions"]) or "no version yet"
            print(f"{dependency['name']} {dependency['version']}: {known['id']}, mended in {mended}")
    looked_up = f"{len(found) - len(unknown)} of {len(found)}"
    print(f"{looked_up} tested versions were looked up, {len(bad)} have known vulnerabilities")
    if unknown:
        print(f"NOT audited: {len(unknown)}, for instance {unknown[0]['name']}: {unknown[0]['skip_reason']}")
    sys.exit(bool(bad) or (bool(unknown) and os.environ.get("CI") == "true"))


if __name__ == "__main__":
    main()
