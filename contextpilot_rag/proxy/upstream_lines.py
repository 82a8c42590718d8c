"""Upstreams from lines: engines, or the addresses of one cloud."""

from __future__ import annotations

from typing import cast, get_args
from urllib.parse import urlsplit

from ..engines.engine import Engine, engine_of, engines_of, lines_of
from ..engines.shown import shown_url
from ..errors import SettingsError
from .rewriting import Cloud

_HOSTS: dict[str, Cloud] = {"api.openai.com": "openai", "api.anthropic.com": "anthropic"}


def upstreams_of(text: str) -> tuple[tuple[Engine, ...], Cloud]:
    """Where requests go, and whose that is.

    A cloud is told by its own address, or by ``cloud=`` behind another one. It is asked nothing but what clients ask,
    and knows other fields than engines: so all upstreams are engines, or all are of one cloud.

    Args:
        text: a line each.

    Raises:
        SettingsError: one is none, or they are not of one kind.

    >>> upstreams_of("http://a:8000, http://b:8000 name=b")[1]
    ''
    >>> upstreams_of("https://api.openai.com")[1], upstreams_of("https://llm.internal cloud=anthropic")[1]
    ('openai', 'anthropic')
    """
    engines: list[Engine] = []
    clouds: list[Cloud] = []
    for line in lines_of(text):
        words = line.split()
        named = [word.partition("=")[2] for word in words if word.startswith("cloud=")]
        engine = engine_of(" ".join(word for word in words if not word.startswith("cloud=")))
        clouds.append(_cloud(engine, named))
        engines.append(engine)
    if len(set(clouds)) > 1:
        raise SettingsError("upstreams are engines, or all of one cloud; start a proxy for each kind")
    cloud: Cloud = clouds[0] if clouds else ""
    if cloud and any(engine.events or engine.replay for engine in engines):
        raise SettingsError("a cloud publishes no KV-cache events; leave events= and replay= out")
    return engines_of(engines), cloud


def _cloud(engine: Engine, named: list[str]) -> Cloud:
    """Whose one of them is: as its line says, or else as its address does."""
    if not named:
        return _HOSTS.get((urlsplit(engine.url).hostname or "").rstrip("."), "")
    known = get_args(Cloud)
    if len(named) > 1 or named[0] not in known:
        names = ", ".join(name for name in known if name)
        raise SettingsError(f"upstream {shown_url(engine.url)}: cloud= is given once, and is one of {names}")
    return cast("Cloud", named[0])
