"""The engines that the demo can talk to. Each begins every arm with an empty cache."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass

from ..engines.endpoint import Endpoint, api_url
from ..errors import EngineUnavailable
from ..testing import FakeEngine
from .llama import LlamaEngine
from .run import SYSTEM

SECONDS = 300.0
FAKE_PREFILL = 20_000  # tokens a second that the FakeEngine pretends to prefill


@dataclass(frozen=True, slots=True)
class DemoEngine:
    """An engine for the demo.

    Args:
        name: what the output calls it.
        fresh: opens an endpoint whose cache knows nothing of the demo's prompts, with the system prompt to use.
        real: False where times and answers are made up.
        seconds: for a slow engine that can run twice side by side: the time for both arms together, which then take
            turns. None: one arm after the other, for as long as all questions need.
    """

    name: str
    fresh: Callable[[], AbstractContextManager[tuple[Endpoint, str]]]
    real: bool = True
    seconds: float | None = None


def given_engine(url: str, model: str | None) -> DemoEngine:
    """An engine that already runs somewhere.

    Its cache cannot be emptied from outside, so each arm's system prompt begins with a word that was never sent before:
    nothing can be shared with what came earlier, and every arm pays the same for it.
    """

    @contextmanager
    def fresh() -> Iterator[tuple[Endpoint, str]]:
        with Endpoint(url, model) as endpoint:  # may retry: one passing error must not end a long run
            yield endpoint, f"Session {secrets.token_hex(4)}. {SYSTEM}"

    return DemoEngine(api_url(url), fresh)


def llama_engine() -> DemoEngine:
    """llama.cpp on this machine, started anew for each arm.

    Raises:
        EngineUnavailable: it cannot run here; the message says why.
    """

    @contextmanager
    def fresh() -> Iterator[tuple[Endpoint, str]]:
        with LlamaEngine() as engine, Endpoint(engine.base_url, max_retries=0) as endpoint:
            yield endpoint, SYSTEM

    with LlamaEngine():  # it must also start, not only be installed
        pass
    return DemoEngine(LlamaEngine.name, fresh, seconds=SECONDS)


def fake_engine() -> DemoEngine:
    """The stand-in: real cache behaviour, no model, invented times."""

    @contextmanager
    def fresh() -> Iterator[tuple[Endpoint, str]]:
        with (
            FakeEngine(prefill_tokens_per_second=FAKE_PREFILL) as engine,
            Endpoint(engine.base_url, max_retries=0) as endpoint,
        ):
            yield endpoint, SYSTEM

    return DemoEngine("FakeEngine", fresh, real=False)


def choose_engine(url: str | None, model: str | None, kind: str = "auto") -> tuple[DemoEngine, str | None]:
    """The engine to use, and why it is not the default one, if it is not.

    Raises:
        EngineUnavailable: ``kind="llama"`` was asked for and cannot run here.
    """
    if url is not None:
        return given_engine(url, model), None
    if kind == "fake":
        return fake_engine(), "asked for"
    try:
        return llama_engine(), None
    except EngineUnavailable as error:
        if kind == "llama":
            raise
        return fake_engine(), str(error)
