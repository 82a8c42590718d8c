"""The OpenAPI 3.1 document, made from the table of operations and the types that bodies are checked against."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

import msgspec

from .._version import __version__
from ..remote.wire import Problem
from .operation import Answer, Call, Operation
from .problems import (
    Failed,
    Forbidden,
    Malformed,
    Misdirected,
    NotJson,
    Rejected,
    TooLarge,
    TooMany,
    TooSlow,
    Unauthorized,
    Unavailable,
    Unusable,
    UrlTooLong,
)

PATH = "/v1/openapi.json"
_REF = "#/components/schemas/{name}"
_JSON = "application/json"
_PROBLEM = "application/problem+json"
_HEADERS = {
    401: {"WWW-Authenticate": "How a key is given: a line for each way."},
    429: {"Retry-After": "Seconds to wait."},
    503: {"Retry-After": "Seconds to wait."},
}
_ABOUT = """One context index for all processes that share an engine's prefix cache.

Every refusal is a problem as RFC 9457 has it, and has changed nothing. Bodies are JSON (RFC 8259) in UTF-8: what is no
JSON is answered with 400, JSON of another form with 422, too much of anything with 413. Of a field that stands twice in
an object the last one counts; fields that are not documented are refused. Keys that a request carries come back with
its answer. HEAD is answered wherever GET is, OPTIONS with the methods that a path takes."""


def document(operations: Sequence[Operation], *, keys: bool) -> dict[str, Any]:
    """The document.

    Args:
        operations: all that can be asked.
        keys: whether keys are asked for.
    """
    bodies = [operation.body for operation in operations if operation.body is not None]
    answers = [operation.answer for operation in operations if operation.answer is not None]
    types = list(dict.fromkeys([*bodies, *answers, Problem]))
    schemas, components = msgspec.json.schema_components(types, ref_template=_REF)
    schema_of = dict(zip(types, schemas, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    refusals: dict[str, Any] = {}
    for operation in operations:
        entry = _operation(operation, schema_of)
        entry["security"] = _security(operation, keys=keys)
        for status, kinds in rejections(operation, keys=keys).items():
            name = "-or-".join(kind.kind for kind in kinds)
            refusals.setdefault(name, _refusal(status, kinds, schema_of[Problem]))
            entry["responses"][str(status)] = {"$ref": f"#/components/responses/{name}"}
        paths.setdefault(operation.path, {})[operation.method.lower()] = entry
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "contextpilot-rag",
            "version": __version__,
            "summary": "The shared context index.",
            "description": _ABOUT,
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "paths": paths,
        "components": {
            "responses": dict(sorted(refusals.items())),
            "schemas": {name: _plain(components[name]) for name in sorted(components)},
            "securitySchemes": {
                "key": {"type": "http", "scheme": "bearer", "description": "An API key."},
                "password": {"type": "http", "scheme": "basic", "description": "An API key as password, for browsers."},
            },
        },
    }


def _operation(operation: Operation, schema_of: Mapping[Any, Any]) -> dict[str, Any]:
    asked, answered = operation.example
    success: dict[str, Any] = {"description": HTTPStatus(operation.status).phrase}
    if operation.answer is not None:
        success["content"] = {_JSON: _media(schema_of[operation.answer], answered)}
    elif operation.status != HTTPStatus.NO_CONTENT:
        kind = "object" if operation.media == _JSON else "string"
        success["content"] = {operation.media: {"schema": {"type": kind}}}
    if operation.status == HTTPStatus.ACCEPTED:
        success["headers"] = {"Location": _header("Where to ask for it.")}
    entry: dict[str, Any] = {
        "operationId": _id(operation),
        "summary": operation.summary,
        "responses": {str(operation.status): success},
    }
    if operation.parameters:
        entry["parameters"] = [
            {"name": name, "in": where, "required": where == "path", "schema": dict(schema), "description": text}
            for name, (where, schema, text) in operation.parameters.items()
        ]
    if operation.body is not None:
        entry["requestBody"] = {"required": True, "content": {_JSON: _media(schema_of[operation.body], asked)}}
    return entry


def _id(operation: Operation) -> str:
    words = operation.path.replace("/v1/", "/").replace("{", "by/").replace("}", "").replace(".", "/").split("/")
    return "_".join([operation.method.lower(), *filter(None, words)]) if any(words) else "get_page"


def _security(operation: Operation, *, keys: bool) -> list[dict[str, list[str]]]:
    if operation.open:
        return []
    return [{"key": []}, {"password": []}] if keys else [{}]


def rejections(operation: Operation, *, keys: bool) -> dict[int, list[type[Rejected]]]:
    """What an operation may be answered with besides success, by status."""
    found: list[type[Rejected]] = [Rejected, *operation.rejections]
    if operation.body is not None:
        found += [Malformed, Unusable, TooLarge, TooSlow, NotJson]
    if not operation.open:
        if not operation.always:
            found.append(Unavailable)
        if keys:
            found.append(Unauthorized)
        if operation.operator:
            found.append(Forbidden)
        if not operation.free:
            found.append(TooMany)
    if not keys:
        found.append(Misdirected)
    if operation.parameters:
        found.append(UrlTooLong)
    found += [Unusable, Failed]  # a query parameter that is not documented; what should not be
    by_status: dict[int, list[type[Rejected]]] = {}
    for kind in dict.fromkeys(found):
        by_status.setdefault(kind.status, []).append(kind)
    return dict(sorted(by_status.items()))


def _refusal(status: int, kinds: Sequence[type[Rejected]], schema: Mapping[str, Any]) -> dict[str, Any]:
    examples = {kind.kind: {"value": msgspec.to_builtins(kind(_meaning(kind)).problem())} for kind in kinds}
    entry: dict[str, Any] = {
        "description": " ".join(_meaning(kind) for kind in kinds),
        "content": {_PROBLEM: {"schema": schema, "examples": examples}},
    }
    if status in _HEADERS:
        entry["headers"] = {name: _header(text) for name, text in _HEADERS[status].items()}
    return entry


def _meaning(kind: type[Rejected]) -> str:
    """The first sentence of its docstring."""
    if kind is Rejected:
        return "A request that is not one as it stands, or a path or query that is not encoded as it should be."
    return (kind.__doc__ or "").strip().partition("\n\n")[0].replace("\n    ", " ")


def _media(schema: Mapping[str, Any], example: object) -> dict[str, Any]:
    media: dict[str, Any] = {"schema": schema}
    if example is not None:
        media["examples"] = {"example": {"value": msgspec.to_builtins(example)}}
    return media


def _header(text: str) -> dict[str, Any]:
    return {"schema": {"type": "string"}, "description": text}


def _plain(schema: Any) -> Any:  # noqa: ANN401
    """Docstrings mark code for another language than this document's."""
    if isinstance(schema, dict):
        return {
            name: value.replace("``", "`") if name == "description" and isinstance(value, str) else _plain(value)
            for name, value in schema.items()
        }
    return [_plain(value) for value in schema] if isinstance(schema, list) else schema


class Document:
    """Serves the document; it is made when it is asked for first.

    Args:
        operations: all others.
    """

    def __init__(self, operations: Sequence[Operation]) -> None:
        self.operation = Operation(
            "GET", PATH, "This document.", self._answer, open=True, media=_JSON, example=(None, None)
        )
        self._operations = (*operations, self.operation)
        self._encoded: bytes | None = None

    async def _answer(self, call: Call[None]) -> Answer:
        if self._encoded is None:
            keys = call.hub.settings.keys is not None
            self._encoded = msgspec.json.encode(document(self._operations, keys=keys))
        return Answer(self._encoded)
