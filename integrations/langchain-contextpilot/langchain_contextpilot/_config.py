"""What a request's config says: whose it is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from contextpilot_rag import Namespace

NAMESPACE_KEY = "contextpilot_namespace"


def namespace_in(*places: Mapping[str, Any] | None) -> Namespace | str | None:
    """The namespace that a config names, or None.

    Args:
        places: its ``configurable``, its ``metadata``; the first that names one counts.

    >>> namespace_in({}, {"contextpilot_namespace": "acme"})
    'acme'
    """
    for place in places:
        named = (place or {}).get(NAMESPACE_KEY)
        if named is not None:
            return named  # type: ignore[no-any-return]  # checked where it is used
    return None
