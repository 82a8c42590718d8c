"""Kinds of fault that were seen elsewhere: docs/comparison.md names tests for each; some of these tests are here."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

from contextpilot_rag import Context, ContextPilot

ROOT = Path(__file__).resolve().parents[1]
KINDS = (ROOT / "docs" / "comparison.md").read_text(encoding="utf-8").partition("## 45 kinds of fault")[2]
FOUND = {
    "repeats": "0 of 150 batches lost or gained a block",
    "pairing": "0 of 160 orders were of another context",
    "ids": "0 of 7 batches raised",
    "children": "none raised",
    "reset": "0 of 2 calls raised",
    "prints": "0 characters on standard output",
    "in-place": "the caller's messages stay as they were",
    "null-calls": "passes",
    "forms": "same 97%, CRLF 97%, in parts 97%, one line 97%",
    "rows": "0 of 60 rows that stand nowhere else are left out",
    "frames": "1 end(s) of the documents, 1 beginning(s) of document 3",
}


def load_probes():
    spec = importlib.util.spec_from_file_location("comparison_probes", ROOT / "benchmarks" / "comparison_probes.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


PROBES = load_probes()


def test_each_of_45_kinds_names_tests_that_are_there():
    rows = dict(re.findall(r"^\| (\d+) \|(.*)\|$", KINDS, re.MULTILINE))
    assert sorted(map(int, rows)) == list(range(1, 46))
    for number, row in rows.items():
        named = re.findall(r"`([\w/.-]+\.py)::(\w+)`", row)
        assert named, number
        for path, name in named:
            assert re.search(rf"^(?:async )?def {name}\(", (ROOT / path).read_text(encoding="utf-8"), re.MULTILINE), (
                name
            )


@pytest.mark.parametrize("name", FOUND)
def test_what_the_probes_find_here(name):
    assert PROBES.PROBES[name](PROBES.Ours) == FOUND[name]


def test_the_report_has_what_the_probes_find_here():
    reported = (ROOT / "benchmarks" / "comparison.md").read_text(encoding="utf-8")
    rows = {row.split("|")[1].strip(" `"): row.split("|")[-2].strip() for row in reported.splitlines() if "| `" in row}
    assert rows.keys() >= PROBES.PROBES.keys()
    assert {name: rows[name] for name in FOUND} == FOUND


@pytest.mark.parametrize("order", ["retrieved", "fixed", "balanced", "throughput"])
def test_later_batches_of_a_pilot_are_paired_with_their_questions(order):
    pilot = ContextPilot(order=order)
    for batch in range(4):
        contexts = [
            Context([f"{name} " * 30 for name in range(start % 7, start % 7 + 5)], f"question {batch}.{start}")
            for start in range(20)
        ]
        for alignment in pilot.plan(contexts, index=pilot.index):
            context = contexts[alignment.request.key]
            assert alignment.question == context.question
            assert sorted(block.text for block in alignment.blocks) == sorted(context.blocks)
            pilot.index.sent(alignment)
