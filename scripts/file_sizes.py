"""Fails if a source file is longer than 400 lines: one idea a file."""

from __future__ import annotations

import sys
from pathlib import Path

LIMIT = 400

root = Path(__file__).resolve().parent.parent
long = []
for folder in ("contextpilot_rag", "benchmarks", "tests", "scripts", "integrations"):
    for file in sorted((root / folder).rglob("*.py")):
        lines = len(file.read_text(encoding="utf-8").splitlines())
        if lines > LIMIT:
            long.append(f"{file.relative_to(root)}: {lines} lines, {LIMIT} at most")
sys.exit("\n".join(long) or 0)
