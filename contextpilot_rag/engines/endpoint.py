"""Endpoint: one OpenAI-compatible engine (vLLM, SGLang, llama.cpp, FakeEngine), sent to with the ``openai`` client.

Answers are streamed, so that the time to the first token is known, and always ask for usage.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit, urlunsplit

from ..errors import EngineError, EngineRefused, EngineUnreachable, SettingsError
from ..prompt.render import Message
from ..types import Usage
from .usage import usage_of

if TYPE_CHECKING:
    import openai

DEFAULT_TIMEOUT = 120.0


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

        self.url = api_url(url)
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
        """
        reading = _Reading()
        with _errors(self.url):
            for chunk in self._client.chat.completions.create(**_request(self.model, messages, options)):
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

        self.url = api_url(url)
        self._model = model
        self._client = openai.AsyncOpenAI(**_client_options(self.url, api_key, timeout, max_retries))

    async def __aenter__(self) -> AsyncEndpoint:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def chat(self, messages: Sequence[Message], **options: Any) -> Answer:  # noqa: ANN401
        """As `Endpoint.chat`."""
        with _errors(self.url):
            if self._model is None:
                self._model = _first_model(self.url, (await self._client.models.list()).data)
            reading = _Reading()
            async for chunk in await self._client.chat.completions.create(**_request(self._model, messages, options)):
                reading.add(chunk)
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
        raise SettingsError(f"an endpoint is an http(s) URL such as http://127.0.0.1:8000/v1, not {url!r}")
    return urlunsplit((parts.scheme, parts.netloc, parts.path.rstrip("/") or "/v1", "", ""))


class _Reading:
    """A streamed answer while it arrives. The clock starts when it is made."""

    def __init__(self) -> None:
        self._started = time.perf_counter()
        self._first: float | None = None
        self._texts: list[str] = []
        self._usage: Usage | None = None
        self._chunks = 0

    def add(self, chunk: Any) -> None:  # noqa: ANN401  openai's types are not imported
        self._chunks += 1
        usage = usage_of(chunk)
        if usage is not None:
            self._usage = usage
        for choice in chunk.choices or ():
            text = _new_text(choice.delta)
            if text:
                self._first = self._first or time.perf_counter()
                self._texts.append(text)

    def answer(self) -> Answer:
        if not self._chunks:
            raise EngineRefused("the engine answered without a stream; it has to support stream=true")
        ended = time.perf_counter()
        first = self._first or ended  # an answer without a token: all of it was waiting
        return Answer("".join(self._texts), self._usage, first - self._started, ended - self._started)


def _new_text(delta: Any) -> str:  # noqa: ANN401  openai's types are not imported
    """Text of a chunk; a reasoning model's thoughts count too, since the first of them is the first token."""
    return getattr(delta, "content", None) or getattr(delta, "reasoning_content", None) or ""


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
        raise EngineRefused(f"the engine at {url} lists no model; name one")
    return models[0].id


@contextmanager
def _errors(url: str) -> Iterator[None]:
    """The openai client's errors as ours."""
    import openai

    try:
        yield
    except openai.APITimeoutError as error:
        raise EngineUnreachable(f"the engine at {url} did not answer in time") from error
    except openai.APIConnectionError as error:
        cause = error.__cause__ or error
        raise EngineUnreachable(
            f"no engine answers at {url} ({cause}); is it running, and is the address right?"
        ) from error
    except openai.APIStatusError as error:
        raise EngineRefused(
            f"the engine at {url} answered {error.status_code}: {error.message}", error.status_code
        ) from error
    except (EngineError, SettingsError):
        raise
    except openai.OpenAIError as error:
        raise EngineRefused(f"the engine at {url} broke off: {error}") from error
    except UnicodeEncodeError as error:
        raise EngineError(
            f"a lone surrogate at character {error.start} of the prompt cannot be sent as UTF-8"
        ) from error
    except Exception as error:
        # What the client makes of an answer that is not what it says it is: no JSON, no object, another shape.
        raise EngineRefused(
            f"the engine at {url} answered something else than an OpenAI API does: {error!r}"
        ) from error
