"""The references are what the code says, and no public name is missing."""

from __future__ import annotations

import ast
import re

import pytest

import contextpilot_rag
from contextpilot_rag import adapter, batches, errors, retrieval, testing
from scripts import docs_reference

from .shell import ROOT
from .test_pages import PAGES, all_blocks

API = {path.name: path.read_text(encoding="utf-8") for path in (ROOT / "docs" / "reference" / "api").glob("*.md")}
SHOWN = set(re.findall(r"^::: (\S+)$", "\n".join(API.values()), re.MULTILINE))
PACKAGES = {
    "llama_index.postprocessor.contextpilot": "llama-index-postprocessor-contextpilot",
    "langchain_contextpilot": "langchain-contextpilot",
    "mem0_contextpilot": "mem0-contextpilot",
}


@pytest.mark.parametrize("name", ["settings.md", "cli.md", "metrics.md"])
def test_a_reference_is_what_the_code_says(name):
    written = (docs_reference.FOLDER / name).read_text(encoding="utf-8")
    assert written == docs_reference.pages()[name], "write it anew: python scripts/docs_reference.py"


def test_all_public_names_are_in_the_reference():
    assert {f"contextpilot_rag.{name}" for name in contextpilot_rag.__all__} <= SHOWN


@pytest.mark.parametrize("module", [batches, retrieval, testing])
def test_all_public_names_of_a_module_are_in_the_reference(module):
    assert {f"{module.__name__}.{name}" for name in module.__all__} <= SHOWN


def test_all_that_packages_for_frameworks_build_on_is_in_the_reference():
    own = {name for name, value in vars(adapter).items() if getattr(value, "__module__", "") == adapter.__name__}
    assert {f"contextpilot_rag.adapter.{name}" for name in own if not name.startswith("_")} <= SHOWN


def test_all_errors_have_a_docstring_for_their_page():
    kinds = [value for value in vars(errors).values() if isinstance(value, type) and issubclass(value, Exception)]
    assert "contextpilot_rag.errors" in SHOWN
    assert len(kinds) > 20
    assert all(kind.__doc__ for kind in kinds)


def test_all_that_pages_import_is_in_the_reference():
    """In whatever module it stands: the reference names each once."""
    names = {name.rpartition(".")[2] for name in SHOWN}
    for page in PAGES:
        for block in all_blocks(page):
            for module, imported in re.findall(r"from (contextpilot_rag[\w.]*) import ([\w, ]+)", block.text):
                for name in imported.replace(" ", "").split(","):
                    assert name in names or "demo" in module, f"{page}: {module}.{name}"


@pytest.mark.parametrize(("package", "distribution"), PACKAGES.items())
def test_all_public_names_of_the_frameworks_packages_are_in_the_reference(package, distribution):
    folder = ROOT / "integrations" / distribution / package.replace(".", "/")
    tree = ast.parse((folder / "__init__.py").read_text(encoding="utf-8"))
    (exported,) = [
        ast.literal_eval(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id == "__all__"
    ]
    shown = {name.rpartition(".")[2] for name in SHOWN if name.startswith(f"{package}.")}
    assert set(exported) == shown
