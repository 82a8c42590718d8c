"""The service's settings: checked when they are made, each with an environment variable ``CONTEXTPILOT_SERVE_*``."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from msgspec import Meta

from ..checking import check_all, check_known, check_tls, kinds_of, of_variables, repr_of
from ..engines.engine import engines_of
from ..errors import SettingsError
from ..replicas.address import parse_address
from ..settings import SERVICE_PREFIX

PREFIX = SERVICE_PREFIX
SECRETS = frozenset({"salt_secret"})
HIDDEN = SECRETS | {"replicate"}  # whose values no message shows
REPEATED = {"engines": "engine", "upstreams": "upstream"}  # given one at a time on a command line, and called so there

Positive = Annotated[int, Meta(ge=1)]
Seconds = Annotated[float, Meta(gt=0, le=10**9)]
LogFormat = Literal["text", "json"]
Rate = Annotated[float, Meta(ge=0, le=10**9)]


@dataclass(frozen=True, slots=True)
class ServiceSettings:
    """What can be set. Every value is checked; limits are per tenant unless they say otherwise.

    Args:
        host: address to listen on. Any but a loopback address needs keys.
        port: 0: a free one.
        keys: file of API keys; None: none are asked for, and everybody is one tenant.
        state: folder for snapshots and the generated secret; None: nothing outlives the process.
        salt_secret: what cache salts are derived with. Empty: one is generated, and kept in ``state``.
        tls_certificate: PEM file; with it and ``tls_key`` the service speaks TLS.
        tls_key: PEM file.
        replicate: address of a Valkey or Redis, as ``redis://USER:PASSWORD@HOST:6379``; ``rediss://`` is with TLS. All
            services that are given the same are replicas: each comes to know what the others know. Empty: there are
            none.
        engines: that the index is kept in step with: an address each, with ``events=tcp://HOST:PORT`` behind it to be
            followed by its KV-cache events, and other settings of an engine, such as ``replay=`` and ``name=``. They
            are one pool, of which clients or a router choose. Several are separated by commas or line ends.
        upstreams: where all goes that is none of the service's own operations, as for the proxy, whose other settings
            count, too. Empty: nowhere.
        capacity_tokens: what the engine's cache holds for one namespace, in tokens; None: as engines say, or no limit.
        tenant_blocks: entries of the index, in all of a tenant's namespaces.
        tenant_namespaces: namespaces of a tenant; the one used longest ago goes.
        history_requests: recent requests of each namespace that "throughput" learns its orders from.
        tenant_conversations: conversations of a tenant; the one used longest ago goes.
        conversation_seconds: a conversation that was not used for so long goes.
        tenant_tickets: tickets that are remembered; the oldest go.
        ticket_seconds: a ticket that is older is forgotten.
        rate: requests a second of each tenant that has no rate of its own in the file of keys; 0: no limit.
        burst: requests of a tenant at once, before the rate counts.
        tenant_plans: plans under way or waiting to be fetched.
        plan_processes: plans that are worked on at a time, of all tenants.
        max_plans: plans under way at a time, of all tenants; each waits in a process of its own for its turn.
        plan_seconds: a plan that takes longer is ended.
        plan_kept_seconds: a finished plan is kept so long for being fetched.
        max_body: bytes of a request's body, but for plans; a tenant may have 16 such on their way at a time.
        max_plan_body: bytes; a tenant may have two such on their way at a time.
        max_blocks: blocks of one request.
        max_batch: requests of one batch.
        max_plan: requests of one plan.
        max_id: characters of a block's id.
        max_connections: of all clients; further ones are closed at once.
        header_seconds: a connection that sends no whole request head in this time is closed.
        body_seconds: a body that is not complete in this time is given up (408).
        idle_seconds: a connection without a request is kept so long.
        drain_seconds: requests under way have so long to end on SIGTERM.
        snapshot_seconds: between two snapshots.
        operator_metrics: metrics need an operator's key, where keys are asked for.
        tenant_labels: metrics tell tenants apart, by a hash of their names.
        log_format: "json" or "text".

    Raises:
        SettingsError: a value of the wrong type or out of range.
    """

    host: str = "127.0.0.1"
    port: Annotated[int, Meta(ge=0, le=65_535)] = 8765
    keys: Path | None = None
    state: Path | None = None
    salt_secret: str = ""
    tls_certificate: Path | None = None
    tls_key: Path | None = None
    replicate: str = ""
    engines: str = ""
    upstreams: str = ""
    capacity_tokens: Positive | None = None
    tenant_blocks: Positive = 1_000_000
    tenant_namespaces: Positive = 1_000
    history_requests: Positive = 2_000
    tenant_conversations: Positive = 10_000
    conversation_seconds: Seconds = 86_400.0
    tenant_tickets: Positive = 20_000
    ticket_seconds: Seconds = 3_600.0
    rate: Rate = 0.0
    burst: Positive = 200
    tenant_plans: Positive = 4
    plan_processes: Positive = 1
    max_plans: Positive = 16
    plan_seconds: Seconds = 3_600.0
    plan_kept_seconds: Seconds = 600.0
    max_body: Positive = 4 * 2**20
    max_plan_body: Positive = 256 * 2**20
    max_blocks: Annotated[int, Meta(ge=1, le=65_536)] = 1_000
    max_batch: Positive = 256
    max_plan: Positive = 100_000
    max_id: Annotated[int, Meta(ge=1, le=65_536)] = 1_024
    max_connections: Positive = 2_000
    header_seconds: Seconds = 10.0
    body_seconds: Seconds = 20.0
    idle_seconds: Seconds = 75.0
    drain_seconds: Seconds = 10.0
    snapshot_seconds: Seconds = 60.0
    operator_metrics: bool = True
    tenant_labels: bool = False
    log_format: LogFormat = "text"

    def __post_init__(self) -> None:
        check_all(self, kinds(), HIDDEN)
        try:
            engines_of(self.engines)
        except SettingsError as error:
            raise SettingsError(f"{option_of('engines')}: {error}") from None
        check_tls(self.tls_certificate, self.tls_key, option_of)
        if self.replicate:
            self._check_replicate()

    def _check_replicate(self) -> None:
        try:
            parse_address(self.replicate)
        except SettingsError as error:
            raise SettingsError(f"{option_of('replicate')}: {error}") from None
        if self.keys is not None and not self.salt_secret:
            raise SettingsError(
                f"{option_of('replicate')} with {option_of('keys')} takes {PREFIX}SALT_SECRET, the same for all "
                "replicas: cache salts and the log's signatures are derived from it. Make one: openssl rand -base64 32"
            )

    def __repr__(self) -> str:
        return repr_of(self, kinds(), _shown)

    @classmethod
    def from_env(cls, environ: Mapping[str, str] | None = None, **given: Any) -> ServiceSettings:  # noqa: ANN401
        """Settings from the environment, overridden by keywords.

        Raises:
            SettingsError: a name that is no setting, or a value that it cannot have.

        >>> ServiceSettings.from_env({"CONTEXTPILOT_SERVE_PORT": "9000"}).port
        9000
        """
        environ = os.environ if environ is None else environ
        values = of_variables(environ, PREFIX, kinds(), HIDDEN)
        check_known(given, kinds())
        return cls(**{**values, **given})


def kinds() -> dict[str, Any]:
    """Each setting's type."""
    return kinds_of(ServiceSettings)


def option_of(setting: str) -> str:
    """What the command line calls a setting; so do messages about it.

    >>> option_of("tls_key"), option_of("engines")
    ('--tls-key', '--engine')
    """
    if setting in REPEATED:
        setting = REPEATED[setting]
    return f"--{setting.replace('_', '-')}"


def _shown(name: str, value: object) -> str:
    if name == "engines":  # which may have keys of their own
        return f"'{', '.join(map(repr, engines_of(str(value))))}'"
    if name == "replicate" and value:
        return f"'{parse_address(str(value))}'"
    return repr("***" if value and (name in SECRETS or name == "upstreams") else value)
