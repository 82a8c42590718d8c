"""A namespace's name, as it stands in URLs and answers: tenant, model and corpus, percent-encoded, between colons."""

from __future__ import annotations

from urllib.parse import quote, unquote

from ..types import Namespace
from .wire import MAX_FIELD


def name_of(namespace: Namespace) -> str:
    """The name; the head is no part of it.

    >>> name_of(Namespace(model="org/m", corpus="a:b"))
    ':org%2Fm:a%3Ab'
    """
    return ":".join(quote(field, safe="") for field in (namespace.tenant, namespace.model, namespace.corpus))


def segment_of(namespace: Namespace) -> str:
    """The name as a segment of a URL's path: encoded once more, as any text is that stands there.

    >>> segment_of(Namespace(model="org/m"))
    ':org%252Fm:'
    """
    return segment(name_of(namespace))


def segment(text: str) -> str:
    """Any text as a segment of a URL's path.

    >>> segment("a/b:c")
    'a%2Fb:c'
    """
    return quote(text, safe=":")


def namespace_named(name: str) -> Namespace:
    """The namespace of a name; colons at its end may be left out.

    Args:
        name: as `name_of` gives it, so: a segment of a URL's path, decoded once.

    Raises:
        ValueError: it is no name.

    >>> namespace_named(":org%2Fm") == Namespace(model="org/m")
    True
    """
    fields = name.split(":")
    if len(fields) > 3:
        raise ValueError("a namespace's name has three parts: tenant, model and corpus; a colon in one is written %3A")
    try:
        plain = [unquote(field, errors="strict") for field in fields]
    except UnicodeDecodeError:
        raise ValueError("a namespace's name is percent-encoded UTF-8") from None
    if any(len(field) > MAX_FIELD for field in plain):
        raise ValueError(f"a part of a namespace's name has at most {MAX_FIELD} characters")
    return Namespace(*plain)
