"""The guides' examples, run as they stand there; their links to themselves."""

from __future__ import annotations

import doctest
import re
from pathlib import Path

import pytest

DOCS = Path(__file__).resolve().parents[1] / "docs"
GUIDES = {"engines.md": 20, "prompt_shapes.md": 25, "proxy.md": 35}


@pytest.mark.parametrize(("name", "least"), GUIDES.items())
def test_all_examples_work_as_they_stand_there(name, least):
    failed, tried = doctest.testfile(str(DOCS / name), module_relative=False, encoding="utf-8")
    assert tried >= least, "the examples are gone"
    assert not failed


@pytest.mark.parametrize("name", GUIDES)
def test_all_links_lead_somewhere(name):
    text = (DOCS / name).read_text(encoding="utf-8")
    headings = {
        "#" + re.sub(r"[^\w\- ]", "", line[3:].lower()).replace(" ", "-")
        for line in text.splitlines()
        if line.startswith("## ")
    }
    links = re.findall(r"\]\(([^)]+)\)", text)
    assert {link for link in links if link.startswith("#")} == headings
    for link in links:
        if not link.startswith(("#", "http")):
            assert (DOCS / link.partition("#")[0]).exists(), link
