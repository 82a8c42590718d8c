"""Builds what is published, into dist/: sdist and wheel of the core and of each package under integrations/.

    python -m scripts.release_build

Each wheel is built from its sdist. `twine check --strict` looks at what an index would show of them, and
release_contents.py at what is in them. Needs the packages of the extra ``release``.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from scripts.release_contents import complaints

ROOT = Path(__file__).resolve().parent.parent
DIST = ROOT / "dist"


def projects() -> list[Path]:
    """The folders of what is published: the core's, then the integrations'."""
    return [ROOT, *sorted(file.parent for file in (ROOT / "integrations").glob("*/pyproject.toml"))]


def main() -> None:
    """Build, and check what was built."""
    shutil.rmtree(DIST, ignore_errors=True)
    environment = os.environ | {"PIP_CONSTRAINT": str(ROOT / "constraints.txt")}  # of the tools that build, too
    for project in projects():
        print(f"Building {project.name} ..." if project != ROOT else "Building contextpilot-rag ...", flush=True)
        build = [sys.executable, "-m", "build", "--outdir", str(DIST), str(project)]
        built = subprocess.run(build, env=environment, capture_output=True, text=True, check=False)
        if built.returncode:
            sys.exit(f"{built.stdout}\n{built.stderr}\ncontextpilot-rag: {project} could not be built")
    files = sorted(DIST.iterdir())
    subprocess.run([sys.executable, "-m", "twine", "check", "--strict", *map(str, files)], check=True)
    found = [complaint for project in projects() for complaint in complaints(project, DIST)]
    if found:
        sys.exit("\n".join(["What was built is not what should be published:", *found]))
    for file in files:
        print(f"dist/{file.name}: {file.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
