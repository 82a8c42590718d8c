"""Figures in the pages on limits and on the published package are those that scripts wrote into the reports."""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
BENCHMARKS = ROOT / "benchmarks"
REPORTS = [BENCHMARKS / name for name in ("README.md", "engines.md", "comparison.md")]
REPORTED = "\n".join(report.read_text(encoding="utf-8") for report in REPORTS)
PAGES = ["limits.md", "comparison.md"]
TRACES = re.compile(r"^\| ((?:multihoprag_stubs|tatqa|locomo|mtrag) \w+)[^|]*(\|.*)$", re.MULTILINE)


def prose(name):
    """A page without its blocks, which run, and without addresses."""
    text = (ROOT / "docs" / name).read_text(encoding="utf-8")
    text = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
    return re.sub(r"\]\([^)]*\)", "]", text)


@pytest.mark.parametrize("name", PAGES)
def test_every_ratio_and_share_was_written_by_a_script(name):
    figures = set(re.findall(r"(?<![\d.])\d+\.\d{2,3}(?![\d.])|(?<![\d.])\d+\.\d+%", prose(name)))
    assert figures
    missing = {figure for figure in figures if not re.search(rf"(?<![\d.]){re.escape(figure)}", REPORTED)}
    assert missing == set(), "a benchmark was run again: write what it found into the page"


@pytest.mark.parametrize("name", PAGES)
def test_rows_of_a_recorded_trace_have_figures_of_that_trace(name):
    reported = defaultdict(set)
    for trace, figures in TRACES.findall(REPORTED):
        reported[trace].update(re.findall(r"\d+\.\d+", figures))
    rows = TRACES.findall(prose(name))
    assert rows
    for trace, figures in rows:
        assert set(re.findall(r"\d+\.\d+", figures)) <= reported[trace], trace


@pytest.mark.parametrize("name", PAGES)
def test_every_benchmark_that_is_named_is_there_with_its_options(name):
    commands = set(re.findall(r"`python\s+benchmarks/(\w+)\.py((?:\s[^`]+)?)`", prose(name)))
    assert commands
    for script, options in commands:
        code = "".join(file.read_text(encoding="utf-8") for file in BENCHMARKS.glob(f"{script}*.py"))
        for option, value in re.findall(r"(--[\w-]+)(?:\s+([\w-]+))?", options):
            assert f'"{option}"' in code, (script, option)
            assert not value or value.isupper() or f'"{value}"' in code, (script, option, value)
