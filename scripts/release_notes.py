"""What the changelog says of a version, for the release's page: python -m scripts.release_notes v1.2.3.

Fails if the tag is not the version of the core and of all integrations, or if the changelog does not tell of it.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def versions() -> dict[str, str]:
    """The version of each package that is published, by its name."""
    found = {"contextpilot-rag": _only(r'^__version__ = "(.+)"$', ROOT / "contextpilot_rag" / "_version.py")}
    for file in sorted((ROOT / "integrations").glob("*/pyproject.toml")):
        found[file.parent.name] = _only(r'^version = "(.+)"$', file)
    return found


def notes(version: str, changelog: str) -> str:
    """A version's part of a changelog, without its heading.

    Raises:
        LookupError: it is not there, or has no date, or says nothing.
    """
    heading = re.search(rf"^## {re.escape(version)} \((\d{{4}}-\d\d-\d\d)\)$", changelog, re.MULTILINE)
    if heading is None:
        raise LookupError(f"CHANGELOG.md has no heading '## {version} (YYYY-MM-DD)'")
    text = re.split(r"^## ", changelog[heading.end() :], maxsplit=1, flags=re.MULTILINE)[0].strip()
    if not text:
        raise LookupError(f"CHANGELOG.md says nothing of {version}")
    return text


def main(tag: str) -> None:
    """Print the notes of the version that a tag names."""
    others = [f"{name} is {version}" for name, version in versions().items() if f"v{version}" != tag]
    if others:
        sys.exit(f"the tag is {tag}, but " + ", ".join(others))
    try:
        print(notes(tag.removeprefix("v"), (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")))
    except LookupError as error:
        sys.exit(str(error))


def _only(pattern: str, file: Path) -> str:
    (found,) = re.findall(pattern, file.read_text(encoding="utf-8"), re.MULTILINE)
    return str(found)


if __name__ == "__main__":
    main(sys.argv[1])
