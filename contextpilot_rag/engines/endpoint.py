"""Endpoint: one OpenAI-compatible engine (vLLM, SGLang, llama.cpp, FakeEngine), sent to with the ``openai`` client.

Answers are streamed, so that the time to the first token is known, and always ask for usage.
"""

from __future__ import annotations

import copy
import math
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timezone
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit, urlunsplit

from ..errors import EngineBrokeOff, EngineError, EngineRefused, EngineUnreachable, SettingsError
from ..prompt.render import Message
from ..types import Usage
from .shown import shown_text, shown_url
from .usage import usage_of

if TYPE_CHECKING:
    import openai

DEFAULT_TIMEOUT = 120.0
_THOUGHTS = ("reasoning_content", "reasoning")  # as engines call them
_BROKEN_OFF = {"abort", "error"}  # what vLLM and SGLang call the end of an answer that they could not finish


@dataclass(frozen=True, slots=True)
class Answer:
    """What an engine answered.

    Args:
        text: the answer.
        usage: what the engine reported, or None.
        ttft: seconds from sending to the first token.
        seconds: seconds from sending to the last token.
    """

    text: str
    usage: Usage | None
    ttft: float
    seconds: float


class Endpoint:
    """An engine's address, model and client. Usable as a context manager; `close` gives the connections back.

    Args:
        url: where the engine listens, with or without ``/v1``.
        model: the model's name; None: the first that the engine lists.
        api_key: None: from OPENAI_API_KEY, else none is needed.
        timeout: seconds to wait for an answer.
        max_retries: how often the client repeats a request after a connection error, 429 or 5xx.

    Raises:
        SettingsError: the address is no http(s) URL, or another argument is none of its kind.
    """

    def __init__(
        self,
        url: str,
        model: str | None = None,
        *,
        api_key: str | None = None,
        timeout: float = DEFAULT_TIMEOUT,
        max_retries: int = 2,
    ) -> None:
        import openai

        self.url: str = api_url(url)
        self._model = model
        self._client = openai.OpenAI(**_client_options(self.url, api_key, timeout, max_retries))

    def __enter__(self) -> Endpoint:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def model(self) -> str:
        """The model that requests name.

        Raises:
            EngineUnreachable: nothing answers.
            EngineRefused: the engine answers with an error, or lists no model.
        """
        if self._model is None:
            with _errors(self.url):
                self._model = _first_model(self.url, self._client.models.list().data)
        return self._model

    def chat(self, messages: Sequence[Message], **options: Any) -> Answer:  # noqa: ANN401
        """Send messages and collect the streamed answer.

        Args:
            messages: what ``alignment.messages()`` returns.
            **options: anything that ``chat.completions.create`` takes: max_tokens, temperature, extra_body, ...

        Raises:
            EngineUnreachable: nothing answers, or not in time.
            EngineRefused: the engine answers with an error status.
            EngineBrokeOff: the answer ends before it is complete.
        """
        model = self.model
        reading = _Reading()
        with _errors(self.url, reading):
            with self._client.chat.completions.create(**_request(model, messages, options)) as stream:
                for chunk in stream:
                    reading.add(chunk)
            return reading.answer()

    def close(self) -> None:
        """Close the connections."""
        self._client.close()


class AsyncEndpoint:
    """`Endpoint` for async code.

    Args:
        url: as for `Endpoint`.
        model: as for `Endpoint`.
        api_key: as for `Endpoint`.
        timeout: as for `Endpoint`.
        max_retries: as for `Endpoint`.
    """

    def __init__(
        self,
        url: str,
        model: str | None = None,
        *,
        api_key: str | None = None,
        timeout: float = DEFAULT_TIMEOUT,
        max_retries: int = 2,
    ) -> None:
        import openai

        self.url: str = api_url(url)
        self._model = model
        self._client = openai.AsyncOpenAI(**_client_options(self.url, api_key, timeout, max_retries))

    async def __aenter__(self) -> AsyncEndpoint:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @classmethod
    def around(cls, client: openai.AsyncOpenAI, model: str | None = None) -> AsyncEndpoint:
        """An endpoint that sends with a client of yours, as it is set up; `close` would close it.

        Args:
            client: stays yours.
            model: as for `Endpoint`.
        """
        endpoint = cls.__new__(cls)
        endpoint.url = str(client.base_url).rstrip("/")
        endpoint._model, endpoint._client = model, client  # noqa: SLF001  the class's own
        return endpoint

    def with_options(self, *, model: str | None = None, max_retries: int | None = None) -> AsyncEndpoint:
        """The same endpoint with another model or other retries. Both share the connections, so close one of them.

        Args:
            model: None: as it is.
            max_retries: None: as it is.
        """
        other = copy.copy(self)
        if model is not None:
            other._model = model  # noqa: SLF001  the class's own
        if max_retries is not None:
            other._client = self._client.with_options(max_retries=max_retries)  # noqa: SLF001
        return other

    @property
    def model(self) -> str | None:
        """The model that requests name; None: the engine was not asked yet."""
        return self._model

    async def find_model(self) -> str:
        """The model that requests name. The engine is asked, once, if none was given; as `Endpoint.model`."""
        if self._model is None:
            with _errors(self.url):
                self._model = _first_model(self.url, (await self._client.models.list()).data)
        return self._model

    async def chat(
        self,
        messages: Sequence[Message],
        *,
        on_first_token: Callable[[], None] | None = None,
        **options: Any,  # noqa: ANN401
    ) -> Answer:
        """As `Endpoint.chat`.

        Args:
            messages: as for `Endpoint.chat`.
            on_first_token: called when the first token arrives: from then on the prompt is in the engine's cache.
            **options: as for `Endpoint.chat`.
        """
        model = await self.find_model()
        reading = _Reading()
        with _errors(self.url, reading):
            async with await self._client.chat.completions.create(**_request(model, messages, options)) as stream:
                async for chunk in stream:
                    if reading.add(chunk) and on_first_token is not None:
                        on_first_token()
            return reading.answer()

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()


def api_url(url: str) -> str:
    """An engine's address with the path that OpenAI clients expect.

    Raises:
        SettingsError: no http(s) URL.

    >>> api_url("http://127.0.0.1:8000"), api_url("http://127.0.0.1:8000/v1/")
    ('http://127.0.0.1:8000/v1', 'http://127.0.0.1:8000/v1')
    """
    try:
        parts = urlsplit(url if isinstance(url, str) and url.isprintable() else "")
        (parts.hostname or "").encode("idna")
        usable = parts.scheme in {"http", "https"} and bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:  # a port that is no number, a broken IPv6 address, a name that is none
        usable = False
    if not usable:
        shown = shown_text(url) if isinstance(url, str) else url
        raise SettingsError(f"an endpoint is an http(s) URL such as http://127.0.0.1:8000/v1, not {shown!r}")
    return urlunsplit((parts.scheme, parts.netloc, parts.path.rstrip("/") or "/v1", "", ""))


class _Reading:
    """A streamed answer while it arrives. The clock starts when it is made."""

    def __init__(self) -> None:
        self._started = time.perf_counter()
        self._first: float | None = None
        self._texts: list[str] = []
        self._usage: Usage | None = None
        self._finish: str | None = None
        self.chunks = 0

    def add(self, chunk: Any) -> bool:  # noqa: ANN401  openai's types are not imported
        """Take a chunk; whether it brings the first token."""
        waited = self._first is None
        self.chunks += 1
        usage = usage_of(chunk)
        if usage is not None:
            self._usage = usage
        for choice in chunk.choices or ():
            self._finish = getattr(choice, "finish_reason", None) or self._finish
            text = getattr(choice.delta, "content", None)
            if text:
                self._texts.append(text)
            # A reasoning model's thoughts are no part of its answer, but the first of them is the first token.
            if text or any(getattr(choice.delta, name, None) for name in _THOUGHTS):
                self._first = self._first or time.perf_counter()
        return waited and self._first is not None

    def answer(self) -> Answer:
        if not self.chunks:
            raise EngineRefused("the engine answered without a stream; it has to support stream=true")
        if self._finish is None:
            raise EngineBrokeOff("the engine's answer broke off: its stream ended without a finish_reason")
        if self._finish in _BROKEN_OFF:
            raise EngineBrokeOff(f"the engine broke its answer off: finish_reason {self._finish!r}")
        ended = time.perf_counter()
        first = self._first or ended  # an answer without a token: all of it was waiting
        return Answer("".join(self._texts), self._usage, first - self._started, ended - self._started)


def _client_options(url: str, api_key: str | None, timeout: float, max_retries: int) -> dict[str, Any]:
    # The openai client insists on a key; engines without one ignore it.
    key = api_key or os.environ.get("OPENAI_API_KEY") or "none"
    if not isinstance(key, str) or not key.isascii() or not key.isprintable():
        raise SettingsError("an api_key must be a str of printable ASCII characters")
    if not isinstance(timeout, int | float) or not 0 < timeout < math.inf:
        raise SettingsError(f"timeout must be a number of seconds above 0, not {timeout!r}")
    if type(max_retries) is not int or max_retries < 0:
        raise SettingsError(f"max_retries must be an int, 0 or more, not {max_retries!r}")
    return {"base_url": url, "api_key": key, "timeout": timeout, "max_retries": max_retries}


def _request(model: str, messages: Sequence[Message], options: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "model": model,
        "messages": list(messages),
        **options,
        "stream": True,
        "stream_options": {"include_usage": True},
    }


def _first_model(url: str, models: Sequence[openai.types.Model]) -> str:
    if not models or not isinstance(models[0].id, str):
        raise EngineRefused(f"the engine at {shown_url(url)} lists no model; name one")
    return models[0].id


@contextmanager
def _errors(url: str, reading: _Reading | None = None) -> Iterator[None]:
    """The openai client's errors as ours.

    Args:
        url: where the engine listens.
        reading: the answer that is read meanwhile.
    """
    import openai

    url = shown_url(url)
    try:
        yield
    except openai.APITimeoutError as error:
        raise EngineUnreachable(f"the engine at {url} did not answer in time") from error
    except openai.APIConnectionError as error:
        cause = error.__cause__ or error
        if reading is not None and reading.chunks:
            raise EngineBrokeOff(f"the answer of the engine at {url} broke off: {cause}") from error
        raise EngineUnreachable(
            f"no engine answers at {url} ({cause}); is it running, and is the address right?"
        ) from error
    except openai.APIStatusError as error:
        raise EngineRefused(
            f"the engine at {url} answered {error.status_code}: {error.message}",
            error.status_code,
            retry_after(error.response.headers),
        ) from error
    except (EngineError, SettingsError):
        raise
    except openai.APIError as error:
        status = _status_in_stream(error)
        if status is not None:
            raise EngineRefused(f"the engine at {url} broke off with {status}: {error}", status) from error
        raise EngineBrokeOff(f"the engine at {url} broke off: {error}") from error
    except openai.OpenAIError as error:
        raise EngineRefused(f"the engine at {url} cannot be asked: {error}") from error
    except UnicodeEncodeError as error:
        raise EngineError(
            f"a lone surrogate at character {error.start} of the prompt cannot be sent as UTF-8"
        ) from error
    except Exception as error:
        if _of_the_connection(error):
            raise EngineBrokeOff(f"the answer of the engine at {url} broke off: {error!r}") from error
        # What the client makes of an answer that is not what it says it is: no JSON, no object, another shape.
        raise EngineRefused(
            f"the engine at {url} answered something else than an OpenAI API does: {error!r}"
        ) from error


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds that an engine asks to be left alone for, given as such or as a date; None if it does not ask.

    >>> retry_after({"retry-after": "7"}), retry_after({"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"})
    (7.0, 0.0)
    """
    told = headers.get("retry-after")
    if told is None:
        return None
    try:
        seconds = float(told)
    except ValueError:
        try:
            when = parsedate_to_datetime(told)
            seconds = (when if when.tzinfo else when.replace(tzinfo=timezone.utc)).timestamp() - time.time()
        except (ValueError, TypeError, IndexError, OverflowError):
            return None
    return max(0.0, seconds) if math.isfinite(seconds) else None


def _status_in_stream(error: Exception) -> int | None:
    """The status that an engine gives an error which it can only tell in the stream: the answer began with 200."""
    code = str(getattr(error, "code", None))
    return int(code) if code.isascii() and code.isdigit() and 400 <= int(code) <= 599 else None


def _of_the_connection(error: Exception) -> bool:
    """Whether it is httpx's, which older openai clients let through while a stream is read."""
    return any(
        kind.__name__ == "TransportError" and kind.__module__.startswith("httpx") for kind in type(error).__mro__
    )
