"""The proxy's settings: checked when they are made, each with an environment variable ``CONTEXTPILOT_PROXY_*``."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any, Literal

from msgspec import Meta

from ..checking import check_all, check_known, check_tls, kinds_of, of_variables, repr_of
from ..engines.engine import Engine
from ..errors import SettingsError
from ..settings import PROXY_PREFIX, Settings, name_of
from .rewriting import Cloud
from .upstream_lines import upstreams_of
from .words import Labels, Lists

logger = logging.getLogger("contextpilot_rag")

PREFIX = PROXY_PREFIX
SECRETS = frozenset({"salt_secret"})
REPEATED = {"upstreams": "upstream"}  # settings that are given one at a time on a command line

Positive = Annotated[int, Meta(ge=1)]
Seconds = Annotated[float, Meta(gt=0, le=10**9)]
TenantBy = Literal["authorization", "key", "header", "nobody"]
ClientSalt = Literal["refuse", "keep", "replace"]
CacheHints = Literal["auto", "off"]
LogFormat = Literal["text", "json"]
_LISTS: tuple[Lists, ...] = ("numbered", "headed")


@dataclass(frozen=True, slots=True)
class ProxySettings:
    """What can be set of the proxy itself. How prompts are changed is set as for any pilot: `Settings`.

    Args:
        upstreams: where requests go: an address each, with other settings of an engine behind it, such as ``name=``,
            ``events=`` and ``api_key=``; ``cloud=openai`` or ``cloud=anthropic`` for a cloud at another address than
            its own. Several are separated by commas or line ends.
        host: address to listen on. Any but a loopback address needs ``keys``, or ``open``.
        port: 0: a free one.
        open: others may reach it without keys: the upstream, or something in front, says who may ask.
        keys: file of API keys, as for the service; None: none are asked for.
        tls_certificate: PEM file; with it and ``tls_key`` the proxy speaks TLS.
        tls_key: PEM file.
        tenant_by: who is a tenant: "authorization": whoever shows the same Authorization, x-api-key or api-key header;
            "key": whoever has a key of the same tenant in the file of ``keys``, as always where there is one; "header":
            as ``tenant_header`` says, which something in front has to set; "nobody": all are one.
        tenant_header: see ``tenant_by``.
        salt_secret: what tenants and their cache salts are derived with, and what proxies that share a log sign with:
            the same for all. Empty: one is made for this process, so that after a restart the engine's cache begins
            anew for all tenants, and replicas share nothing in it.
        client_salt: a ``cache_salt`` that a client of a tenant sends itself: "refuse" (400), "keep" or "replace".
        rate: requests a second of each tenant that has no rate of its own in the file of keys; 0: no limit.
        burst: requests of a tenant at once, before the rate counts.
        check_host: on a loopback address and without keys, only requests for loopback hosts are taken, and none that
            pages of other sites send: a web page can make a name of its own point there, and post to any address.
        lists: lists in texts that count as blocks without being asked for by a header: "numbered", "headed", separated
            by commas.
        labels: "keep" leaves labels such as index="3" with their blocks; "renumber" counts in prompt order, so that
            the same blocks in the same places are the same bytes, and says in the answer's headers which is which.
        tool_results: results of tools are searched for repeats and lists of results.
        cache_hints: ``cache_control`` and ``prompt_cache_key`` for clouds: "auto" or "off".
        window: requests that wait for a better order of sending; 0: none waits.
        window_seconds: that one waits at most.
        max_memory: decisions that are remembered, so that what was sent stays as it was; with those that other proxies
            told.
        memory_seconds: a decision, or a named conversation's blocks, that were not used for so long go.
        max_inspected: bytes; larger bodies are forwarded as they come, and not looked into.
        max_body: bytes; larger bodies are refused. None: none are.
        connect_seconds: for a connection to an upstream.
        answer_seconds: until an upstream begins to answer, and between two parts of its answer.
        upstream_connections: at a time, to all upstreams together.
        max_connections: of all clients; further ones are closed at once.
        header_seconds: a connection that sends no whole request head in this time is closed.
        body_seconds: a body of which nothing comes for so long is given up, and so is an answer that is not read.
        idle_seconds: a connection without a request is kept so long.
        drain_seconds: requests under way have so long to end on SIGTERM.
        operator_metrics: the proxy's own metrics and list of upstreams need an operator's key, where keys are asked
            for.
        log_format: "json" or "text".

    Raises:
        SettingsError: a value of the wrong type or out of range, or one that does not go with another.
    """

    upstreams: str = ""
    host: str = "127.0.0.1"
    port: Annotated[int, Meta(ge=0, le=65_535)] = 8766
    open: bool = False
    keys: Path | None = None
    tls_certificate: Path | None = None
    tls_key: Path | None = None
    tenant_by: TenantBy = "authorization"
    tenant_header: str = ""
    salt_secret: str = ""
    client_salt: ClientSalt = "refuse"
    rate: Annotated[float, Meta(ge=0, le=10**9)] = 0.0
    burst: Positive = 200
    check_host: bool = True
    lists: str = ""
    labels: Labels = "keep"
    tool_results: bool = True
    cache_hints: CacheHints = "auto"
    window: Annotated[int, Meta(ge=0)] = 0
    window_seconds: Seconds = 0.05
    max_memory: Positive = 100_000
    memory_seconds: Seconds = 86_400.0
    max_inspected: Positive = 4 * 2**20
    max_body: Positive | None = None
    connect_seconds: Seconds = 5.0
    answer_seconds: Seconds = 600.0
    upstream_connections: Positive = 4_000
    max_connections: Positive = 4_000
    header_seconds: Seconds = 10.0
    body_seconds: Seconds = 120.0
    idle_seconds: Seconds = 75.0
    drain_seconds: Seconds = 30.0
    operator_metrics: bool = True
    log_format: LogFormat = "text"

    def __post_init__(self) -> None:
        check_all(self, kinds(), SECRETS)
        _lists(self.lists)
        try:
            upstreams_of(self.upstreams)
        except SettingsError as error:
            raise SettingsError(f"{option_of('upstreams')}: {error}") from None
        check_tls(self.tls_certificate, self.tls_key, option_of)
        self._check_tenants()

    def __repr__(self) -> str:
        return repr_of(self, kinds(), _shown)

    @classmethod
    def from_env(cls, environ: Mapping[str, str] | None = None, **given: Any) -> ProxySettings:  # noqa: ANN401
        """Settings from the environment, overridden by keywords.

        Raises:
            SettingsError: a name that is no setting, or a value that it cannot have.

        >>> ProxySettings.from_env({"CONTEXTPILOT_PROXY_PORT": "9000"}).port
        9000
        """
        environ = os.environ if environ is None else environ
        values = of_variables(environ, PREFIX, kinds(), SECRETS)
        _warn_of_pilots(environ)
        check_known(given, kinds())
        return cls(**{**values, **given})

    @property
    def engines(self) -> tuple[Engine, ...]:
        """The upstreams."""
        return upstreams_of(self.upstreams)[0]

    @property
    def cloud(self) -> Cloud:
        """Whose they are."""
        return upstreams_of(self.upstreams)[1]

    @property
    def known_lists(self) -> frozenset[Lists]:
        """Lists that count as blocks.

        >>> sorted(ProxySettings(lists="numbered, headed").known_lists)
        ['headed', 'numbered']
        """
        return _lists(self.lists)

    def _check_tenants(self) -> None:
        """That it is clear who is a tenant."""
        if self.keys is not None and self.tenant_by == "authorization":
            object.__setattr__(self, "tenant_by", "key")
        if (self.tenant_by == "key") != (self.keys is not None):
            raise SettingsError(
                "--tenant-by key needs --keys FILE; make one with `contextpilot-rag keys add --file FILE --tenant NAME`"
                if self.keys is None
                else f"--tenant-by {self.tenant_by}: the file of --keys says who is a tenant; leave one of the two out"
            )
        if (self.tenant_by == "header") != bool(self.tenant_header):
            raise SettingsError("--tenant-by header and --tenant-header NAME go together")
        if self.tenant_header and not _is_header(self.tenant_header):
            raise SettingsError(f"--tenant-header: {self.tenant_header!r} is no name of a header")


def kinds() -> dict[str, Any]:
    """Each setting's type."""
    return kinds_of(ProxySettings)


def _warn_of_pilots(environ: Mapping[str, str]) -> None:
    """Log variables that name a setting of pilots as if it were the proxy's own."""
    for one in fields(Settings):
        name = f"{PREFIX}{one.name.upper()}"
        if name in environ and one.name not in kinds():
            logger.warning("environment variable %s is no setting; did you mean %s?", name, name_of(one.name))


def option_of(setting: str) -> str:
    """What the command line calls a setting; so do messages about it.

    >>> option_of("tenant_by"), option_of("upstreams")
    ('--tenant-by', '--upstream')
    """
    return f"--{REPEATED.get(setting, setting).replace('_', '-')}"


def _lists(text: str) -> frozenset[Lists]:
    names = {name.strip() for name in text.split(",") if name.strip()}
    if names - set(_LISTS):
        raise SettingsError(f"--lists: {min(names - set(_LISTS))!r} is none of {', '.join(map(repr, _LISTS))}")
    return frozenset(kind for kind in _LISTS if kind in names)


def _is_header(name: str) -> bool:
    return name.isascii() and all(sign.isalnum() or sign in "!#$%&'*+-.^_`|~" for sign in name)


def _shown(name: str, value: object) -> str:
    if name == "upstreams":  # which may have keys of their own
        return f"'{', '.join(map(repr, upstreams_of(str(value))[0]))}'"
    return repr("***" if value and name in SECRETS else value)
