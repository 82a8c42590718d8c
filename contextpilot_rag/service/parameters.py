"""Parameters of paths and queries, checked as an operation documents them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .operation import Operation
from .problems import Rejected, Unusable
from .routes import decoded

_MOST = 16  # parameters in a query
_MOST_CHARACTERS = 8_192  # of a parameter; no URL is longer
_NO_SCHEMA: Mapping[str, Any] = {}
_NONE: Mapping[str, str] = {}


class Parameters:
    """What an operation takes in its path, and behind the question mark.

    Args:
        operation: documents them.
    """

    def __init__(self, operation: Operation) -> None:
        given = operation.parameters.items()
        self._known = {name: schema for name, (where, schema, _) in given if where == "query"}
        self._path = {name: schema for name, (where, schema, _) in given if where == "path"}

    def check(self, path: Mapping[str, str]) -> None:
        """Let through what a path holds.

        Raises:
            Unusable: a parameter that does not fit.
        """
        for name, value in path.items():
            if len(value) > self._path.get(name, _NO_SCHEMA).get("maxLength", _MOST_CHARACTERS):
                raise Unusable(f"{name}, in the path, is too long")

    def read(self, text: bytes) -> Mapping[str, str]:
        """The parameters by name.

        Raises:
            Rejected: no query, or a parameter twice.
            Unusable: a parameter that is not known, or whose value does not fit.
        """
        if not text:
            return _NONE
        pieces = [piece for piece in text.split(b"&") if piece]
        if len(pieces) > _MOST:
            raise Rejected(f"more than {_MOST} query parameters")
        found: dict[str, str] = {}
        for piece in pieces:
            name, _, value = (decoded(part, form=True) for part in piece.decode("latin-1").partition("="))
            if name not in self._known:
                raise Unusable("a query parameter that is not known here" + self._names())
            if name in found:
                raise Rejected(f"the query parameter {name} stands twice")
            _check(name, value, self._known[name])
            found[name] = value
        return found

    def _names(self) -> str:
        return f"; known are {', '.join(sorted(self._known))}" if self._known else ""


def _check(name: str, value: str, schema: Mapping[str, Any]) -> None:
    kind = schema.get("type")
    if kind == "boolean" and value not in {"true", "false"}:
        raise Unusable(f"the query parameter {name} is true or false")
    if kind == "integer":
        least, most = schema.get("minimum", 0), schema.get("maximum", 2**31)
        if not (value.isascii() and value.isdigit() and len(value) < 16 and least <= int(value) <= most):
            raise Unusable(f"the query parameter {name} is a whole number from {least} to {most}")
    if kind == "string" and len(value) > schema.get("maxLength", _MOST_CHARACTERS):
        raise Unusable(f"the query parameter {name} is too long")
    if kind == "string" and "enum" in schema and value not in schema["enum"]:
        raise Unusable(f"the query parameter {name} is one of {', '.join(schema['enum'])}")
