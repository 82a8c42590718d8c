"""FakeEngine: what is cached follows vLLM (`PagedPrefixCache`); how long it takes follows two numbers that you set."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

from ..errors import EngineUnavailable, MissingPackage
from .answers import Answer
from .chat import limited, pieces, tokenized
from .checks import check
from .core import Core
from .events import EventPublisher
from .facts import Facts
from .faults import Faults
from .message_answers import ANSWERS
from .questions import Kind, question
from .received import ReceivedRequest
from .wire import Dialect, EventOptions

if TYPE_CHECKING:
    from contextlib import AbstractContextManager
    from types import TracebackType

    from .server import LoopbackServer


class FakeEngine:
    """A prefix cache that is spoken to like an LLM engine: in process, or over HTTP on the loopback interface.

    `chat`, `complete`, `respond` and `message` answer in process and at once. ``with FakeEngine() as engine``, or
    `start` and `stop`, serve ``/v1/chat/completions``, ``/v1/completions``, ``/v1/responses`` and Anthropic's
    ``/v1/messages`` (all also streamed), ``/v1/models``, ``/health``, ``/tokenize``, ``/metrics``, and either
    ``/version`` and ``/reset_prefix_cache`` or, as SGLang, ``/server_info`` and ``/flush_cache``, on 127.0.0.1 only;
    this needs ``pip install 'contextpilot-rag[testing]'``. All share one cache. Thread-safe.

    A request is in the cache from when it arrives, and requests do not slow each other down. A request has one choice;
    fields that mean nothing here, such as ``temperature``, are ignored. A tool is called where ``tool_choice`` forces
    one, with the least that its schema asks for, and never else. None ever waits for another one; ``waiting``, an
    attribute to be set, is how many its metrics say do.

    Args:
        block_size: tokens of one block of the cache.
        capacity_blocks: blocks that the cache holds. A prompt that does not fit is refused. None: 262,144.
        model: the name it goes by. Requests may call it anything.
        prefill_tokens_per_second: how fast it pretends to read what is not cached; None: at once. Can be set later.
        delay_seconds: waited before each answer, besides. Can be set later.
        report_cached: False: ``prompt_tokens_details`` is null, as with an engine that does not tell. Can be set later.
        max_requests: how many `requests` are remembered, newest first kept.
        dialect: the engine that it is like in what it publishes and says of itself.
        events: publish KV-cache events as that engine does, over ZeroMQ on 127.0.0.1 while it serves. `EventOptions`
            say how. What happens in process is told, too, and what happened before the start can be replayed.
        sleep: what the loopback server waits with.

    Raises:
        SettingsError: a value that cannot be.

    >>> engine = FakeEngine(block_size=4)
    >>> body = {"messages": [{"role": "user", "content": "Where do slices start?"}]}
    >>> engine.chat(body)["choices"][0]["message"]["content"]
    'FakeEngine: no model here. 14 prompt tokens, 0 of them cached.'
    >>> engine.chat(body)["usage"]["prompt_tokens_details"]
    {'cached_tokens': 12}
    """

    def __init__(  # noqa: PLR0913  settings, by name
        self,
        *,
        block_size: int = 16,
        capacity_blocks: int | None = None,
        model: str = "fake-engine",
        prefill_tokens_per_second: float | None = None,
        delay_seconds: float = 0.0,
        report_cached: bool = True,
        max_requests: int = 10_000,
        dialect: Dialect = "vllm",
        events: bool | EventOptions = False,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        check(prefill_tokens_per_second, delay_seconds, max_requests, dialect, events)
        if events is True:
            events = EventOptions()
        self.model = model
        self.dialect = dialect
        self.prefill_tokens_per_second = prefill_tokens_per_second
        self.delay_seconds = delay_seconds
        self.report_cached = report_cached
        self.waiting = 0
        self.sleep = sleep
        self._core = Core(block_size, capacity_blocks, events.spoken(dialect) if events else None)
        self._requests: deque[ReceivedRequest] = deque(maxlen=max_requests)
        self._faults = Faults()
        self._lock = threading.Lock()
        self._server: LoopbackServer | None = None
        self._publisher: EventPublisher | None = None
        self._server_lock = threading.Lock()

    def __repr__(self) -> str:
        where = "in process" if self._server is None else self._server.address
        cache = self._core.cache
        return f"FakeEngine({self.model!r}, {where}, {len(cache)} of {cache.capacity_blocks} blocks used)"

    def __enter__(self) -> FakeEngine:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def base_url(self) -> str:
        """What an OpenAI client needs: ``http://127.0.0.1:<port>/v1``.

        Raises:
            EngineUnavailable: the server is not started.
        """
        server = self._server
        if server is None:
            raise EngineUnavailable(
                "the FakeEngine's server is not started: use `with FakeEngine() as engine`, or start()"
            )
        return f"{server.address}/v1"

    @property
    def events_url(self) -> str:
        """Where followers hear of its cache: ``tcp://127.0.0.1:<port>``.

        Raises:
            EngineUnavailable: it publishes nothing, or is not started.
        """
        return self._published().events_url

    @property
    def replay_url(self) -> str:
        """Where they have it repeated; empty if `EventOptions` say so.

        Raises:
            EngineUnavailable: it publishes nothing, or is not started.
        """
        return self._published().replay_url

    @property
    def followers(self) -> int:
        """How many subscriptions to its events there are. What is published before one is there does not reach it."""
        publisher = self._publisher
        return 0 if publisher is None else publisher.followers()

    @property
    def cached_hashes(self) -> frozenset[int]:
        """The full blocks that are cached now, as events call them: 64 bits, unsigned."""
        return self._core.hashes

    @property
    def requests(self) -> tuple[ReceivedRequest, ...]:
        """The latest requests that were answered, oldest first, as of now."""
        with self._lock:
            return tuple(self._requests)

    @property
    def failures(self) -> int:
        """How many requests failed because `fail_next` said so."""
        return self._faults.failures

    @property
    def max_model_len(self) -> int:
        """The longest prompt it takes, in tokens: what fits in its cache."""
        return self._core.cache.capacity_tokens

    def start(self, port: int = 0, events_port: int = 0, replay_port: int = 0) -> FakeEngine:
        """Serve on 127.0.0.1, in daemon threads. Returns when it answers; does nothing if it is started.

        Args:
            port: 0: any free one.
            events_port: for `events_url`; 0: any free one.
            replay_port: for `replay_url`; 0: any free one.

        Raises:
            EngineUnavailable: a port is taken.
            MissingPackage: starlette, uvicorn or pyzmq are not installed.
        """
        with self._server_lock:
            if self._server is None:
                try:
                    from .server import LoopbackServer
                except ModuleNotFoundError as error:
                    raise MissingPackage.of(
                        error, "the FakeEngine's server needs", "contextpilot-rag[testing]"
                    ) from error
                log = self._core.log
                publisher = None if log is None else EventPublisher(log, events_port, replay_port)
                try:
                    self._server = LoopbackServer(self, port)
                except BaseException:
                    if publisher is not None:
                        publisher.close()
                    raise
                self._publisher = publisher
        return self

    def stop(self) -> None:
        """End the server. Requests in progress are cut off, the ports are free afterwards.

        The cache stays, and its events go on from where they were after the next `start`: as of an engine that could
        not be reached for a while. `crash` is the other end.

        Raises:
            EngineUnavailable: a thread of the server does not end.
        """
        with self._server_lock:
            server, self._server = self._server, None
            publisher, self._publisher = self._publisher, None
            try:
                if server is not None:
                    server.stop()
            finally:
                if publisher is not None:
                    publisher.close()

    def crash(self) -> None:
        """End as an engine does that is killed: `stop`, and the cache is gone without a word.

        After the next `start` events begin at number 0 again. What arrived is kept.
        """
        try:
            self.stop()
        finally:
            self._core.crash()

    def reset(self) -> None:
        """Empty the cache, say so to followers, and let nothing fail any more. What arrived is kept."""
        self._core.reset()
        self._faults.fail_next(0, None)

    def fail_next(self, times: int = 1, status: int | None = 500) -> None:
        """Let the next requests for answers fail. Takes the place of what was asked for before.

        Mind that the openai client tries most failures again, by default twice.

        Args:
            times: how many of them; 0: none.
            status: the HTTP status they are answered with; None: the connection is closed without an answer.

        Raises:
            SettingsError: a negative number, or a status that is no failure.
        """
        self._faults.fail_next(times, status)

    def chat(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Answer a chat request in process: the parsed ``chat.completion``, whole even if it asks for a stream.

        Waits for nothing; ``requests[-1].wait_seconds`` says how long the loopback server would have.

        Raises:
            InputError: the server would answer 400.
            EngineRefused: `fail_next` said so, with a status.
            EngineUnreachable: `fail_next` said so, without.
        """
        return self.answer(body).completion()

    def complete(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """As `chat`, for ``/v1/completions``: a prompt that is a text, or a list of token ids.

        >>> FakeEngine().complete({"prompt": [1, 2, 3], "max_tokens": 1})["usage"]["prompt_tokens"]
        3
        """
        return self.answer(body, "completion").completion()

    def respond(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """As `chat`, for ``/v1/responses``: its ``instructions`` and ``input`` are the same prompt as a chat's.

        >>> FakeEngine().respond({"input": "Where do slices start?"})["usage"]["input_tokens_details"]["cached_tokens"]
        0
        """
        return self.answer(body, "response").completion()

    def message(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """As `chat`, for Anthropic's ``/v1/messages``: what was cached is not among its ``input_tokens``.

        >>> body = {"messages": [{"role": "user", "content": "Where do slices start?"}], "max_tokens": 1}
        >>> FakeEngine().message(body)["usage"]["cache_read_input_tokens"]
        0
        """
        return self.answer(body, "message").completion()

    def answer(self, body: Mapping[str, Any] | bytes, kind: Kind = "chat") -> Answer:
        """As `chat`, one step before: the answer, to be had whole or in chunks. Bytes are taken as JSON."""
        answer = self.receive(body, kind)
        self.prefilled(answer)
        return answer

    def receive(self, body: Mapping[str, Any] | bytes, kind: Kind = "chat") -> Answer:
        """As `answer`, but what followers of the cache are told waits for `prefilled`."""
        self._faults.fail_if_told()
        asked = question(kind, body)
        request, tokens = asked.request, limited(asked.tokens, self.max_model_len)
        text: list[str] = []

        def said(cached: int) -> list[str]:
            text.extend(pieces(asked.call.arguments) if asked.call else self._text(len(tokens), cached))
            # One token more than there is room for: the last one generated is never stored.
            room = self.max_model_len - len(tokens) + 1
            return text[: min(room, asked.most or room)]

        with self._lock:
            number, cached, answer = self._core.serve(tokens, request.cache_salt, said)
            received = ReceivedRequest(
                messages=asked.messages,
                model=self.model if request.model is None else request.model,
                cache_salt=request.cache_salt,
                prompt_tokens=len(tokens),
                cached_tokens=cached,
                completion_tokens=len(answer),
                wait_seconds=self._wait_seconds(len(tokens) - cached),
                stream=bool(request.stream),
                kind=kind,
                prompt=asked.prompt,
                body=asked.body,
            )
            self._requests.append(received)
        return ANSWERS[kind](
            number=number,
            created=int(time.time()),
            model=received.model,
            pieces=tuple(answer),
            finish_reason="stop" if len(answer) == len(text) else "length",
            prompt_tokens=len(tokens),
            cached_tokens=cached if self.report_cached else None,
            wait_seconds=received.wait_seconds,
            stream=received.stream,
            include_usage=request.stream_options is not None and bool(request.stream_options.include_usage),
            call=asked.call,
        )

    def prefilled(self, answer: Answer) -> None:
        """The engine is through with a prompt: followers are told of it, and of those that arrived before it."""
        self._core.prefilled(answer.number)

    def at_work(self) -> AbstractContextManager[None]:
        """One more request is running, as long as this lasts."""
        return self._core.at_work()

    def facts(self) -> Facts:
        """What it says of itself, as of now."""
        core, publisher = self._core, self._publisher
        return Facts(
            model=self.model,
            dialect=self.dialect,
            block_size=core.cache.block_size,
            capacity_blocks=core.cache.capacity_blocks,
            used_blocks=len(core.cache),
            running=core.running,
            waiting=self.waiting,
            queried_tokens=core.queried_tokens,
            hit_tokens=core.hit_tokens,
            events=None if core.log is None else core.log.options,
            events_url="" if publisher is None else publisher.events_url,
            replay_url="" if publisher is None else publisher.replay_url,
        )

    def tokenize(self, body: Mapping[str, Any] | bytes) -> dict[str, Any]:
        """The tokens of ``{"messages": ...}`` under the chat template, or of ``{"prompt": ...}``, as vLLM's /tokenize.

        Raises:
            InputError: neither is there, or they cannot be used.

        >>> FakeEngine().tokenize({"prompt": "Where do slices start?"})["count"]
        5
        """
        return tokenized(body, self.max_model_len)

    def _published(self) -> EventPublisher:
        publisher = self._publisher
        if publisher is None:
            raise EngineUnavailable(
                "the FakeEngine publishes no events: use `with FakeEngine(events=True) as engine`, or start()"
            )
        return publisher

    def _text(self, prompt: int, cached: int) -> list[str]:
        told = f", {cached} of them cached" if self.report_cached else ""
        return pieces(f"FakeEngine: no model here. {prompt} prompt tokens{told}.")

    def _wait_seconds(self, uncached: int) -> float:
        rate = self.prefill_tokens_per_second
        return self.delay_seconds + (uncached / rate if rate else 0.0)
