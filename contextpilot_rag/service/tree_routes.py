"""A namespace's tree, for whoever plans a batch elsewhere and wants to begin with what is cached."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from ..remote import wire, wire_tree
from .names import NAMESPACE, namespace_of
from .operation import Answer, Call, Operation
from .problems import NotFound, Rejected, Unusable


async def _tree(call: Call[None]) -> Answer:
    namespace = replace(namespace_of(call), head=call.query.get("head", ""))
    most = int(call.query.get("blocks", wire_tree.MANY_BLOCKS))
    parts, blocks = [], 0
    for part in call.tenant.tree_parts(namespace):
        parts.append(wire_tree.encoded_part(part))
        blocks += len(part.entries)
        if blocks >= most:
            break
        await asyncio.sleep(0)  # whoever asks for less comes first
    if not parts:
        raise NotFound("nothing is known of this namespace; perhaps not any more")
    return Answer(wire_tree.encoded_tree(parts), media=wire_tree.MEDIA)


OPERATIONS = (
    Operation(
        "GET",
        "/v1/namespaces/{namespace}/tree",
        "What is believed to be cached for a namespace: an array of parts in MessagePack, each with the columns `keys` "
        "and `tokens` (blocks that no part before it has) and `parents`, `lengths` and `entries` (nodes, used last "
        "first: the place of a node's parent from 1, how many blocks it has, and which).",
        _tree,
        rejections=(NotFound, Rejected, Unusable),
        parameters={
            "namespace": NAMESPACE,
            "head": (
                "query",
                {"type": "string", "maxLength": wire.MAX_FIELD, "default": ""},
                "As requests of this namespace have it.",
            ),
            "blocks": (
                "query",
                {"type": "integer", "minimum": 1, "maximum": wire_tree.MOST_BLOCKS, "default": wire_tree.MANY_BLOCKS},
                "At most so many, or a few more: those used last.",
            ),
        },
        media=wire_tree.MEDIA,
    ),
)
