"""What is asked of an engine beside requests for answers: JSON and plain text over kept connections, within a time.

Always from a thread that can wait; never where a request is being prepared.
"""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from ..errors import EngineBrokeOff, EngineError, EngineRefused, EngineUnreachable, IndexFailed
from ..forking import after_fork
from ..remote.address import Address
from ..types import short
from .endpoint import retry_after
from .engine import Engine

if TYPE_CHECKING:
    from ..remote.asks import Reply
    from ..remote.transport import Transport

DEFAULT_SECONDS = 10.0
MOST_BYTES = 64 * 2**20  # of one answer: the token ids of some millions of tokens
CONNECTIONS = 4  # at a time
_SHOWN = 200  # bytes that are looked at of what an engine says about a refusal
_CUT_SHORT = "without sending complete message body"  # httpcore's words for an answer that ended early


class EngineHttp:
    """Asks one engine over HTTP. Thread-safe; connects when first asked; a forked child makes connections of its own.

    Args:
        engine: whose address and API key are used.
        seconds: that one answer may take, all in all.
        most: bytes that one answer may have.
        connections: requests at a time.

    Raises:
        SettingsError: the address cannot be used.
    """

    def __init__(
        self,
        engine: Engine,
        seconds: float = DEFAULT_SECONDS,
        most: int = MOST_BYTES,
        connections: int = CONNECTIONS,
    ) -> None:
        self.engine: Engine = engine
        self._connections = connections
        self._seconds = seconds
        self._most = most
        parts = urlsplit(engine.url)
        self._address = Address.of(parts._replace(netloc=parts.netloc.rpartition("@")[2], path="").geturl())
        self._base = parts.path.rstrip("/")
        self._headers = [(b"accept", b"*/*"), *_authorization(engine.api_key, parts.username, parts.password)]
        self._renew()
        after_fork(self, EngineHttp._renew)

    def _renew(self) -> None:
        self._lock = threading.Lock()
        self._transport: Transport | None = None

    def close(self) -> None:
        """Give the connections back. It can be asked again all the same."""
        # What looks names up stays: else each look-up that hangs would be followed by another.
        with self._lock:
            transport = self._transport
        if transport is not None:
            transport.close()

    def get(self, path: str, *, seconds: float | None = None) -> bytes:
        """What stands at a path, as `ask` takes it."""
        return self.ask("GET", path, None, seconds)

    def get_json(self, path: str, *, seconds: float | None = None) -> Any:  # noqa: ANN401
        """As `get`, parsed."""
        return self._parsed(path, self.get(path, seconds=seconds))

    def post(self, path: str, body: Mapping[str, Any], *, seconds: float | None = None) -> Any:  # noqa: ANN401
        """The parsed answer to a JSON body, as `ask` takes it."""
        # The standard encoder: a lone surrogate in a text is escaped, and it is for the engine to say what it is.
        try:
            sent = json.dumps(body, separators=(",", ":")).encode("ascii")
        except (TypeError, ValueError, RecursionError) as error:
            raise EngineError(
                f"what should be sent to {self._where(path)} cannot be written as JSON: {error}"
            ) from error
        return self._parsed(path, self.ask("POST", path, sent, seconds))

    def ask(self, method: str, path: str, body: bytes | None, seconds: float | None = None) -> bytes:
        """One request.

        Args:
            method: of HTTP.
            path: from the server's root, such as "/tokenize"; one that begins with "/v1/" from the API's, wherever
                that is.
            body: JSON, or None.
            seconds: that it may take; None: the usual.

        Returns:
            The body of the answer.

        Raises:
            EngineUnreachable: no answer came, or not in time.
            EngineRefused: an error status; or more bytes than are taken.
            EngineBrokeOff: the answer ended early.
        """
        from ..remote.asks import Ask, Late, Lost

        prefix = self._base if path.startswith("/v1/") else self._base.removesuffix("/v1")
        target = prefix + (path.removeprefix("/v1") if path.startswith("/v1/") else path)
        asked = Ask(method, target, body, self._seconds if seconds is None else seconds, self._most)
        where = self._where(path)
        try:
            return _body(self._connected().send(asked, _itself), where)
        except Late as error:
            raise EngineUnreachable(f"{where} was not answered in time") from error
        except Lost as error:
            if _CUT_SHORT in str(error):
                raise EngineBrokeOff(f"the answer of {where} broke off: {error}") from error
            raise EngineUnreachable(f"{where} is not answered: {error}") from error
        except IndexFailed as error:  # what the connections raise of an answer that is too long
            raise EngineRefused(f"{where}: {error}") from error

    def _connected(self) -> Transport:
        from ..remote.transport import Transport

        with self._lock:
            if self._transport is None:
                context = None
                if self._address.scheme == "https":
                    import ssl

                    context = ssl.create_default_context()
                self._transport = Transport(self._address, self._headers, context, self._connections)
            return self._transport

    def _where(self, path: str) -> str:
        return f"{path} of engine {self.engine.name}"

    def _parsed(self, path: str, answer: bytes) -> Any:  # noqa: ANN401
        try:
            return json.loads(answer)
        except (ValueError, RecursionError) as error:
            raise EngineRefused(f"{self._where(path)} is answered with something that is no JSON: {error}") from error


def _itself(reply: Reply) -> Reply:
    return reply


def _body(reply: Reply, where: str) -> bytes:
    if 200 <= reply.status < 300:
        return reply.body
    said = short(" ".join(reply.body[:_SHOWN].decode("utf-8", "replace").split()))
    headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in reply.headers.items()}
    raise EngineRefused(f"{where} is answered with {reply.status}: {said}", reply.status, retry_after(headers))


def _authorization(api_key: str, user: str | None, password: str | None) -> list[tuple[bytes, bytes]]:
    """The header that says who asks: by the API key, or by a name that stands in the address."""
    if api_key:
        return [(b"authorization", f"Bearer {api_key}".encode())]
    if user is None and password is None:
        return []
    pair = f"{unquote(user or '')}:{unquote(password or '')}".encode()
    return [(b"authorization", b"Basic " + base64.b64encode(pair))]
