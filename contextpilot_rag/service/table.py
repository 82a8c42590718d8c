"""Everything that can be asked of the service, in one table: routes and the OpenAPI document are made from it."""

from __future__ import annotations

from importlib import import_module

from . import batch_routes, index_routes, namespace_routes, probe_routes
from .openapi import Document
from .operation import Operation


def operations() -> tuple[Operation, ...]:
    """All of them, and the document that tells of them."""
    table = (
        *index_routes.OPERATIONS,
        *batch_routes.OPERATIONS,
        *namespace_routes.OPERATIONS,
        *probe_routes.OPERATIONS,
        *_optional("tree_routes"),
        *_optional("plan_routes"),
        *_optional("seen_routes"),
    )
    return (*table, Document(table).operation)


def _optional(name: str) -> tuple[Operation, ...]:
    """A table that is still being written."""
    try:
        return tuple(import_module(f".{name}", __package__).OPERATIONS)
    except ModuleNotFoundError as error:
        if error.name != f"{__package__}.{name}":
            raise
        return ()
