"""What stands at the addresses that the pages name, and under the names that they use without making them."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

from contextpilot_rag.testing import FakeEngine
from scripts.docs_pages import PYTHON, CodeBlock

from .shell import ROOT

_ENGINE = re.compile(r"http://(10\.0\.0\.\d+|localhost|127\.0\.0\.1):8000\b")
_LOG = re.compile(r"redis://log(?:\.example)?:6379\b")
SERVICE = "http://127.0.0.1:8765"
PROXY = "http://127.0.0.1:8766"
_LINES = ("curl ", "contextpilot-rag engine ", "contextpilot-rag evaluate ")  # of shells, which ask a real server


@dataclass
class Stage:
    """What a page finds.

    Args:
        names: for its Python.
        addresses: what stands on the page, and what stands there for the test.
        apart: its sessions and its Python each have names of their own.
    """

    names: dict[str, Any] = field(default_factory=dict)
    addresses: dict[str, str] = field(default_factory=dict)
    apart: bool = False


@contextmanager
def staged(page: str, blocks: list[CodeBlock], folder: Path) -> Iterator[Stage]:
    """All that a page finds: its own stage, if ``stages/`` has one, and what goes for all.

    Args:
        page: its path in the repository.
        blocks: all of it.
        folder: where it runs.
    """
    furnish(folder)
    with ExitStack() as closing:
        stage = closing.enter_context(_own(page, folder))
        asking = "\n".join(_asking(block) for block in blocks if not block.not_run)
        closing.enter_context(_at_addresses(asking, stage, folder))
        closing.enter_context(_named("\n".join(block.text for block in blocks if block.language in PYTHON), stage))
        yield stage


def furnish(folder: Path) -> None:
    """A clone of the repository, as far as pages look at it."""
    for name in ("benchmarks", "examples", "integrations", "notebooks", "Makefile", "pyproject.toml"):
        (folder / name).symlink_to(ROOT / name)
    shutil.copytree(ROOT / "deploy", folder / "deploy")


def stage_name(page: str) -> str:
    """The module of a page's own stage.

    >>> stage_name("docs/quickstart/library.md"), stage_name("deploy/README.md")
    ('quickstart_library', 'deploy_readme')
    """
    return re.sub(r"\W", "_", page.removeprefix("docs/").removesuffix(".md")).lower()


@contextmanager
def _own(page: str, folder: Path) -> Iterator[Stage]:
    name = stage_name(page)
    if not (Path(__file__).parent / "stages" / f"{name}.py").exists():
        yield Stage()
        return
    with import_module(f".stages.{name}", __package__).stage(folder) as stage:
        yield stage


def _asking(block: CodeBlock) -> str:
    """What of a block asks a server that should be there."""
    if block.language in PYTHON:
        return block.text
    if block.language not in {"sh", "console"}:
        return ""
    return "\n".join(line for line in block.text.splitlines() if any(command in line for command in _LINES))


@contextmanager
def _at_addresses(text: str, stage: Stage, folder: Path) -> Iterator[None]:
    taken = stage.addresses
    with ExitStack() as closing:
        for found in _ENGINE.finditer(text):
            if found[0] not in taken:
                engine = closing.enter_context(FakeEngine(events=True))
                events, replay = engine.events_url, engine.replay_url
                taken[found[0]] = engine.base_url.removesuffix("/v1")
                taken |= {f"tcp://{found[1]}:5557": events, f"tcp://{found[1]}:5558": replay}
        if SERVICE in text and SERVICE not in taken:
            from tests.service.harness import serving

            taken[SERVICE] = closing.enter_context(serving()).address
        if PROXY in text and PROXY not in taken:
            taken[PROXY] = closing.enter_context(_proxy())
        for found in _LOG.finditer(text):
            if found[0] not in taken:
                from tests.replicas.log_server import LogServer

                taken[found[0]] = closing.enter_context(LogServer(folder)).url
        yield


@contextmanager
def _proxy() -> Iterator[str]:
    from tests.proxy.running import living

    with FakeEngine() as engine, living(upstreams=engine.base_url) as proxy:
        yield proxy.address


@contextmanager
def _named(python: str, stage: Stage) -> Iterator[None]:
    """Names that stand on pages as a reader's own."""
    names = {
        "model": "any",
        "MODEL": "any",
        "SYSTEM": "Answer from the documents.",
        "question": "What is a step?",
        "blocks": ["Slices count from zero.", "A step may be negative."],
        "blocks_1": ["Slices count from zero.", "A step may be negative."],
        "blocks_2": ["A step may be negative.", "A slice of everything is a copy."],
    }
    for name, value in names.items():
        if re.search(rf"\b{name}\b", python):
            stage.names.setdefault(name, value)
    with ExitStack() as closing:
        for name, kind in (("client", "OpenAI"), ("async_client", "AsyncOpenAI")):
            if re.search(rf"\b{name}\.", python) and name not in stage.names:
                engine = closing.enter_context(FakeEngine())
                stage.names[name] = getattr(import_module("openai"), kind)(base_url=engine.base_url, api_key="none")
        yield
