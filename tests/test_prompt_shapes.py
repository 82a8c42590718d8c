"""The examples of docs/prompt_shapes.md, run as they stand there."""

from __future__ import annotations

import doctest
from pathlib import Path

GUIDE = Path(__file__).resolve().parents[1] / "docs" / "prompt_shapes.md"


def test_all_examples_work_as_they_stand_there():
    failed, tried = doctest.testfile(str(GUIDE), module_relative=False, encoding="utf-8")
    assert tried >= 25, "the examples are gone"
    assert not failed


def test_all_its_links_to_itself_lead_somewhere():
    text = GUIDE.read_text(encoding="utf-8")
    headings = {"#" + line[3:].lower().replace(" ", "-") for line in text.splitlines() if line.startswith("## ")}
    links = {part.split(")")[0] for part in text.split("](")[1:] if part.startswith("#")}
    assert links == headings
