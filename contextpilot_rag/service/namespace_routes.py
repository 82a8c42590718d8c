"""What a tenant has in the service: to look at, and to be forgotten."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

from ..remote import wire
from ..remote.names import name_of
from ..types import Namespace
from .audit import audit
from .names import NAMESPACE, namespace_of
from .operation import Call, Operation
from .problems import Forbidden, Rejected, Unusable
from .tenant import Tenant

_LIMIT = 1_000
_CONVERSATION = (
    "path",
    {"type": "string", "minLength": 1, "maxLength": wire.MAX_FIELD},
    "A conversation's name.",
)
_WITH_CONVERSATIONS = (
    "query",
    {"type": "boolean", "default": False},
    "Whether conversations are forgotten, too: their next turns are given every block in full.",
)

_HEAD = ("query", {"type": "string", "maxLength": wire.MAX_FIELD, "default": ""}, "Empty: any.")

_NAMESPACE = wire.NamespaceIn(model="qwen3-8b", corpus="handbook")
_KNOWN = wire.NamespaceOut(
    ":qwen3-8b:handbook", _NAMESPACE, "5mU0l8mS2Qx0bS0lq3m9n1X4v7r2c6t8y5z1w3e9k0Q", 8_000, 2_100_000
)
_STATS = wire.StatsOut(
    requests=1_200,
    changed=700,
    block_tokens=5_400_000,
    predicted_cached_tokens=3_900_000,
    retrieved_cached_tokens=310_000,
    observed=1_100,
    reported_prompt_tokens=5_800_000,
    reported_cached_tokens=4_000_000,
    cached_not_reported=3,
    namespaces=2,
    tree_blocks=8_000,
    tree_tokens=2_100_000,
    tickets=1_200,
    conversations=40,
    rules={"prefix": 700, "nothing_gained": 500},
    predicted_of_reported=4_100_000,
    cold_prefixes=4,
    pruned_blocks=120,
)


async def _stats(call: Call[None]) -> wire.StatsOut:
    tenant = call.tenant
    return wire.StatsOut(**asdict(tenant.stats()), tickets=len(tenant.tickets), conversations=len(tenant.ledgers))


async def _list(call: Call[None]) -> wire.NamespacesOut:
    tenant = call.tenant
    found = [
        wire.NamespaceOut(
            name_of(namespace), wire.namespace_in(namespace), tenant.salt(namespace), size.blocks, size.tokens
        )
        for namespace, size in tenant.namespaces(int(call.query.get("limit", _LIMIT))).items()
    ]
    return wire.NamespacesOut(found, tenant.stats().namespaces)


async def _show(call: Call[None]) -> wire.NamespaceOut:
    namespace = namespace_of(call)
    size = call.tenant.size(namespace)
    return wire.NamespaceOut(
        name_of(namespace), wire.namespace_in(namespace), call.tenant.salt(namespace), size.blocks, size.tokens
    )


async def _forget(call: Call[None]) -> wire.Forgotten:
    namespace = namespace_of(call)
    try:
        told = replace(namespace, head=call.query.get("head", ""))
        gone = call.tenant.forget(told, operator=call.caller.operator)
        if call.caller.operator:  # whether it shares the corpus or not
            gone += call.hub.service.forget_shared(told)
    except Forbidden:
        audit("namespace forgotten", call.caller, namespace=name_of(namespace), result="refused")
        raise
    talks = _forget_talks(call.tenant, call.query, namespace)
    _forgotten(call)
    audit("namespace forgotten", call.caller, namespace=name_of(namespace), conversations=talks, result="done")
    return wire.Forgotten(gone, talks)


async def _forget_all(call: Call[None]) -> wire.Forgotten:
    gone = call.tenant.forget()
    talks = _forget_talks(call.tenant, call.query, None)
    _forgotten(call)
    audit("all namespaces forgotten", call.caller, namespaces=gone, conversations=talks, result="done")
    return wire.Forgotten(gone, talks)


async def _forget_talk(call: Call[None]) -> wire.Forgotten:
    namespace = namespace_of(call) if "namespace" in call.path else None
    gone = call.tenant.forget_talks(namespace, call.path["id"])
    _forgotten(call)
    where = None if namespace is None else name_of(namespace)
    audit("conversation forgotten", call.caller, conversation=call.path["id"], namespace=where, result="done")
    return wire.Forgotten(gone)


def _forget_talks(tenant: Tenant, query: Mapping[str, str], namespace: Namespace | None) -> int:
    if query.get("conversations") != "true":
        return 0
    return tenant.forget_talks(namespace)


def _forgotten(call: Call[None]) -> None:
    """It shall not stay on disk for long, either."""
    if call.hub.snapshots is not None:
        call.hub.snapshots.soon()


def _forgetting(path: str, summary: str, handler: Any, *rejections: type[Rejected], **more: Any) -> Operation:  # noqa: ANN401
    return Operation(
        "DELETE",
        path,
        summary,
        handler,
        answer=wire.Forgotten,
        rejections=rejections,
        example=(None, wire.Forgotten(1)),
        parameters=more,
    )


OPERATIONS = (
    Operation(
        "GET",
        "/v1/stats",
        "Counts of the tenant since the service's start, and the sizes of what is kept for it.",
        _stats,
        answer=wire.StatsOut,
        example=(None, _STATS),
    ),
    Operation(
        "GET",
        "/v1/namespaces",
        "The tenant's namespaces, used last first; corpora that it shares are not among them.",
        _list,
        answer=wire.NamespacesOut,
        rejections=(Unusable,),
        example=(None, wire.NamespacesOut([_KNOWN], 1)),
        parameters={
            "limit": (
                "query",
                {"type": "integer", "minimum": 1, "maximum": _LIMIT, "default": _LIMIT},
                "At most so many.",
            )
        },
    ),
    Operation(
        "GET",
        "/v1/namespaces/{namespace}",
        "What is known of a namespace, under any head; and its cache salt, whether anything is known or not.",
        _show,
        answer=wire.NamespaceOut,
        rejections=(Rejected,),
        example=(None, _KNOWN),
        parameters={"namespace": NAMESPACE},
    ),
    _forgetting(
        "/v1/namespaces/{namespace}",
        "Forget what is believed to be cached for a namespace, under any head or the one given. Of a corpus that "
        "tenants share, an operator may.",
        _forget,
        Rejected,
        Forbidden,
        Unusable,
        namespace=NAMESPACE,
        head=_HEAD,
        conversations=_WITH_CONVERSATIONS,
    ),
    _forgetting(
        "/v1/namespaces",
        "Forget all of the tenant's namespaces, but for corpora that it shares.",
        _forget_all,
        Unusable,
        conversations=_WITH_CONVERSATIONS,
    ),
    _forgetting(
        "/v1/namespaces/{namespace}/conversations/{id}",
        "Forget what a conversation has been given.",
        _forget_talk,
        Rejected,
        namespace=NAMESPACE,
        id=_CONVERSATION,
    ),
    _forgetting(
        "/v1/conversations/{id}",
        "Forget what a conversation has been given, in whichever namespaces it is.",
        _forget_talk,
        id=_CONVERSATION,
    ),
)
