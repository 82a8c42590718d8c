"""The engines under test: the FakeEngine, and real ones where TEST_ENGINES names them, as `make test-engines` does."""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from .served import ServedEngine
from .under_test import EngineUnderTest

HERE = Path(__file__).parent
WANTED = {"fake", *os.environ.get("TEST_ENGINES", "").replace(",", " ").split()}
SECONDS = 600  # a real engine takes a minute or two to start, and one of these tests restarts it


def engines() -> list[Any]:
    """Those that are tested here."""
    without = pytest.mark.skipif(find_spec("sglang") is None, reason="SGLang is not installed")
    marks = {"sglang": [without]}
    return [pytest.param(name, marks=marks.get(name, [])) for name in ("fake", "vllm", "sglang") if name in WANTED]


@pytest.fixture(scope="session", params=engines())
def engine(request: pytest.FixtureRequest) -> Iterator[EngineUnderTest]:
    """One for all tests: a real one is started once."""
    one = made(request.param)
    try:
        one.start()
        yield one
    finally:
        one.close()


def made(name: str) -> EngineUnderTest:
    """An engine that is not started yet."""
    if name == "vllm":
        from .vllm_engine import VllmEngine

        return VllmEngine()
    if name == "sglang":
        from .sglang_engine import SglangEngine

        return SglangEngine()
    from .fake_engine import FakeUnderTest

    return FakeUnderTest()


@pytest.fixture(autouse=True)
def emptied(request: pytest.FixtureRequest) -> None:
    """Each test begins with an empty cache."""
    if "engine" in request.fixturenames:
        request.getfixturevalue("engine").reset()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.timeout(SECONDS))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """What failed with a real engine shows the end of its log."""
    report = yield
    engine = getattr(item, "funcargs", {}).get("engine")
    if report.failed and isinstance(engine, ServedEngine):
        report.sections.append((f"the end of {engine.name}'s log", engine.log()))
    return report
