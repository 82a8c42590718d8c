"""Everything that can be asked of the service, in one table: routes and the OpenAPI document are made from it."""

from __future__ import annotations

from . import batch_routes, index_routes, namespace_routes, plan_routes, probe_routes, seen_routes, tree_routes
from .openapi import Document
from .operation import Operation

_PARTS = (index_routes, batch_routes, plan_routes, namespace_routes, tree_routes, seen_routes, probe_routes)


def operations() -> tuple[Operation, ...]:
    """All of them, and the document that tells of them."""
    table = tuple(operation for part in _PARTS for operation in part.OPERATIONS)
    return (*table, Document(table).operation)
