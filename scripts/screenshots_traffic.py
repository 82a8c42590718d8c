"""What the documentation's pictures show at work: two replicas of the service, two FakeEngines, and those who ask."""

from __future__ import annotations

import http.client
import json
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from contextpilot_rag import Context, ContextPilot, Engine, RemoteIndex
from contextpilot_rag.demo.corpus import python_documentation
from contextpilot_rag.demo.questions import packaged_questions
from contextpilot_rag.engines.endpoint import Endpoint
from contextpilot_rag.prompt.render import Message
from contextpilot_rag.retrieval import BM25Retriever
from contextpilot_rag.testing import FakeEngine
from tests.replicas.log_server import LogServer

SYSTEM = "Answer from the documents."
READY = "ready on "
KV_BLOCKS = 2_500  # of each engine: 40,000 tokens, so that it evicts
BLOCKS = 10  # of each question
PATIENCE = 5.0  # seconds for what a busy machine does late
CLIENTS = 4
QUESTIONS_A_SECOND = 4.0  # of all clients together, at the busiest
PLANNED = 80  # contexts of a batch


@dataclass(frozen=True, slots=True)
class Stage:
    """What runs.

    Args:
        services: the replicas' addresses.
        engines: by name.
    """

    services: tuple[str, ...]
    engines: dict[str, FakeEngine]


@contextmanager
def stage(folder: Path, seconds: float) -> Iterator[Stage]:
    """A log server, two engines with cache events, and two services that follow them and each other.

    Args:
        folder: for what they keep.
        seconds: how long the log server may live, at most.
    """
    with ExitStack() as stack:
        log = stack.enter_context(LogServer(folder, life=seconds))
        engines = {
            f"vllm-{number}": stack.enter_context(FakeEngine(events=True, capacity_blocks=KV_BLOCKS))
            for number in range(2)
        }
        lines = [
            f"{engine.base_url} name={name} events={engine.events_url} replay={engine.replay_url}"
            for name, engine in engines.items()
        ]
        services = [
            stack.enter_context(_service(folder / f"state-{number}", log.url, lines, folder / f"service-{number}.log"))
            for number in range(2)
        ]
        yield Stage(tuple(services), engines)


@contextmanager
def _service(state: Path, log: str, engines: Sequence[str], said: Path) -> Iterator[str]:
    followed = [word for line in engines for word in ("--engine", line)]
    options = ["--port", "0", "--state", str(state), "--snapshot-seconds", "20", "--replicate", log, *followed]
    with said.open("w", encoding="utf-8") as file:
        process = subprocess.Popen(
            [sys.executable, "-m", "contextpilot_rag", "serve", *options], stdout=file, stderr=subprocess.STDOUT
        )
        try:
            yield _address(said, process)
        finally:
            process.terminate()
            process.wait()


def _address(said: Path, process: subprocess.Popen[bytes]) -> str:
    ends = time.monotonic() + 60
    while time.monotonic() < ends and process.poll() is None:
        text = said.read_text(encoding="utf-8")
        if READY in text and text.endswith("\n"):
            return text.rpartition(READY)[2].split()[0]
        time.sleep(0.1)
    raise SystemExit(f"the service did not start: {said.read_text(encoding='utf-8')}")


class Traffic:
    """A help desk's questions, some asked much more often than others, for a while.

    Args:
        on: whom they are sent to.
        seconds: how long.
    """

    def __init__(self, on: Stage, seconds: float) -> None:
        self._on = on
        self._seconds = seconds
        retrieve = BM25Retriever(python_documentation()).retrieve
        self._contexts = [retrieve(question, BLOCKS) for question in packaged_questions()]
        self._started = 0.0
        self._over = threading.Event()
        self._failed: list[BaseException] = []

    def run(self) -> None:
        """Ask. After two thirds of the time one engine loses its cache.

        Raises:
            BaseException: what went wrong for somebody who asks.
        """
        self._started = time.monotonic()
        jobs: list[Callable[[], None]] = [lambda number=number: self._client(number) for number in range(CLIENTS)]
        jobs += [self._conversations, self._plans, self._faults, self._reset]
        threads = [threading.Thread(target=self._guarded, args=(job,)) for job in jobs]
        for thread in threads:
            thread.start()
        try:
            for thread in threads:
                thread.join()
        finally:
            self._over.set()  # also where somebody does not want to wait for it
        if self._failed:
            raise self._failed[0]

    def _guarded(self, job: Callable[[], None]) -> None:
        try:
            job()
        except BaseException as error:  # noqa: BLE001  raised again where all are awaited
            self._failed.append(error)
            self._over.set()

    @property
    def _share(self) -> float:
        return (time.monotonic() - self._started) / self._seconds

    def _waits(self, seconds: float) -> bool:
        """Wait; False: the time is over."""
        return not self._over.wait(max(0.0, min(seconds, self._seconds * (1 - self._share)))) and self._share < 1

    def _client(self, number: int) -> None:
        """An application's process: it has a pilot, and one of the engines, to which a router sends half the topics."""
        some = random.Random(number)  # noqa: S311
        contexts = self._contexts[number % 2 :: 2]
        weights = [1 / (rank + 1) for rank in range(len(contexts))]
        name = f"vllm-{number % 2}"
        engine, service = self._on.engines[name], self._on.services[number // 2 % 2]
        index = RemoteIndex(service, engine=name, timeout=PATIENCE)
        with (
            ContextPilot(index, engines=[Engine(engine.base_url, name=name)]) as pilot,
            Endpoint(engine.base_url) as endpoint,
        ):
            while self._waits(some.expovariate(QUESTIONS_A_SECOND / CLIENTS * (0.35 + 0.65 * self._share))):
                (context,) = some.choices(contexts, weights)
                alignment = pilot.align(context, context.question)
                answer = endpoint.chat(
                    alignment.messages(SYSTEM), max_tokens=8, extra_body=alignment.extra_body or None
                )
                pilot.observe(alignment, answer)

    def _conversations(self) -> None:
        """A client in another language: it has conversations over HTTP, and any of the replicas takes the next turn."""
        some = random.Random(99)  # noqa: S311
        number = 0
        with Endpoint(self._on.engines["vllm-1"].base_url) as endpoint:
            while self._waits(some.uniform(2, 6)):
                number += 1
                first = some.randrange(len(self._contexts))
                self._talk(
                    number, [self._contexts[(first + step) % len(self._contexts)] for step in (0, 0, 7, 7)], endpoint
                )

    def _talk(self, number: int, contexts: Sequence[Context], endpoint: Endpoint) -> None:
        """One conversation, in which each question is asked again in other words, so that its blocks were given."""
        messages: list[Message] = [{"role": "system", "content": SYSTEM}]
        turn, label = "", 1
        for count, context in enumerate(contexts):
            service = self._on.services[(number + count) % 2]
            known = {"after": turn, "next_label": label} if turn else {}
            asked = {**_body(context), "conversation": {"id": f"talk-{number}", **known}, "engine": "vllm-1"}
            told = ask(service, "POST", "/v1/align", asked)
            turn, label = told["turn"], max([label - 1, *told["labels"]]) + 1
            messages.append({"role": "user", "content": told["content"]})
            answer = endpoint.chat(messages, max_tokens=8)
            messages.append({"role": "assistant", "content": answer.text})
            if answer.usage is not None:
                reported = {"cached_tokens": answer.usage.cached_tokens}
                usage = {"prompt_tokens": answer.usage.prompt_tokens, "prompt_tokens_details": reported}
                ask(service, "POST", "/v1/observe", {"ticket": told["ticket"], "usage": usage})
            if not self._waits(1):
                return

    def _plans(self) -> None:
        """A nightly job: a batch to be planned, now and then."""
        some = random.Random(7)  # noqa: S311
        service = self._on.services[0]
        while self._waits(45):
            chosen = some.sample(range(len(self._contexts)), PLANNED)
            requests = [{"key": f"q{key}", "blocks": _body(self._contexts[key])["blocks"]} for key in chosen]
            name = ask(service, "POST", "/v1/plan", {"requests": requests})["id"]
            while ask(service, "GET", f"/v1/plan/{name}")["status"] in ("queued", "running"):
                if not self._waits(0.5):
                    return
            ask(service, "GET", f"/v1/plan/{name}/result")

    def _faults(self) -> None:
        """Somebody whose requests are no requests."""
        while self._waits(40):
            ask(self._on.services[1], "POST", "/v1/align", {"blocks": "none"})

    def _reset(self) -> None:
        self._waits(self._seconds * 2 / 3)
        self._on.engines["vllm-1"].reset()


def ask(service: str, method: str, path: str, body: Any = None) -> Any:  # noqa: ANN401  JSON
    """One request to a service; its answer."""
    connection = http.client.HTTPConnection(urlsplit(service).netloc, timeout=60)
    try:
        text = None if body is None else json.dumps(body)
        connection.request(method, path, text, {"Content-Type": "application/json"})
        return json.loads(connection.getresponse().read())
    finally:
        connection.close()


def _body(context: Context) -> dict[str, Any]:
    blocks = [{"id": str(block.id), "text": block.text} for block in context]
    return {"blocks": blocks, "question": context.question, "namespace": {"corpus": "python"}}
