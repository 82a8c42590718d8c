"""Kinds of fault that have been seen in such software: does the published package have them, and does this one?

    python benchmarks/comparison.py [--probe NAME]

Writes benchmarks/comparison.md, with all probes; with --probe it only shows what it finds. The published package is
installed into an environment of its own (.venv-peer) the first time. Times depend on the machine; all else does not.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import comparison_http
import comparison_probes
import peer
from report import provenance, table

REPORT = Path(__file__).with_name("comparison.md")
DRIVER = Path(comparison_probes.__file__)
PATIENCE = 300.0  # seconds for one probe
INTRODUCTION = """# Beside the published package: kinds of fault

Each line is a kind of fault that has been seen in software of this sort, as a probe that asks both packages the same:
by their Python interfaces, or by their servers. That a probe finds nothing wrong in either is shown, too. Hit ratios
and times stand in [the other report](README.md); what the published package has and this one has not, in
[the comparison](../docs/comparison.md).
"""


def main() -> None:
    """Ask both, and write the report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = [*comparison_probes.PROBES, *comparison_http.PROBES]
    parser.add_argument("--probe", choices=names, help="only this one, and only show what it finds")
    chosen = parser.parse_args().probe
    rows = []
    for name in [chosen] if chosen else names:
        rows.append(found(name))
        print(" | ".join(rows[-1]), flush=True)
    if not chosen:
        text = table(
            ["probe (`--probe NAME`)", "what is asked", f"contextpilot {peer.VERSION}", "contextpilot-rag"], rows
        )
        text = text.replace("---:", "---")
        REPORT.write_text(f"{INTRODUCTION}\n{text}\n\nFrom {provenance()}\n", encoding="utf-8")


def found(name: str) -> Sequence[str]:
    """A row of the report: what a probe asks, and what it finds in either."""
    probes = comparison_http.PROBES if name in comparison_http.PROBES else comparison_probes.PROBES
    asked = str(probes[name].__doc__).partition("\n")[0].rstrip(".").replace("``", "`")
    if name in comparison_http.PROBES:
        with comparison_http.published() as theirs:
            published = comparison_http.PROBES[name](theirs)
        with comparison_http.ours() as own:
            return f"`{name}`", asked, published, comparison_http.PROBES[name](own)
    return (
        f"`{name}`",
        asked,
        _driven(str(peer.environment()), "published", name),
        _driven(sys.executable, "ours", name),
    )


def _driven(python: str, who: str, name: str) -> str:
    command = [python, str(DRIVER), who, name]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        return f"not done after {PATIENCE:.0f} s"
    lines = (done.stdout if done.returncode == 0 else done.stderr).strip().splitlines() or ["nothing said"]
    return str(json.loads(lines[-1])) if done.returncode == 0 else f"failed: {lines[-1]}"


if __name__ == "__main__":
    main()
