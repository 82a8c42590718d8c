"""The proxy's guide, held to the code: what it names is there, and what is there it names."""

from __future__ import annotations

import argparse
import re
from pathlib import Path

import pytest

from contextpilot_rag.proxy.finding.tags import ITEMS
from contextpilot_rag.proxy.formats.table import api_of, generates
from contextpilot_rag.proxy.heads import read_head, report_headers
from contextpilot_rag.proxy.words import Report
from contextpilot_rag.proxy_command import add_arguments

GUIDE = (Path(__file__).resolve().parents[2] / "docs" / "proxy.md").read_text(encoding="utf-8")
OF_KEYS = {"--file", "--tenant"}  # options of `contextpilot-rag keys add`
OF_EXAMPLES = {"--base-url"}


def test_all_options_that_the_guide_names_are_there():
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    known = set(re.findall(r"--[a-z][a-z-]+", parser.format_help()))
    named = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", GUIDE)) - OF_KEYS - OF_EXAMPLES
    assert len(named) > 20
    assert named <= known


def test_the_guide_names_all_wrappers():
    row = next(line for line in GUIDE.splitlines() if line.startswith("| a wrapper"))
    named = set(re.findall(r"`<?(\w+)>?`", row))
    assert {name for name in ITEMS if not name.startswith("retrieved_")} <= named
    assert "`retrieved_...`" in row


def test_the_guide_explains_all_headers_of_answers():
    report = Report(blocks=1, changed=True, replaced=1, left_out=1, reason="why", labels=("1",))
    names = [name.decode() for name, _ in report_headers(report, "engine")]
    explained = re.findall(r"`(x-contextpilot-[\w-]+|-[\w-]+)`", GUIDE)
    short = {f"x-contextpilot{name}" if name.startswith("-") else name for name in explained}
    assert len(names) == 8
    assert set(names) <= short


@pytest.mark.parametrize("line", re.findall(r"`(x-contextpilot[\w-]*: [\w, ]+)`", GUIDE))
def test_the_request_headers_of_the_guide_mean_something(line):
    name, _, value = line.partition(": ")
    assert read_head([(name.encode(), value.encode())]).wishes != read_head([]).wishes


@pytest.mark.parametrize("path", re.findall(r"`(/v1/(?!.*/batch)[\w/]+)`", GUIDE))
def test_the_paths_of_the_guide_are_looked_into(path):
    assert api_of("POST", path.encode()) is not None
    assert api_of("POST", b"/openai" + path.encode()) is not None
    assert api_of("GET", path.encode()) is None


def test_the_other_paths_where_prompts_get_a_salt_are_in_the_guide():
    line = GUIDE[GUIDE.index("prompts in formats that are not read: ") :].partition(". Only")[0]
    named = re.findall(r"`(/[\w/]+)`", line)
    assert len(named) == 4
    assert all(generates("POST", path) and api_of("POST", path) is None for path in named)
