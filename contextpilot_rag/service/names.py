"""Namespaces in paths."""

from __future__ import annotations

from typing import Any

from ..remote.names import namespace_named
from ..types import Namespace
from .operation import Call
from .problems import Rejected

_MEANING = (
    "A namespace's name: tenant, model and corpus, each percent-encoded, between colons. As part of a URL it is "
    "encoded once more, as any text is. Colons at its end may be left out: `acme` is `acme::`. The default namespace "
    "is `::`, or `:`: a name is never empty."
)
_PATTERN = "^([^:%]|%[0-9A-Fa-f]{2})*(:([^:%]|%[0-9A-Fa-f]{2})*){0,2}$"
_SCHEMA = {"type": "string", "minLength": 1, "maxLength": 9_218, "pattern": _PATTERN}
NAMESPACE = ("path", _SCHEMA, _MEANING)


def namespace_of(call: Call[Any]) -> Namespace:
    """The namespace that a path names.

    Raises:
        Rejected: that is no name.
    """
    try:
        return namespace_named(call.path["namespace"])
    except ValueError as error:
        raise Rejected(str(error)) from None
