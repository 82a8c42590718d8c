"""The documentation's blocks of code, and running those in Python.

A page's blocks run in their order, in one namespace: Python as it stands, sessions (``pycon``) as doctests. The tests
of this package run the guides with it, those of the packages for frameworks their own pages.
"""

from __future__ import annotations

import ast
import asyncio
import doctest
import importlib
import inspect
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PYTHON = frozenset({"python", "pycon"})
_FENCE = re.compile(r"^( *)```([^\n`]*)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
_NOT_RUN = re.compile(r"<!-- not run: ((?:(?!-->).)+) -->\s*\Z", re.DOTALL)


@dataclass(frozen=True, slots=True)
class CodeBlock:
    """A fenced block of a page.

    Args:
        language: what stands behind the opening fence.
        text: between the fences.
        line: of the page, where the text begins, counted from 1.
        not_run: why it is only read; empty: it runs.
    """

    language: str
    text: str
    line: int
    not_run: str = ""


class BlockFailed(AssertionError):
    """A block that does not do what stands there."""


def blocks_of(page: str) -> list[CodeBlock]:
    r"""All fenced blocks of a page.

    >>> fence = "`" * 3
    >>> blocks_of(f"# A page\n\n<!-- not run: it takes a GPU -->\n{fence}sh\nmake coffee\n{fence}\n")
    [CodeBlock(language='sh', text='make coffee\n', line=5, not_run='it takes a GPU')]
    """
    found = []
    for fence in _FENCE.finditer(page):
        indent = len(fence[1])
        text = "".join(
            line[indent:] if line[:indent].isspace() else line for line in fence[3].splitlines(keepends=True)
        )
        reason = _NOT_RUN.search(page[: fence.start()])
        line = page.count("\n", 0, fence.start(3)) + 1
        found.append(CodeBlock(fence[2].strip(), text, line, reason[1] if reason else ""))
    return found


class PythonOfPage:
    """Runs a page's Python.

    Args:
        name: of the page, for messages.
        names: what its blocks find there; they add theirs.
        addresses: what stands on the page, and what stands there for the test.
    """

    def __init__(self, name: str, names: dict[str, Any], addresses: Mapping[str, str] | None = None) -> None:
        self._name = name
        self.names = names | {"__name__": "__page__"}
        self._addresses = addresses or {}
        self._loop: asyncio.AbstractEventLoop | None = None

    def run(self, block: CodeBlock) -> None:
        """Run a block.

        Raises:
            BlockFailed: a session whose output is another.
            Exception: whatever a block raises.
        """
        text = replaced(block.text, self._addresses)
        if block.language == "pycon":
            self._session(text, block.line)
        else:
            self._program(text, block.line)

    def close(self) -> None:
        """Close what the page left open: pilots and clients, and the event loop of its awaits."""
        held = list(self.names.values())
        for value in held + [one for kept in held if isinstance(kept, dict) for one in kept.values()]:
            close = getattr(value, "aclose", None) or getattr(value, "close", None)
            if type(value).__module__.partition(".")[0] in {"contextpilot_rag", "openai"} and close is not None:
                closed = close()
                if inspect.isawaitable(closed):
                    self._await(closed)
        if self._loop is not None:
            self._loop.close()

    def _program(self, text: str, line: int) -> None:
        code = compiled(text, line, self._name)
        result = eval(code, self.names)  # noqa: S307  the page's own
        if inspect.iscoroutine(result):
            self._await(result)

    def _await(self, awaitable: Any) -> None:  # noqa: ANN401
        if self._loop is None:
            self._loop = asyncio.new_event_loop()

        async def awaited() -> None:
            await awaitable

        self._loop.run_until_complete(awaited())

    def _session(self, text: str, line: int) -> None:
        examples = doctest.DocTestParser().get_doctest(text, {}, self._name, self._name, line - 1)
        if not examples.examples:
            raise BlockFailed(f"{self._name}:{line}: a session without a prompt (>>>)")
        examples.globs = self.names
        said: list[str] = []
        failed, _ = doctest.DocTestRunner(verbose=False).run(examples, out=said.append, clear_globs=False)
        if failed:
            raise BlockFailed("".join(said))


def compiled(text: str, line: int, name: str) -> Any:  # noqa: ANN401
    """A block as code that says where it stands when it fails; await may stand in it."""
    return compile("\n" * (line - 1) + text, name, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


def check_imports(text: str, line: int, name: str) -> None:
    """That a block that does not run could: it is Python, and what it takes from this package is there.

    Raises:
        BlockFailed: a name that is not there.
        SyntaxError: it is no Python.
    """
    compiled(text, line, name)
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.ImportFrom) or not (node.module or "").startswith("contextpilot_rag"):
            continue
        module = importlib.import_module(node.module or "")
        for one in node.names:
            if not hasattr(module, one.name):
                raise BlockFailed(f"{name}:{line + node.lineno - 1}: {node.module} has no {one.name}")


def replaced(text: str, addresses: Mapping[str, str]) -> str:
    """A text with other addresses in it.

    >>> replaced("ask http://one:8000/v1", {"http://one:8000": "http://127.0.0.1:4711"})
    'ask http://127.0.0.1:4711/v1'
    """
    for address in sorted(addresses, key=len, reverse=True):
        text = re.sub(rf"{re.escape(address)}(?!\d)", lambda _, there=addresses[address]: there, text)
    return text


def run_python(path: Path, names: dict[str, Any], addresses: Mapping[str, str] | None = None) -> int:
    """Run all Python of a page, in its order.

    Args:
        path: the page.
        names: what its blocks find there.
        addresses: what stands on the page, and what stands there for the test.

    Returns:
        How many blocks were run.

    Raises:
        BlockFailed: a session whose output is another.
        Exception: whatever a block raises.
    """
    blocks = [block for block in blocks_of(path.read_text(encoding="utf-8")) if block.language in PYTHON]
    page = PythonOfPage(path.name, names, addresses)
    try:
        for block in blocks:
            if block.not_run:
                check_imports(block.text, block.line, path.name)
            else:
                page.run(block)
    finally:
        page.close()
    return sum(not block.not_run for block in blocks)
