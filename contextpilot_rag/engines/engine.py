"""Engine: where an engine is, and what of it can be followed."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from ipaddress import ip_address
from typing import Any, Literal
from urllib.parse import urlsplit

from ..checking import check_known, parsed
from ..errors import SettingsError
from ..types import short
from .endpoint import api_url
from .shown import shown_url

Kind = Literal["vllm", "sglang", "llama.cpp", "unknown"]
Level = Literal["model", "usage", "events"]
_TRANSPORTS = ("tcp", "ipc")
_METHOD = re.compile(r"/(v1/.+|(chat/)?completions|responses|embeddings|models|tokenize|health|metrics)$")
_BETWEEN = re.compile(r"[\n;]|,(?=\s*(?:https?://|$))")
_LAST_PORT = 65_535
_DEFAULT_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class Engine:
    """An engine: one vLLM, SGLang or llama.cpp process (or several data-parallel ranks of one) with its cache.

    Where the address that vLLM was given for its events is a tcp one without a "*", vLLM connects to it, and somebody
    has to be there: then give ``listen=True``. Any other, ipc among them, it binds itself.

    Args:
        url: its address, http(s)://HOST:PORT, with or without /v1.
        name: yours for it, in statistics and on alignments; empty: its host and port.
        events: where it publishes KV-cache events: tcp://HOST:PORT or ipc:///PATH. Empty: it is not listened to.
        replay: where it replays them. Empty: what is missed is lost, and then all that was known of its cache.
        topic: of the events; empty: whatever it is.
        listen: the engine connects to ``events``, so that this side has to bind it.
        ranks: data-parallel ranks; rank r publishes and replays on the given ports + r.
        model: that it serves; None: the first that it lists.
        capacity_tokens: what its cache holds; None: as it says itself.
        block_size: tokens of one KV block; None: as it says itself.
        api_key: for its HTTP interface.

    Raises:
        SettingsError: a value that cannot be.

    >>> Engine("http://10.0.0.1:8000", events="tcp://10.0.0.1:5557").name
    '10.0.0.1:8000'
    """

    url: str
    name: str = ""
    events: str = ""
    replay: str = ""
    topic: str = ""
    listen: bool = False
    ranks: int = 1
    model: str | None = None
    capacity_tokens: int | None = None
    block_size: int | None = None
    api_key: str = ""

    def __post_init__(self) -> None:
        url = api_url(self.url)
        if _METHOD.search(urlsplit(url).path):
            raise SettingsError(
                "an engine is given as http://HOST:PORT, with or without /v1, and nothing behind: "
                f"{short(shown_url(self.url))}"
            )
        object.__setattr__(self, "url", url)
        if self.name == "":
            object.__setattr__(self, "name", urlsplit(url).netloc.rpartition("@")[2])
        _check_kinds(self)
        _check_events(self)

    def __repr__(self) -> str:
        shown = [repr(shown_url(self.url))]
        for one in fields(self)[1:]:
            value = getattr(self, one.name)
            if value != one.default:
                shown.append(f"{one.name}={'***' if one.name == 'api_key' else value!r}")
        return f"Engine({', '.join(shown)})"


def _check_kinds(engine: Engine) -> None:
    """That each setting is of its kind."""
    for name in ("name", "events", "replay", "topic", "api_key"):
        if not isinstance(getattr(engine, name), str):
            raise SettingsError(f"an engine's {name} must be str, not {type(getattr(engine, name)).__name__}")
    for name, empty in (("ranks", False), ("capacity_tokens", True), ("block_size", True)):
        value = getattr(engine, name)
        if not (empty and value is None) and (type(value) is not int or value < 1):
            raise SettingsError(f"an engine's {name} must be a positive int, not {short(value)}")
    if engine.name != engine.name.strip() or not engine.name.isprintable():
        raise SettingsError(f"an engine's name must be printable, and not begin or end blank: {short(engine.name)}")
    if not isinstance(engine.listen, bool):
        raise SettingsError(f"an engine's listen must be True or False, not {short(engine.listen)}")
    if engine.model is not None and not (isinstance(engine.model, str) and engine.model.strip()):
        raise SettingsError(f"an engine's model must be the name of one, or None, not {short(engine.model)}")
    if not (engine.api_key.isascii() and engine.api_key.isprintable()):
        raise SettingsError("an engine's api_key must be of printable ASCII characters")


def _check_events(engine: Engine) -> None:
    """That its events, and those of all its ranks, can be where they are said to be."""
    for name in ("events", "replay"):
        address = getattr(engine, name)
        if address and not _usable(address):
            raise SettingsError(
                f"an engine's {name} must be tcp://HOST:PORT or ipc:///PATH, without *, not {short(address)}"
            )
    if engine.replay and not engine.events:
        raise SettingsError("an engine's replay means nothing without its events")
    if engine.ranks > 1 and engine.events and not engine.events.startswith("tcp:"):
        raise SettingsError("the events of several ranks need a tcp address: rank r is at its port + r")
    ports = [urlsplit(address).port or 0 for address in (engine.events, engine.replay)]
    if max(ports) + engine.ranks - 1 > _LAST_PORT:
        raise SettingsError(f"rank {engine.ranks - 1} of an engine would be at a port above {_LAST_PORT}")
    if engine.events and _meet(engine.events, engine.replay, engine.ranks):
        raise SettingsError(
            "an engine's events and replay must not share a port, nor those of its ranks: "
            f"{short(engine.events)}, {short(engine.replay)}"
        )


EngineLike = Engine | str


def engine_of(given: EngineLike) -> Engine:
    """An engine, or one from a line: its address, and perhaps settings as ``name=value`` behind it.

    Raises:
        SettingsError: it is none.

    >>> engine_of("http://10.0.0.1:8000 events=tcp://10.0.0.1:5557 ranks=2").ranks
    2
    """
    if isinstance(given, Engine):
        return given
    if not isinstance(given, str) or not given.split():
        raise SettingsError(f"an engine is an Engine or its address, not {short(given)}")
    url, *rest = given.split()
    values = dict(part.partition("=")[::2] for part in rest)
    check_known(values, [one.name for one in fields(Engine)][1:])
    if len(values) < len(rest):
        raise SettingsError(f"engine {shown_url(url)}: a setting is given twice")
    kinds = {"listen": bool, "ranks": int, "capacity_tokens": int, "block_size": int}
    converted: dict[str, Any] = {
        name: parsed(f"engine {shown_url(url)}, {name}", value, kinds.get(name, str)) for name, value in values.items()
    }
    return Engine(url, **converted)


def engines_of(given: Iterable[EngineLike] | EngineLike) -> tuple[Engine, ...]:
    """Engines, each once; a text has one a line, or separated by ";", or by commas in front of the next address.

    Raises:
        SettingsError: one is none, or two have the same name or the same address.

    >>> [engine.name for engine in engines_of("http://a:8000, http://b:8000")]
    ['a:8000', 'b:8000']
    """
    if isinstance(given, str):
        given = lines_of(given)
    elif isinstance(given, Engine):
        given = [given]
    elif not isinstance(given, Iterable):
        raise SettingsError(f"engines are Engines or their addresses, not {short(given)}")
    engines = tuple(engine_of(one) for one in given)
    names = [engine.name for engine in engines]
    twice = {name for name in names if names.count(name) > 1}
    if twice:
        raise SettingsError(f"two engines are called {min(twice)!r}; give them names")
    for place, engine in enumerate(engines):
        check_apart(engine, engines[:place])
    return engines


def lines_of(text: str) -> list[str]:
    """The lines of a text that has several engines.

    >>> lines_of("http://a:8000 name=a, http://b:8000")
    ['http://a:8000 name=a', 'http://b:8000']
    """
    return [line.strip() for line in _BETWEEN.split(text) if line.strip()]


def quiet(engine: Engine) -> Engine:
    """The same engine without events: somebody else listens to them.

    >>> quiet(Engine("http://a:8000", events="tcp://a:5557", replay="tcp://a:5558"))
    Engine('http://a:8000/v1', name='a:8000')
    """
    return replace(engine, events="", replay="", topic="", listen=False)


def place_of(url: str) -> tuple[str, str, int | None, str]:
    """Where an address leads, however it is written.

    >>> place_of("http://localhost:80/v1/") == place_of("http://127.0.0.1")
    True
    """
    parts = urlsplit(api_url(url))
    host = (parts.hostname or "").rstrip(".")
    try:
        address = ip_address(host)
        here = address.is_loopback or address.is_unspecified
    except ValueError:
        here = host == "localhost"
    return parts.scheme, "localhost" if here else host, parts.port or _DEFAULT_PORTS.get(parts.scheme), parts.path


def check_apart(engine: Engine, others: Iterable[Engine]) -> None:
    """That an engine is none of the others under another name: it would be thought to have two caches.

    At one address several models may be served, each by an engine of its own.

    Raises:
        SettingsError: it is.
    """
    place = place_of(engine.url), engine.model
    for other in others:
        if (place_of(other.url), other.model) == place:
            raise SettingsError(
                f"engines {short(other.name)} and {short(engine.name)} are the same, {shown_url(engine.url)}; "
                "give it once"
            )


@dataclass(frozen=True, slots=True)
class EngineFacts:
    """What an engine says of itself. None: it does not say.

    Args:
        kind: which software it is.
        capacity_tokens: what its cache holds.
        block_size: tokens of one KV block.
        model: the first that it lists.
        running: requests that it works on.
        waiting: requests that wait there.
        events: whether it publishes KV-cache events.
    """

    kind: Kind = "unknown"
    capacity_tokens: int | None = None
    block_size: int | None = None
    model: str | None = None
    running: int | None = None
    waiting: int | None = None
    events: bool | None = None

    def updated(self, later: EngineFacts) -> EngineFacts:
        """With what it says later. It may not be understood for once, but its cache stays as large as it is.

        >>> EngineFacts("vllm", 4_096, 16, waiting=3).updated(EngineFacts(model="m")).capacity_tokens
        4096
        """
        if later.kind not in {"unknown", self.kind}:
            return later
        return EngineFacts(
            self.kind,
            later.capacity_tokens or self.capacity_tokens,
            later.block_size or self.block_size,
            later.model or self.model,
            later.running,
            later.waiting,
            self.events if later.events is None else later.events,
        )


def _meet(one: str, other: str, ranks: int) -> bool:
    """Whether two addresses are the same for any of so many ranks."""
    first, second = urlsplit(one), urlsplit(other)
    if first.scheme != "tcp" or second.scheme != "tcp":
        return one == other
    return first.hostname == second.hostname and abs((first.port or 0) - (second.port or 0)) < ranks


def _usable(address: str) -> bool:
    parts = urlsplit(address)
    try:
        port = parts.port
    except ValueError:
        return False
    if "*" in address or parts.scheme not in _TRANSPORTS:
        return False
    return bool(parts.hostname and port) if parts.scheme == "tcp" else bool(parts.path or parts.netloc)
