"""Every block of the documentation works as it stands there."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from scripts.docs_pages import PYTHON, BlockFailed, CodeBlock, PythonOfPage, blocks_of, check_imports, replaced

from .calls import check
from .shell import ROOT, Shell
from .standins import staged

PATTERNS = (
    "README.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "deploy/README.md",
    "docs/**/*.md",
    "integrations/**/README.md",
    "notebooks/README.md",
)
PAGES = sorted({path.relative_to(ROOT).as_posix() for one in PATTERNS for path in ROOT.glob(one)})
SHELL = frozenset({"sh", "console"})
PARSED = frozenset({"json", "yaml"})
SHOWN = frozenset({"text"})  # pictures, formats, rules of other programs

# Pages whose Python other tests run, as it needs what they have: a framework, or a Ray that is started once.
ELSEWHERE = {
    "docs/batches.md": "tests/batches/test_on_ray.py",
    "docs/quickstart/langchain.md": "integrations/langchain-contextpilot/tests/integration_tests/test_quickstart.py",
    "docs/quickstart/llamaindex.md": "integrations/llama-index-postprocessor-contextpilot/tests/test_quickstart.py",
    "docs/quickstart/mem0.md": "integrations/mem0-contextpilot/tests/test_quickstart.py",
    "integrations/langchain-contextpilot/README.md": "integrations/langchain-contextpilot/pyproject.toml",
    "integrations/llama-index-postprocessor-contextpilot/README.md": "integrations/"
    "llama-index-postprocessor-contextpilot/pyproject.toml",
    "integrations/mem0-contextpilot/README.md": "integrations/mem0-contextpilot/pyproject.toml",
}


def all_blocks(page: str) -> list[CodeBlock]:
    return blocks_of((ROOT / page).read_text(encoding="utf-8"))


SERVICE = "docs/service.md"  # whose answers are looked at, too
WITH_BLOCKS = [page for page in PAGES if all_blocks(page)]


@pytest.mark.parametrize("page", [page for page in WITH_BLOCKS if page != SERVICE])
def test_all_blocks_work_as_they_stand_there(page, tmp_path, monkeypatch):
    run(page, tmp_path, monkeypatch)


def test_the_service_answers_as_its_guide_shows(tmp_path, monkeypatch):
    printed = run(SERVICE, tmp_path, monkeypatch)
    first, second, observed, talk, plan = [one for text in printed if text.startswith("{") for one in objects(text)]
    shown = next(json.loads(block.text) for block in all_blocks(SERVICE) if block.language == "json")
    assert second == shown | {"ticket": second["ticket"]}
    assert first["order"] == [0, 1]
    assert observed == {"counted": True}
    assert talk["labels"] == [3, 2]
    assert talk["location_hints"] == {"2": "(given above)"}
    assert [alignment["key"] for alignment in plan["alignments"]] == ["q1", "q3", "q2"]


def objects(text: str) -> Iterator[Any]:
    """JSON objects that follow each other without anything between them."""
    while text:
        found, end = json.JSONDecoder().raw_decode(text)
        yield found
        text = text[end:]


def run(page: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Run a page; what its shell blocks printed."""
    blocks = all_blocks(page)
    printed = []
    monkeypatch.chdir(folder)
    with staged(page, blocks, folder) as stage:
        shell = Shell(folder)
        python = PythonOfPage(page, stage.names, stage.addresses)
        sessions = PythonOfPage(page, dict(stage.names), stage.addresses) if stage.apart else python
        try:
            for block in blocks:
                text = replaced(block.text, stage.addresses)
                if block.language in PYTHON:
                    if page not in ELSEWHERE and not block.not_run:
                        (sessions if block.language == "pycon" else python).run(block)
                    elif block.language == "python":
                        check_imports(block.text, block.line, page)
                elif block.language in SHELL and block.not_run:
                    shell.parse(block, text)
                elif block.language == "sh":
                    printed.append(shell.run(block, text))
                elif block.language == "console":
                    shell.run_session(block, text)
                else:
                    parse(page, block)
        finally:
            python.close()
            sessions.close()
        for call in shell.calls():
            check(call, folder)
    return printed


def parse(page: str, block: CodeBlock) -> None:
    """That what is no program is what it says."""
    if block.language == "json":
        json.loads(block.text)
    elif block.language == "yaml":
        assert list(import_module("yaml").safe_load_all(block.text))
    elif block.language not in SHOWN:
        raise BlockFailed(f"{page}:{block.line}: what is a block of {block.language or 'no language'}?")


@pytest.mark.parametrize(("page", "test"), ELSEWHERE.items())
def test_what_other_tests_run_they_do_run(page, test):
    text = (ROOT / test).read_text(encoding="utf-8")
    assert Path(page).name in text
    if test.endswith(".toml"):  # as doctests, which blocks of plain Python are not
        assert "--doctest-glob=README.md" in text
        plain = [block for block in all_blocks(page) if block.language == "python"]
        assert len(plain) <= 1


def test_what_does_not_run_says_why():
    texts = [(ROOT / page).read_text(encoding="utf-8") for page in PAGES]
    marks = [mark for text in texts for mark in re.findall("^ *<!-- not run", text, re.MULTILINE)]
    reasons = [block.not_run for page in PAGES for block in all_blocks(page) if block.not_run]
    assert len(marks) == len(reasons) == sum(len(reason) > 10 for reason in reasons)


def test_no_page_is_forgotten():
    assert len(WITH_BLOCKS) > 20
    assert {"README.md", "docs/service.md", "docs/quickstart/library.md"} <= set(WITH_BLOCKS)
