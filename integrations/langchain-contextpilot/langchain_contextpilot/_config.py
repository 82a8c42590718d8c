"""What a request's config says: whose it is. It is never guessed: what cannot be read is the caller's error."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any
from uuid import UUID

from contextpilot_rag import Namespace
from contextpilot_rag.errors import SettingsError
from contextpilot_rag.intake import namespace_of
from langchain_core.runnables import RunnableConfig, ensure_config

NAMESPACE_KEY = "contextpilot_namespace"

NamespaceLike = Namespace | str | int | UUID
"""A number or UUID goes by its text."""


def named(value: object, what: str = "namespace") -> Namespace | str | None:
    """A namespace, as callers have tenants.

    Args:
        value: a `Namespace`, or a tenant's name, number or UUID; None: none is named.
        what: what the value is called where it comes from.

    Raises:
        SettingsError: anything else, and an empty name: whoever names a tenant must not end up among everybody.

    >>> named(7), named("acme")
    ('7', 'acme')
    """
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return str(int(value))
    try:
        space = None if value is None else namespace_of(value)  # type: ignore[arg-type]  # it says what is wrong
    except SettingsError as error:
        raise SettingsError(f"{what}: {error}") from None
    # A str of another kind, such as a member of an enumeration, is its text.
    return str.__str__(value) if isinstance(value, str) else space


def namespace_in(*places: Mapping[str, Any] | None) -> Namespace | str | None:
    """The namespace that a config names, or None.

    Args:
        places: its ``configurable``, its ``metadata``, and those of what it runs in.

    Raises:
        SettingsError: a namespace that is none, two that differ, or a key that is misspelt.

    >>> namespace_in({}, {"contextpilot_namespace": "acme"})
    'acme'
    """
    found: Namespace | str | None = None
    for place in places:
        for key, value in (place or {}).items():
            if key == NAMESPACE_KEY:
                space = named(value, f"{NAMESPACE_KEY} in the request's config")
                if found is not None and space is not None and namespace_of(space) != namespace_of(found):
                    raise SettingsError(f"the request's config names two namespaces: {found!r} and {space!r}")
                found = space if found is None else found
            elif _misspelt(key):
                raise SettingsError(f"unknown key {key!r} in the request's config; did you mean {NAMESPACE_KEY!r}?")
    return found


def full_config(config: RunnableConfig | None) -> RunnableConfig:
    """A request's config, and what it says nothing of from the chain that it runs in. Its own namespace counts."""
    given, full = config or {}, ensure_config(config)
    space = namespace_in(given.get("configurable"), given.get("metadata"))
    if space is not None:
        for place in (full["configurable"], full["metadata"]):  # copies
            if NAMESPACE_KEY in place:
                place[NAMESPACE_KEY] = space
    return full


def required(
    space: Namespace | str | None, default: Namespace | str | None, *, required: bool
) -> Namespace | str | None:
    """A request's namespace, or the default.

    Raises:
        SettingsError: there is none, and there has to be one.
    """
    if space is None and default is None and required:
        example = {"metadata": {NAMESPACE_KEY: "acme"}}
        raise SettingsError(
            f'a namespace is required, and the request\'s config names none, such as {example}; "configurable" is not '
            "handed to everything that a chain calls"
        )
    return default if space is None else space


def _misspelt(key: object) -> bool:
    if not isinstance(key, str) or "pilot" not in key.lower():
        return False
    return bool(difflib.get_close_matches(key.lower().replace("-", "_"), [NAMESPACE_KEY], n=1, cutoff=0.85))
