from __future__ import annotations

import ast
import re
import sys
from importlib.metadata import metadata
from pathlib import Path

import pytest

import contextpilot_rag
from contextpilot_rag import errors
from contextpilot_rag.errors import ContextPilotError, MissingPackage
from contextpilot_rag.testing import FakeEngine

SOURCES = Path(contextpilot_rag.__file__).parent


def promised() -> list[str]:
    """What `MissingPackage.of` tells users to install, wherever this package says so."""
    installs = []
    for module in SOURCES.rglob("*.py"):
        source = module.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(source)) if "MissingPackage.of(" in source else ():
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "MissingPackage.of":
                install = node.args[2]
                assert isinstance(install, ast.Constant), module
                installs.append(str(install.value))
    return installs


def test_the_tree_in_the_docstring_is_the_tree_of_classes():
    def tree(kind, depth=0):
        yield depth, kind.__name__
        for below in kind.__subclasses__():
            if below.__module__ == errors.__name__:
                yield from tree(below, depth + 1)

    lines = re.findall(r"^((?:│   |    )*(?:[├└]── )?)([A-Z]\w+)(?= |\(|$)", errors.__doc__, re.MULTILINE)
    shown = [(len(before) // 4, name) for before, name in lines if before or name == "ContextPilotError"]
    assert shown == list(tree(ContextPilotError))


def test_every_extra_that_an_error_names_can_be_installed():
    extras = set(metadata("contextpilot-rag").get_all("Provides-Extra") or ())
    named = [re.fullmatch(r"contextpilot-rag\[(\w+)\]", install) for install in promised() if install != "pandas"]
    assert len(named) >= 9
    assert {match[1] if match else "?" for match in named} <= extras


def test_nothing_else_raises_it_so_that_all_say_the_same():
    for module in SOURCES.rglob("*.py"):
        assert "raise MissingPackage(" not in module.read_text(encoding="utf-8"), module


@pytest.mark.parametrize(
    ("module", "package"),
    [("zmq.asyncio", "pyzmq"), ("faiss", "faiss-cpu"), ("rank_bm25", "rank-bm25"), ("uvicorn", "uvicorn")],
)
def test_packages_are_named_as_they_are_published(module, package):
    error = MissingPackage.of(ModuleNotFoundError(name=module), "this needs", "contextpilot-rag[x]")
    assert str(error) == f"this needs {package}: pip install 'contextpilot-rag[x]'"
    assert error.name == module
    assert isinstance(error, ContextPilotError)
    assert isinstance(error, ImportError)


def test_an_import_that_names_nothing_keeps_its_own_words():
    error = MissingPackage.of(ImportError("a library is broken"), "this needs", "contextpilot-rag[x]")
    assert str(error) == "this needs a library is broken: pip install 'contextpilot-rag[x]'"


def test_a_missing_module_of_ours_is_no_missing_package(monkeypatch):
    monkeypatch.setitem(sys.modules, "contextpilot_rag.testing.server", None)
    with pytest.raises(ModuleNotFoundError, match=r"testing\.server") as raised:
        FakeEngine().start()
    assert not isinstance(raised.value, MissingPackage)
