"""The proxy's settings: checked when they are made, each with an environment variable ``CONTEXTPILOT_PROXY_*``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta

from .words import Labels

Positive = Annotated[int, Meta(ge=1)]
Seconds = Annotated[float, Meta(gt=0, le=10**9)]
TenantBy = Literal["authorization", "key", "header", "nobody"]
ClientSalt = Literal["refuse", "keep", "replace"]
CacheHints = Literal["auto", "off"]


@dataclass(frozen=True, slots=True)
class ProxySettings:
    """What can be set of the proxy itself. How prompts are changed is set as for any pilot: `Settings`.

    Args:
        upstreams: where requests go: an address each, with an engine's settings behind it, as for `Engine`.
        host: address to listen on.
        port: 0: a free one.
        tenant_by: who is a tenant: "authorization": whoever shows the same Authorization or x-api-key header; "key":
            whoever has a key of the file of keys; "header": as ``tenant_header`` says, which something in front has to
            set; "nobody": all are one.
        tenant_header: see ``tenant_by``.
        keys: file of API keys, as for the service; None: none are asked for.
        client_salt: a ``cache_salt`` that the client sends itself: "refuse" (400), "keep" or "replace".
        lists: lists that count as blocks without being asked for by a header: "numbered", "headed", separated by
            commas.
        labels: "keep" leaves labels such as index="3" with their blocks; "renumber" counts in prompt order, so that
            the same blocks in the same places are the same bytes, and says in the answer's headers which is which.
        tool_results: whether results of tools are searched for repeats and lists of results.
        cache_hints: ``cache_control`` and ``prompt_cache_key`` for clouds: "auto" or "off".
        window: requests that wait for a better order of sending; 0: none waits.
        window_seconds: that one waits at most.
        max_inspected: bytes; larger bodies are forwarded as they come, and not looked into.
        max_body: bytes; larger bodies are refused. None: none are.
        max_memory: decisions that are remembered, so that what was sent stays as it was.
        memory_seconds: a decision that was not used for so long goes.
        connect_seconds: for a connection to an upstream.
        answer_seconds: until an upstream begins to answer, and between two parts of its answer.
        max_connections: to upstreams.
        check_host: on a loopback address, only requests for loopback hosts are taken.
    """

    upstreams: str = ""
    host: str = "127.0.0.1"
    port: Annotated[int, Meta(ge=0, le=65_535)] = 8766
    tenant_by: TenantBy = "authorization"
    tenant_header: str = ""
    keys: Path | None = None
    client_salt: ClientSalt = "refuse"
    lists: str = ""
    labels: Labels = "keep"
    tool_results: bool = True
    cache_hints: CacheHints = "auto"
    window: Annotated[int, Meta(ge=0)] = 0
    window_seconds: Seconds = 0.05
    max_inspected: Positive = 4 * 2**20
    max_body: Positive | None = None
    max_memory: Positive = 100_000
    memory_seconds: Seconds = 86_400.0
    connect_seconds: Seconds = 5.0
    answer_seconds: Seconds = 600.0
    max_connections: Positive = 4_000
    check_host: bool = True
