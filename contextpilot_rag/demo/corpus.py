"""The demo's documents: the documentation that every Python carries, or a folder of text and Markdown files."""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import ModuleType

from ..errors import CorpusError
from ..tokens import DEFAULT_BYTES_PER_TOKEN
from ..types import Block

BLOCK_TOKENS = 120
SUFFIXES = (".md", ".markdown", ".rst", ".txt")
MAX_FILE_BYTES = 20_000_000

# The standard library as most people use it; all import without side effects and exist from Python 3.10 on.
MODULES = (
    "abc argparse array ast asyncio base64 bisect builtins calendar cmath codecs collections collections.abc "
    "concurrent.futures configparser contextlib contextvars copy csv ctypes dataclasses datetime decimal difflib "
    "dis doctest email.message email.policy enum errno fileinput fnmatch fractions functools gc getpass gettext "
    "glob gzip hashlib heapq hmac html http.client http.server importlib importlib.resources inspect io ipaddress "
    "itertools json keyword linecache locale logging logging.config logging.handlers math mimetypes "
    "multiprocessing numbers operator os os.path pathlib pdb pickle pkgutil platform pprint profile queue random "
    "re reprlib sched secrets select selectors shelve shlex shutil signal smtplib socket socketserver sqlite3 ssl "
    "stat statistics string struct subprocess sys tarfile tempfile textwrap threading time timeit tokenize "
    "traceback types typing unicodedata unittest unittest.mock urllib.parse urllib.request uuid warnings wave "
    "weakref xml.etree.ElementTree zipfile zlib"
).split()

_PARAGRAPH = re.compile(r"\n[^\S\n]*(?:\n[^\S\n]*)+")


def python_documentation(block_tokens: int = BLOCK_TOKENS) -> list[Block]:
    """The language reference (``pydoc_data.topics``) and the standard library's docstrings, as blocks.

    Args:
        block_tokens: about how long a block is to be.
    """
    topics = importlib.import_module("pydoc_data.topics").topics
    blocks: dict[str, Block] = {}
    for name, text in sorted(topics.items()):
        _add(blocks, f"topics/{name}", name, _paragraphs(text), block_tokens)
    for name in MODULES:
        try:
            module = importlib.import_module(name)
        except ImportError:  # a Python built without it (sqlite3, ssl, ...)
            continue
        _add(blocks, f"lib/{name}", name, _docstrings(module), block_tokens)
    return list(blocks.values())


def folder(path: Path, block_tokens: int = BLOCK_TOKENS) -> list[Block]:
    """Every text and Markdown file below a folder, as blocks; ids are relative paths and block numbers.

    Args:
        path: the folder, or one file.
        block_tokens: about how long a block is to be.

    Raises:
        CorpusError: there is no such folder, nothing to read in it, or something in it cannot be read or is too large.
    """
    try:
        return _folder(path, block_tokens)
    except CorpusError:
        raise
    except (OSError, ValueError) as error:  # no right to read, a name that cannot be, a broken disk
        raise CorpusError(f"cannot read documents from {str(path)!r}: {error}") from error


def _folder(path: Path, block_tokens: int) -> list[Block]:
    if not path.exists():
        raise CorpusError(f"there is no file or folder {str(path)!r}")
    files = [path] if path.is_file() else sorted(file for file in path.rglob("*") if file.suffix.lower() in SUFFIXES)
    blocks: dict[str, Block] = {}
    for file in files:
        if not file.is_file():
            continue
        if file.stat().st_size > MAX_FILE_BYTES:
            raise CorpusError(f"{str(file)!r} is larger than {MAX_FILE_BYTES:,} bytes; split it or leave it out")
        text = file.read_text(encoding="utf-8", errors="replace")
        name = file.name if path.is_file() else file.relative_to(path).as_posix()
        name = name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")  # file names may be any bytes
        _add(blocks, name, name, _paragraphs(text), block_tokens)
    if not blocks:
        raise CorpusError(f"no text in {str(path)!r}: looked for files ending in {', '.join(SUFFIXES)}")
    return list(blocks.values())


def cut(paragraphs: Iterable[str], block_tokens: int) -> Iterator[str]:
    r"""Paragraphs as pieces of about ``block_tokens`` tokens: short ones together, long ones cut at a line or a blank.

    Args:
        paragraphs: texts that are not to be torn apart where it can be helped.
        block_tokens: aimed at; by the estimate of four bytes a token.

    Raises:
        CorpusError: block_tokens is below 1.

    >>> list(cut(["one two", "three", "four five six"], block_tokens=4))
    ['one two\n\nthree', 'four five six']
    """
    if block_tokens < 1:
        raise CorpusError(f"a block must have at least one token, not {block_tokens}")
    limit = int(block_tokens * DEFAULT_BYTES_PER_TOKEN)
    piece = ""
    for paragraph in paragraphs:
        if piece and len(piece) + len(paragraph) > limit * 1.1:
            yield piece
            piece = ""
        piece = f"{piece}\n\n{paragraph}" if piece else paragraph
        start = 0
        while len(piece) - start > limit * 1.4:
            end = _break(piece, start, limit)
            yield piece[start:end].rstrip()
            start = end
            while start < len(piece) and piece[start].isspace():
                start += 1
        piece = piece[start:]
    if piece:
        yield piece


def _break(text: str, start: int, limit: int) -> int:
    """Where to cut a long text: at a line, else behind a sentence, else at a blank, else anywhere."""
    middle, last = start + limit // 2, start + limit
    end = max(text.rfind("\n", middle, last), text.rfind(". ", middle, last) + 1)
    if end <= middle:
        end = text.rfind(" ", start + 1, last)
    return end if end > start else last


def _add(blocks: dict[str, Block], name: str, title: str, paragraphs: Iterable[str], block_tokens: int) -> None:
    """Cut a document and add what is new. Each block begins with its document's title, as retrieval pipelines do."""
    for number, piece in enumerate(cut(paragraphs, block_tokens)):
        text = f"{title}\n{piece}"
        blocks.setdefault(text, Block(text, id=f"{name}#{number}"))


def _paragraphs(text: str) -> Iterator[str]:
    return (paragraph.strip("\n") for paragraph in _PARAGRAPH.split(text) if paragraph.strip())


def _docstrings(module: ModuleType) -> Iterator[str]:
    """A module's own docstring by paragraphs, then one paragraph for each public function, class and method."""
    yield from _paragraphs(inspect.getdoc(module) or "")
    for name, member in _public_members(module):
        yield from _described(name, member)
        if inspect.isclass(member):
            for method_name, method in sorted(vars(member).items()):
                if not method_name.startswith("_"):
                    yield from _described(f"{name}.{method_name}", method)


def _public_members(module: ModuleType) -> Iterator[tuple[str, object]]:
    exported = getattr(module, "__all__", None)
    names = sorted(exported if exported is not None else vars(module))
    for name in names:
        member = getattr(module, name, None)
        if name.startswith("_") or not (inspect.isclass(member) or inspect.isroutine(member)):
            continue
        if exported is not None or getattr(member, "__module__", None) == module.__name__:
            yield name, member


def _described(name: str, member: object) -> Iterator[str]:
    text = getattr(member, "__doc__", None)
    if isinstance(text, str) and len(text) > 30:
        yield f"{name}: {inspect.cleandoc(text)}"
