"""Measures what the README's table says, and writes it there: ``python scripts/measure.py``."""

from __future__ import annotations

import re
import sys
import warnings
from pathlib import Path

HERE = Path(__file__).parents[1]
BEGIN, END = "<!-- measured -->\n", "<!-- /measured -->"


def main() -> None:
    """Write the table into the README."""
    sys.path.insert(0, str(HERE / "tests"))
    warnings.filterwarnings("ignore", ".*langchain-community.*", DeprecationWarning)
    from langchain_pipelines import table

    readme = HERE / "README.md"
    text = readme.read_text(encoding="utf-8")
    found = table()
    text = re.sub(f"{BEGIN}.*?{END}", lambda _: f"{BEGIN}{found}\n{END}", text, flags=re.DOTALL)
    readme.write_text(text, encoding="utf-8")
    print(found)


if __name__ == "__main__":
    main()
