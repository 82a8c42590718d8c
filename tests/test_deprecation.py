from __future__ import annotations

import ast
import asyncio
import inspect
import sys
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import pytest

import contextpilot_rag
from contextpilot_rag import __version__
from contextpilot_rag.deprecation import deprecated, renamed_argument, renamed_names

PACKAGE = Path(contextpilot_rag.__file__).parent
FORMER: dict[str, int] = {"count": 7}  # a type checker refuses the name already, as it should
MARKS = {"deprecated", "renamed_argument", "renamed_names"}


@deprecated(since="1.2", removed_in="2.0", instead="fresh")
def stale(number: int) -> int:
    """Doubles."""
    return 2 * number


class Shelf:
    @property
    @deprecated(since="1.2", removed_in="2.0", instead="Shelf.size")
    def length(self) -> int:
        return 3

    @classmethod
    @deprecated(since="1.2", removed_in="2.0", instead="Shelf()")
    def make(cls) -> Shelf:
        return cls()

    @renamed_argument("count", "blocks", since="1.2", removed_in="2.0")
    def keep(self, blocks: int = 1) -> int:
        return blocks


@deprecated(since="1.2", removed_in="2.0", instead="Shelf")
@dataclass(frozen=True)
class Rack:
    blocks: int


class OwnRack(Rack):
    pass


@deprecated(since="1.2", removed_in="2.0", instead="nothing")
async def awaited() -> int:
    return 4


@pytest.mark.parametrize(
    ("use", "result", "says"),
    [
        (lambda: stale(2), 4, "stale is deprecated since 1.2 and goes with 2.0; use fresh"),
        (lambda: Shelf().length, 3, "Shelf.length is deprecated"),
        (lambda: type(Shelf.make()), Shelf, "Shelf.make is deprecated"),
        (lambda: Rack(5).blocks, 5, "Rack is deprecated"),
        (lambda: Shelf().keep(**FORMER), 7, "Shelf.keep: the argument count is deprecated .* use blocks"),
        (lambda: asyncio.run(awaited()), 4, "awaited is deprecated"),
    ],
)
def test_what_is_deprecated_works_and_warns_where_it_is_used(use, result, says):
    with pytest.warns(DeprecationWarning, match=says) as caught:
        assert use() == result
    assert [warning.filename for warning in caught] == [__file__]


def test_what_is_not_deprecated_does_not_warn():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert Shelf().keep(blocks=7) == Shelf().keep(7) == 7
        assert OwnRack(5).blocks == 5


def test_both_names_of_an_argument_are_refused():
    with pytest.raises(TypeError, match=r"keep\(\) got both blocks and count"):
        Shelf().keep(blocks=1, count=1)


def test_a_marked_function_is_what_it_was():
    assert stale.__doc__ == "Doubles."
    assert list(inspect.signature(stale).parameters) == ["number"]
    assert Rack.__name__ == "Rack"


@pytest.mark.skipif(sys.version_info < (3, 12), reason="older Pythons cannot be told")
def test_a_marked_coroutine_function_is_one():
    assert inspect.iscoroutinefunction(awaited)


def test_a_module_knows_its_former_names():
    module = {"__name__": "shelves", "Shelf": Shelf}
    former = renamed_names(module, {"Board": "Shelf"}, since="1.2", removed_in="2.0")
    with pytest.warns(DeprecationWarning, match="Board is deprecated since 1.2 and goes with 2.0; use Shelf"):
        assert former("Board") is Shelf
    with pytest.raises(AttributeError, match="module 'shelves' has no attribute 'Plank'"):
        former("Plank")


def marks(source: str) -> Iterator[tuple[str, str, str]]:
    """(the mark, since, removed_in) of each use in a source."""
    for node in ast.walk(ast.parse(source)) if any(mark in source for mark in MARKS) else ():
        if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] in MARKS:
            given = {
                keyword.arg: ast.literal_eval(keyword.value)
                for keyword in node.keywords
                if keyword.arg in {"since", "removed_in"}
            }
            yield ast.unparse(node), given["since"], given["removed_in"]


def overdue(source: str, version: str) -> list[str]:
    """The marks of what a version should no longer have, and of what is removed by no major version."""
    now = tuple(map(int, version.split(".")[:2]))
    found = []
    for mark, since, removed_in in marks(source):
        first, last = (tuple(map(int, text.split("."))) for text in (since, removed_in))
        if now >= last or last[1:] != (0,) or first >= last:
            found.append(mark)
    return found


def test_what_was_to_go_with_this_version_is_gone():
    """The policy in CONTRIBUTING: only a major version removes, and what it was said to remove."""
    sources = [file for file in PACKAGE.rglob("*.py") if file != PACKAGE / "deprecation.py"]
    sources += [file for file in (PACKAGE.parent / "integrations").glob("*/*/**/*.py") if "tests" not in file.parts]
    assert [(file, mark) for file in sources for mark in overdue(file.read_text(encoding="utf-8"), __version__)] == []


@pytest.mark.parametrize(("version", "late"), [("1.0.0", 0), ("1.9.3", 0), ("2.0.0", 1), ("2.1.0", 1), ("3.0.0", 1)])
def test_that_test_would_notice(version, late):
    source = "@deprecated(since='1.2', removed_in='2.0', instead='new')\ndef old(): ..."
    assert len(overdue(source, version)) == late
    assert len(overdue(source.replace("2.0", "1.10"), version)) == 1


def test_a_class_whose_objects_are_made_before_they_are_filled_takes_its_arguments():
    mark = deprecated(since="1.2", removed_in="2.0", instead="another")

    @mark
    class Pair(NamedTuple):
        one: int
        other: int = 2

    @mark
    class Name(str):
        __slots__ = ()

    @mark
    class Plain:
        pass

    with pytest.warns(DeprecationWarning, match="use another"):
        assert Pair(1) == (1, 2)
    with pytest.warns(DeprecationWarning, match="use another"):
        assert Name("x") == "x"
    with pytest.warns(DeprecationWarning, match="use another"), pytest.raises(TypeError):
        Plain(1)
