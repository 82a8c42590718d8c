"""RemoteIndex: the context index that is a service, shared by many processes. It fails fast; the pilot fails open."""

from __future__ import annotations

import os
import ssl
import time
from pathlib import Path
from typing import TYPE_CHECKING

from .._version import __version__
from ..errors import SettingsError
from ..identity import secret_salt
from ..settings import of_environment
from ..types import Alignment, IndexStats, Namespace, Request, Usage, short
from . import questions
from .address import Address, checked_key
from .breaker import Breaker
from .calls import Calls
from .kept import Kept
from .tickets import SentTickets
from .wire import MAX_FIELD, MAX_KV_BLOCKS

if TYPE_CHECKING:
    from ..index.tree import PrefixTree

CONNECTIONS = 32
TIMEOUT = 0.05
PATIENCE = 10.0
_DAY = 86_400.0
_MOST_BLOCKS = 1_000_000
_MOST_SALTS = 4_096

Verify = str | Path | ssl.SSLContext | None
_SaltOf = tuple[str, str, str]


class _Own:
    """What one process has: a forked one shares no connection and no lock with its parent."""

    def __init__(self, calls: Calls, salts: Kept[_SaltOf, tuple[str | None]]) -> None:
        self.calls = calls
        self.salts = salts
        self.tickets = SentTickets()


class RemoteIndex:
    """A `ContextIndex` that lives in a service. May be used from any threads, event loops and forked processes.

    Each call ends within ``timeout``, connecting and all, or raises `IndexFailed`. After five failures in a row the
    service is left alone for a while, at first half a second and in the end half a minute, and calls fail at once.
    Whatever is sent a second time, because a kept connection was closed meanwhile, carries a ticket, so it counts once.

    Methods that begin with an "a" are the same, awaited; of these no thread is used.

    Args:
        address: http://HOST:PORT or https://HOST:PORT.
        api_key: says which tenant this is; where the service asks for none, none is needed. None: what the environment
            has as ``CONTEXTPILOT_API_KEY``, if anything.
        timeout: seconds for each request. None: ``CONTEXTPILOT_INDEX_TIMEOUT``, or 0.05.
        engine: the name of the engine that requests go to, for the service's counts.
        verify: for https: a file or folder of certificates to trust, or an ``ssl.SSLContext``. None: the system's.
        connections: used at a time, by all threads together and by each event loop.
        patience: seconds for what no request waits for: `stats`, `forget`, `tree` and `cover`.

    Raises:
        SettingsError: an address or another argument that cannot be used.

    >>> RemoteIndex("http://index.example:8765")
    RemoteIndex('http://index.example:8765')
    >>> RemoteIndex("index.example:8765")
    Traceback (most recent call last):
        ...
    contextpilot_rag.errors.SettingsError: the index's address must be http://HOST:PORT or https://HOST:PORT, not \
'index.example:8765'
    """

    def __init__(
        self,
        address: str,
        *,
        api_key: str | None = None,
        timeout: float | None = None,
        engine: str | None = None,
        verify: Verify = None,
        connections: int = CONNECTIONS,
        patience: float = PATIENCE,
    ) -> None:
        from .ready import load
        from .transport import Transport

        load()
        self._transport = Transport
        self._address = Address.of(address)
        self._key = checked_key(of_environment("api_key", "") if api_key is None else api_key)
        self._timeout = _seconds("timeout", of_environment("index_timeout", TIMEOUT) if timeout is None else timeout)
        self._patience = max(_seconds("patience", patience), self._timeout)
        if engine is not None and not (isinstance(engine, str) and 0 < len(engine) <= MAX_FIELD):
            raise SettingsError(f"engine must be a name of at most {MAX_FIELD} characters, not {short(engine)}")
        if type(connections) is not int or connections < 1:
            raise SettingsError(f"connections must be 1 or more, not {short(connections)}")
        self._engine = engine
        self._connections = connections
        self._context = _context(self._address, verify)
        self._owns: dict[int, _Own] = {}

    def __repr__(self) -> str:
        return f"RemoteIndex({str(self._address)!r})"

    def __enter__(self) -> RemoteIndex:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> RemoteIndex:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    @property
    def left_alone(self) -> bool:
        """Whether the service failed so often that it is not asked at present."""
        return self._own().calls.breaker.is_open

    def align(self, request: Request) -> Alignment:
        """Choose an order for the request and take it as sent.

        Raises:
            IndexFailed: there is no answer that can be used.
            InputError: the request is none that can be sent: a block's key of another type than bytes, str and int.
        """
        own = self._own()
        return self._aligned(own, request, own.calls.ask(questions.align(request, self._engine)))

    async def aalign(self, request: Request) -> Alignment:
        """As `align`."""
        own = self._own()
        return self._aligned(own, request, await own.calls.aask(questions.align(request, self._engine)))

    def predict(self, request: Request) -> int:
        """Tokens of the request that would be cached if it were sent now. Changes nothing.

        Raises:
            IndexFailed, InputError: as for `align`.
        """
        return self._own().calls.ask(questions.predict(request))

    async def apredict(self, request: Request) -> int:
        """As `predict`."""
        return await self._own().calls.aask(questions.predict(request))

    def sent(self, alignment: Alignment) -> None:
        """Take a request as sent in an order that was not chosen here.

        Its usage can be reported as for any other, as long as it is with the same request object, and not more than
        some thousands were sent since.

        Raises:
            IndexFailed, InputError: as for `align`.
        """
        own = self._own()
        own.calls.ask(questions.sent(alignment, own.tickets.noted(alignment), self._engine))

    async def asent(self, alignment: Alignment) -> None:
        """As `sent`."""
        own = self._own()
        await own.calls.aask(questions.sent(alignment, own.tickets.noted(alignment), self._engine))

    def observe(self, alignment: Alignment, usage: Usage) -> None:
        """Report what the engine said of a request that was aligned here, or told of by `sent`.

        Of any other the service knows nothing, so there is nothing to report: later turns of a conversation, and
        requests that went out while the service was not there. A second report on a request changes nothing.

        Raises:
            IndexFailed: there is no answer that can be used.
        """
        own = self._own()
        ticket = own.tickets.to_report(alignment)
        if ticket is not None:
            own.calls.ask(questions.observe(ticket, usage))

    async def aobserve(self, alignment: Alignment, usage: Usage) -> None:
        """As `observe`."""
        own = self._own()
        ticket = own.tickets.to_report(alignment)
        if ticket is not None:
            await own.calls.aask(questions.observe(ticket, usage))

    def cover(self, alignment: Alignment, covering: questions.Covered, cached_tokens: int | None = None) -> bool:
        """Tell where the blocks of an answered prompt stand among its engine's KV blocks.

        For a service that listens to the engine's events. No request waits for this: it has ``patience`` seconds.

        Args:
            alignment: of a request that was aligned here, or told of by `sent`.
            covering: of its blocks, in prompt order.
            cached_tokens: of the prompt, as the engine reported; None: it did not.

        Returns:
            Whether it is of use there. It is not for a request that the service does not know (any more), nor for a
            prompt of very many KV blocks, which is not sent.

        Raises:
            IndexFailed: there is no answer that can be used.
        """
        own = self._own()
        ticket = own.tickets.to_cover(alignment) if len(covering.keys) <= MAX_KV_BLOCKS else None
        return ticket is not None and own.calls.ask(questions.cover(ticket, covering, cached_tokens))

    def forget(self, namespace: Namespace | None = None, *, conversations: bool = False) -> None:
        """Drop what is known of a namespace, or of all that are this tenant's, for all processes that ask the service.

        Args:
            namespace: which; None: all.
            conversations: also drop what the service knows of conversations that are held over its own API.

        Raises:
            IndexFailed: it was not forgotten, or there is no answer that says so.
        """
        own = self._own()
        own.calls.ask(questions.forget(namespace, conversations))
        _forget_salt(own, namespace)

    async def aforget(self, namespace: Namespace | None = None, *, conversations: bool = False) -> None:
        """As `forget`."""
        own = self._own()
        await own.calls.aask(questions.forget(namespace, conversations))
        _forget_salt(own, namespace)

    def stats(self) -> IndexStats:
        """The tenant's counts since the service's start, of all processes together.

        Raises:
            IndexFailed: there is no answer that can be used.
        """
        return self._own().calls.ask(questions.stats())

    async def astats(self) -> IndexStats:
        """As `stats`."""
        return await self._own().calls.aask(questions.stats())

    def tree(self, namespace: Namespace) -> PrefixTree | None:
        """A copy of what the service believes to be cached for a namespace; None: nothing is known of it.

        Of a large one, the million blocks used last. A block whose key is neither bytes nor a short text stands there
        by the hash that it goes by over the wire, and is not found.

        Raises:
            IndexFailed, InputError: as for `align`.
        """
        return self._own().calls.ask(questions.tree(namespace, _MOST_BLOCKS))

    def cache_salt(self, namespace: Namespace, otherwise: str | None, *, ask: bool = False) -> str | None:
        """The engine's cache salt for a namespace, which only the service can derive; it comes with each alignment.

        Where it is not known, or the service has none: one that is derived from the API key, so that two tenants do
        not meet in the engine's cache; without a key, the caller's own.

        Args:
            namespace: whose.
            otherwise: what it would be without a service.
            ask: ask the service if it is not known yet.

        Raises:
            IndexFailed, InputError: it was asked, and there is no answer that can be used.
        """
        own = self._own()
        known = own.salts.get(_salt_of(namespace))
        if known is None and ask:
            known = _noted_salt(own, namespace, own.calls.ask(questions.salt(namespace)))
        return self._salt(namespace, known, otherwise)

    async def acache_salt(self, namespace: Namespace, otherwise: str | None) -> str | None:
        """As `cache_salt`, asking the service if it is not known yet."""
        own = self._own()
        known = own.salts.get(_salt_of(namespace))
        if known is None:
            known = _noted_salt(own, namespace, await own.calls.aask(questions.salt(namespace)))
        return self._salt(namespace, known, otherwise)

    def close(self) -> None:
        """End the connections. The index can still be used: it makes new ones."""
        self._own().calls.transport.close()

    async def aclose(self) -> None:
        """As `close`."""
        self.close()

    def _aligned(self, own: _Own, request: Request, answer: tuple[Alignment, str | None]) -> Alignment:
        alignment, salt = answer
        own.salts.put(_salt_of(request.namespace), (salt,))
        return alignment

    def _salt(self, namespace: Namespace, known: tuple[str | None] | None, otherwise: str | None) -> str | None:
        if known is not None and (known[0] is not None or not self._key):
            return known[0]
        return secret_salt(b"client fallback salt v1", _salt_of(namespace), self._key) if self._key else otherwise

    def _own(self) -> _Own:
        """What is this process's own, made when it first asks."""
        pid = os.getpid()
        own = self._owns.get(pid)
        if own is None:
            inherited = [self._owns.get(parent) for parent in list(self._owns) if parent != pid]
            salts: Kept[_SaltOf, tuple[str | None]] = Kept(_MOST_SALTS)
            for parents in inherited:
                if parents is not None:
                    salts = parents.salts.copy()
                    parents.calls.transport.close()  # only this process's copies of the sockets
            own = self._owns.setdefault(pid, self._made(salts))
            for parent in [other for other in list(self._owns) if other != pid]:
                self._owns.pop(parent, None)
        return own

    def _made(self, salts: Kept[_SaltOf, tuple[str | None]]) -> _Own:
        headers = [(b"user-agent", f"contextpilot-rag/{__version__}".encode()), (b"accept", b"application/json")]
        if self._key:
            headers.append((b"authorization", f"Bearer {self._key}".encode("ascii")))
        transport = self._transport(self._address, headers, self._context, self._connections)
        name = f"the index at {self._address}"
        calls = Calls(transport, Breaker(time.monotonic), name, self._timeout, self._patience, self._key)
        return _Own(calls, salts)


def _salt_of(namespace: Namespace) -> _SaltOf:
    return namespace.tenant, namespace.model, namespace.corpus


def _noted_salt(own: _Own, namespace: Namespace, salt: tuple[str | None] | None) -> tuple[str | None] | None:
    if salt is not None:
        own.salts.put(_salt_of(namespace), salt)
    return salt


def _forget_salt(own: _Own, namespace: Namespace | None) -> None:
    if namespace is None:
        own.salts.clear()
    elif not namespace.head:
        own.salts.pop(_salt_of(namespace))


def _seconds(name: str, value: float) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= _DAY:
        raise SettingsError(f"{name} must be a number of seconds, more than 0 and at most a day, not {short(value)}")
    return float(value)


def _context(address: Address, verify: Verify) -> ssl.SSLContext | None:
    """What https connections are made with.

    Raises:
        SettingsError: the certificates cannot be read, or it is no https.
    """
    if address.scheme != "https":
        if verify is not None:
            raise SettingsError("verify is for an address that begins with https://")
        return None
    if isinstance(verify, ssl.SSLContext):
        return verify
    if verify is not None and not (isinstance(verify, str | Path) and str(verify)):
        raise SettingsError(f"verify must be a path of certificates or an ssl.SSLContext, not {short(verify)}")
    try:
        if verify is None:
            return ssl.create_default_context()
        folder = Path(verify).is_dir()
        return ssl.create_default_context(
            cafile=None if folder else str(verify), capath=str(verify) if folder else None
        )
    except OSError as error:
        raise SettingsError(f"verify: {short(str(verify))} cannot be read: {error}") from None
