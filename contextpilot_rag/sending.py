"""Sending a plan: so many requests at a time, none before the one that computes its prefix, failures tried again.

A request that shares a prefix with one under way would compute it a second time: the engine has it in its cache only
when the first is prefilled. So it waits for that one's first token.
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from .asking import Asker
from .batch import Plan
from .engines.endpoint import Answer, AsyncEndpoint
from .engines.engine import place_of
from .engines.shown import shown_url
from .engines.status import EngineStatus
from .errors import EngineBrokeOff, EngineError, EngineRefused, EngineUnreachable, SettingsError
from .prompt.prompt import AlignedPrompt
from .results import ResultsFile, RunReport, RunResult, fingerprints
from .run_options import RunOptions
from .types import Alignment, Usage

if TYPE_CHECKING:
    import openai
    import tenacity

    Client = AsyncEndpoint | openai.AsyncOpenAI | str

logger = logging.getLogger("contextpilot_rag")

T = TypeVar("T")
RETRY_AFTER_MOST = 60.0
BACKOFF_MOST = 30.0


async def send_plan(
    plan: Plan[AlignedPrompt],
    client: Client,
    how: RunOptions,
    asker: Asker,
    observe: Callable[[Alignment, Usage | None], Awaitable[object]],
) -> RunReport:
    """Send a plan.

    Args:
        plan: what `ContextPilot.plan` returned.
        client: where to send it.
        how: see `ContextPilot.run`.
        asker: the index is told of each request when it goes out.
        observe: is told what the engine reported for it.

    Raises:
        SettingsError, ResultsError, EngineError: as for `ContextPilot.run`.
    """
    _check_plan(plan, how)
    sent = _teller(asker)
    endpoint, borrowed = _endpoint(client, how.model)
    plan = _at(plan, asker, endpoint)
    try:
        if how.results is None or not len(plan):
            return await _Run(plan, how, endpoint, sent, observe).report()
        with ResultsFile(how.results, fingerprints(plan.alignments, how.system, how.asked)) as file:
            if endpoint.model is not None:
                file.check_model(endpoint.model)
            return await _Run(plan, how, endpoint, sent, observe, file).report()
    finally:
        if not borrowed:
            await endpoint.close()


class _Run:
    """One sending of a plan; positions are the plan's."""

    def __init__(
        self,
        plan: Plan[AlignedPrompt],
        how: RunOptions,
        endpoint: AsyncEndpoint,
        sent: Callable[[Alignment], Awaitable[None]],
        observe: Callable[[Alignment, Usage | None], Awaitable[object]],
        file: ResultsFile | None = None,
    ) -> None:
        self._plan = plan
        self._how = how
        self._endpoint = endpoint
        self._sent = sent
        self._observe = observe
        self._file = file
        answers = {} if file is None else file.answers
        self._results = {
            position: answers[prompt.request.key]
            for position, prompt in enumerate(plan)
            if answers and prompt.request.key in answers
        }
        self._ready: list[int] = []  # a heap of positions that may go
        self._waiting: dict[int, list[int]] = {}  # by whom they wait for
        self._changed = asyncio.Event()  # somebody may go, or is done
        self._failed_in_a_row = 0

    async def report(self) -> RunReport:
        remaining = [position for position in range(len(self._plan)) if position not in self._results]
        if remaining:
            model = await _retried(self._endpoint.find_model, self._how.retries)
            self._endpoint = self._endpoint.with_options(model=model)
            if self._file is not None:
                self._file.begin(model)
            for position, source in _sources(self._plan, remaining).items():
                if source < 0:
                    self._ready.append(position)  # in ascending order, so it is a heap
                else:
                    self._waiting.setdefault(source, []).append(position)
            with _bar(self._how.progress, len(self._plan), len(self._results)) as self._progress:
                await self._send_all()
        return RunReport(tuple(self._results[position] for position in range(len(self._plan))))

    async def _send_all(self) -> None:
        running: set[asyncio.Task[None]] = set()
        try:
            while self._ready or running:
                self._changed.clear()
                while self._ready and len(running) < self._how.concurrency:
                    task = asyncio.create_task(self._send(heapq.heappop(self._ready)))
                    task.add_done_callback(lambda _: self._changed.set())
                    running.add(task)
                await self._changed.wait()
                for task in [task for task in running if task.done()]:
                    task.result()
                    running.discard(task)
        finally:
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)

    async def _send(self, position: int) -> None:
        prompt = self._plan[position]
        await self._sent(prompt)
        messages, options = prompt.messages(self._how.system), self._how.options_for(prompt)
        attempts = 0

        async def attempt() -> Answer:
            nonlocal attempts
            attempts += 1
            return await self._endpoint.chat(messages, on_first_token=partial(self._prefilled, position), **options)

        key, failure = prompt.request.key, None
        try:
            answer = await _retried(attempt, self._how.retries)
            result = RunResult(key, answer.text, answer.usage, answer.ttft, answer.seconds, attempts)
        except EngineError as error:
            failure = error
            result = RunResult(key, attempts=attempts, error=str(error))
        self._prefilled(position)
        self._results[position] = result
        if self._file is not None:
            self._file.append(result)
        if failure is None:
            await self._observe(prompt, result.usage)
        self._progress(result)
        self._count(failure)

    def _prefilled(self, position: int) -> None:
        """Whoever waited for this one may go. Told more than once."""
        for waiting in self._waiting.pop(position, ()):
            heapq.heappush(self._ready, waiting)
        self._changed.set()

    def _count(self, failure: EngineError | None) -> None:
        self._failed_in_a_row = 0 if failure is None else self._failed_in_a_row + 1
        if failure is None or self._failed_in_a_row < self._how.give_up_after:
            return
        answered = sum(result.error is None for result in self._results.values())
        kept = "lost: give results= a file to keep them in"
        if self._how.results is not None:
            kept = f"in {self._how.results}: run again to send the others"
        given_up = f"gave up: {self._failed_in_a_row} requests failed in a row"
        failure.args = (f"{failure} ({given_up}; the answers to {answered} of {len(self._plan)} are {kept})",)
        raise failure


def _sources(plan: Plan[AlignedPrompt], remaining: Sequence[int]) -> dict[int, int]:
    """For each remaining request, whom it waits for; -1: for nobody.

    Whoever would have waited for one that was answered in an earlier run waits for the first remaining one with which
    it shares the longest prefix: the engine may have been started anew since.
    """
    left = set(remaining)
    sources = {position: plan.sources[position] for position in remaining}
    if left.issuperset(source for source in sources.values() if source >= 0):
        return sources
    import numpy as np

    from .index.reuse import Sequences

    numbers: dict[object, int] = {}
    sequences = []
    for position in remaining:
        request = plan[position].request
        blocks = [request.blocks[rank].key for rank in plan[position].order]
        # The namespace goes first: nothing is shared across.
        sequences.append([numbers.setdefault(name, len(numbers)) for name in (request.namespace, *blocks)])
    reuse = Sequences(sequences).reuse(np.arange(len(remaining)))
    for place, (position, source) in enumerate(sources.items()):
        if source >= 0 and source not in left:
            sources[position] = remaining[int(reuse.source[place])] if reuse.blocks[place] > 1 else -1
    return sources


def _teller(asker: Asker) -> Callable[[Alignment], Awaitable[None]]:
    """Tells an index of requests as they go out. One that cannot be told, being older, fails once for all of them."""
    able = True

    async def tell(alignment: Alignment) -> None:
        nonlocal able
        if not able:
            return
        try:
            await asker.asent(alignment)
        except Exception as error:  # noqa: BLE001  fails open: the request can be sent all the same
            able = hasattr(asker.index, "sent")
            asker.failures.fail(error, "sent")

    return tell


def _at(plan: Plan[AlignedPrompt], asker: Asker, endpoint: AsyncEndpoint) -> Plan[AlignedPrompt]:
    """The same plan for the engine that it is sent to, if that is one that is followed."""
    engines: Sequence[EngineStatus] = getattr(asker.index, "engines", tuple)()
    place = place_of(endpoint.url) if engines else None
    name = next((engine.name for engine in engines if place_of(engine.url) == place), None)
    if name is None and len(engines) > 1 and getattr(asker.index, "chooses", False):
        name = shown_url(endpoint.url)
        logger.warning("a plan is sent to %s, which is none of the engines that are followed", name)
    if name is None:
        return plan
    return replace(plan, alignments=tuple(replace(prompt, engine=name) for prompt in plan))


def _check_plan(plan: Plan[AlignedPrompt], how: RunOptions) -> None:
    if not isinstance(plan, Plan):
        raise SettingsError(f"run takes what plan returned, not {type(plan).__name__}")
    if len(plan.sources) != len(plan) or not all(
        -1 <= source < position for position, source in enumerate(plan.sources)
    ):
        raise SettingsError("the plan's sources must be positions of earlier requests, or -1, one for each request")
    for prompt in plan:
        if not isinstance(prompt, AlignedPrompt):
            raise SettingsError("the plan has orders without texts; make it with pilot.plan")
        how.options_for(prompt)


def _endpoint(client: Client, model: str | None) -> tuple[AsyncEndpoint, bool]:
    """Where to send, without retries of its own, and whether its connections are the caller's."""
    import openai

    if isinstance(client, str):
        return AsyncEndpoint(client, model, max_retries=0), False
    if isinstance(client, openai.AsyncOpenAI):
        client = AsyncEndpoint.around(client)
    if not isinstance(client, AsyncEndpoint):
        raise SettingsError(
            f"run sends to an AsyncEndpoint, an openai.AsyncOpenAI or an address, not to {type(client).__name__}"
        )
    return client.with_options(model=model, max_retries=0), True


def again_where_it_helps(retries: int) -> dict[str, Any]:
    """When an engine is asked again, and after how long, as tenacity's arguments.

    Args:
        retries: how often at most.
    """
    import tenacity

    backoff = tenacity.wait_random_exponential(multiplier=0.5, max=BACKOFF_MOST)

    def wait(state: tenacity.RetryCallState) -> float:
        error = state.outcome.exception() if state.outcome else None
        asked_for = getattr(error, "retry_after", None) or 0.0
        return max(backoff(state), min(asked_for, RETRY_AFTER_MOST))

    return {
        "stop": tenacity.stop_after_attempt(retries + 1),
        "wait": wait,
        "retry": tenacity.retry_if_exception(_may_pass),
        "reraise": True,
    }


async def _retried(ask: Callable[[], Awaitable[T]], retries: int) -> T:
    """Ask, and again where that may help."""
    import tenacity

    return await tenacity.AsyncRetrying(sleep=_sleep, **again_where_it_helps(retries))(ask)


async def _sleep(seconds: float) -> None:
    await asyncio.sleep(seconds)


def _may_pass(error: BaseException) -> bool:
    if isinstance(error, EngineRefused):
        return error.status is not None and (error.status in {408, 409, 429} or error.status >= 500)
    return isinstance(error, EngineUnreachable | EngineBrokeOff)


@contextlib.contextmanager
def _bar(shown: bool, total: int, done: int) -> Iterator[Callable[[RunResult], None]]:
    """A progress bar on stderr, if wanted, as what is told of each result."""
    if not shown:
        yield lambda _: None
        return
    from tqdm import tqdm

    cached = prompt = 0
    with tqdm(total=total, initial=done, unit="request") as bar:

        def tell(result: RunResult) -> None:
            nonlocal cached, prompt
            if result.usage is not None and result.usage.cached_tokens is not None:
                cached += result.usage.cached_tokens
                prompt += result.usage.prompt_tokens or 0
            bar.set_postfix_str(f"{cached / prompt:.0%} cached" if prompt else "", refresh=False)
            bar.update()

        yield tell
