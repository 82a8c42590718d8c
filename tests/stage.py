"""Engines for the tests of sending: one whose every step a test decides, and one that takes its time to prefill."""

from __future__ import annotations

import asyncio
import json

from contextpilot_rag import ContextPilot, Usage
from contextpilot_rag.engines.endpoint import Answer, AsyncEndpoint
from contextpilot_rag.errors import EngineRefused
from contextpilot_rag.testing import FakeEngine, PagedPrefixCache


class Stage(AsyncEndpoint):
    """No engine at all: requests arrive and wait for what the test lets happen to them.

    Args:
        plan: whose requests come; they are called by their keys.
        answers: True: each request is answered at once.
    """

    def __init__(self, plan, answers=False, system=None):
        self._keys = {prompt.messages(system)[-1]["content"]: prompt.request.key for prompt in plan}
        self._answers = answers
        self._model = "stage"
        self._waiting = {}
        self.arrived = []
        self.failing = []  # what the next requests are answered with: an error, or None for an answer
        self.options = []

    def with_options(self, **_):
        return self

    async def chat(self, messages, *, on_first_token=None, **options):
        key = self._keys[messages[-1]["content"]]
        self.arrived.append(key)
        self.options.append(options)
        if self.failing:
            error = self.failing.pop(0)
            if error is not None:
                raise error
        elif not self._answers:
            self._waiting[key] = (on_first_token, asyncio.get_running_loop().create_future())
            await self._waiting[key][1]
        return Answer(f"answer to {key}", Usage(100, 40, 5), 0.25, 0.5)

    async def first_token(self, key):
        self._waiting[key][0]()
        await settle()

    async def answer(self, key):
        self._waiting.pop(key)[1].set_result(None)
        await settle()

    async def fail(self, key, error):
        self._waiting.pop(key)[1].set_exception(error)
        await settle()


async def settle():
    """Everything that can happen without the test's doing has happened."""
    for _ in range(30):
        await asyncio.sleep(0)


class LateEngine(FakeEngine):
    """A prompt can be found in its cache when it has been computed, and not before, as in a real engine."""

    def __init__(self, **options):
        super().__init__(**options)
        self._late = []
        self._computing = {}
        self._core.cache.serve = lambda *request: self._late.append(request)

    def receive(self, body, kind="chat"):
        answer = super().receive(body, kind)
        self._computing[answer.number] = self._late.pop()
        return answer

    def prefilled(self, answer):
        request = self._computing.pop(answer.number, None)
        if request is not None:
            PagedPrefixCache.serve(self._core.cache, *request)
        super().prefilled(answer)


def together(number):
    """A ``sleep`` in which the first requests wait until so many are in."""
    everybody = asyncio.Event()
    waiting = 0

    async def sleep(_):
        nonlocal waiting
        waiting += 1
        if waiting == number:
            everybody.set()
        await everybody.wait()

    return sleep


def batch(contexts, **options):
    """A plan of contexts: lists of block names by key; blocks are longer than a few blocks of the engine's cache."""
    texts = {
        name: f"{place} is the number of this block. " + f"It says {name} and {place}. " * 30
        for place, name in enumerate(sorted({name for names in contexts.values() for name in names}))
    }
    pilot = ContextPilot(min_gain=0, order_hint=False)
    given = {key: [(name, texts[name]) for name in names] for key, names in contexts.items()}
    return pilot, pilot.plan(given, **options)


def small(count=5, **options):
    return batch({f"q{number:03}": f"A{chr(66 + number % 20)}" for number in range(count)}, **options)


def lines(file):
    return [json.loads(line) for line in file.read_bytes().splitlines()]


def keys(file):
    return [line["key"] for line in lines(file)]


async def kept(file, plan, count, **options):
    """A run whose first so many requests are answered, and all others fail."""
    stage = Stage(plan)
    stage.failing = [*[None] * count, *[EngineRefused("odd", 400)] * (len(plan) - count)]
    report = await ContextPilot().run(plan, stage, concurrency=1, results=file, **options)
    assert len(report.failed) == len(plan) - count
