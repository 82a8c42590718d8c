"""Salts: what becomes of a request's ``cache_salt``, which keeps tenants apart in the engine's cache."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from ..identity import block_key
from .problems import Unusable
from .rewriting import Cloud
from .settings import ClientSalt
from .words import Edit

FIELD = "cache_salt"
NOWHERE = "the body is no JSON object that could be given a cache_salt"
OURS = f"{FIELD} is set by the proxy, from who asks; leave it out"
_OBJECT = re.compile(rb"[ \t\r\n]*\{(?P<empty>[ \t\r\n]*\})?")
_EXTRA = "extra_key"  # SGLang's


def salted(body: Mapping[str, Any], salt: str | None, client_salt: ClientSalt, cloud: Cloud) -> list[Edit]:
    """What is to be changed so that the engine keeps the request's tenant apart from others.

    A tenant's request gets the tenant's salt. If the client has sent one of its own, the policy counts. Who is nobody's
    tenant has no salt, and its own is kept: it can only keep more apart, and never meets a tenant's, as those cannot
    be guessed. Clouds keep their customers apart themselves, and are sent what the client sends.

    SGLang's ``extra_key`` passes: the engine takes it in addition, so it keeps more apart, and never less.

    Args:
        body: as it was decoded.
        salt: of the tenant; None: it has none.
        client_salt: the policy.
        cloud: whose the upstreams are.

    Raises:
        Unusable: the client has sent a salt of its own, which the policy refuses.

    >>> salted({"model": "m"}, "s", "refuse", "")
    [Edit(path=('cache_salt',), value='s')]
    >>> salted({"cache_salt": "own"}, "s", "keep", ""), salted({"cache_salt": "own"}, None, "refuse", "")
    ([], [])
    """
    if cloud or salt is None:
        return []
    if body.get(FIELD) is not None:  # null is what some clients send for what they do not set
        if client_salt == "refuse":
            raise Unusable(OURS, FIELD)
        if client_salt == "keep":
            return []
    return [Edit((FIELD,), salt)]


def salted_unread(body: bytes, salt: str) -> bytes | None:
    """A body that is not looked into, with a salt as its first member; None: it does not begin as a JSON object.

    Args:
        body: or its first part.
        salt: of the tenant. One of the client's own may follow, and then counts for most engines.

    >>> salted_unread(b' {"model": "m"}', "s"), salted_unread(b"[]", "s")
    (b' {"cache_salt":"s","model": "m"}', None)
    """
    begun = _OBJECT.match(body)
    if begun is None:
        return None
    place = body.index(b"{") + 1
    member = msgspec.json.encode({FIELD: salt})[1:-1] + (b"" if begun["empty"] else b",")
    return body[:place] + member + body[place:]


def carried(body: Mapping[str, Any], salting: Sequence[Edit]) -> str | None:
    """The salt that a request goes out with; None: none.

    Args:
        body: as it was decoded.
        salting: what `salted` says.
    """
    salt = salting[0].value if salting else body.get(FIELD)
    return salt if isinstance(salt, str) else None


def kept_apart(body: Mapping[str, Any], salting: Sequence[Edit]) -> str:
    """Stands for what a client keeps apart from the rest of its tenant's, by salts of its own; empty: nothing.

    What is not shared in the engine's cache is not shared here: neither an order nor what is believed to be cached.

    >>> kept_apart({"cache_salt": "own"}, []) == kept_apart({"cache_salt": "other"}, [])
    False
    >>> kept_apart({"cache_salt": "own"}, [Edit(("cache_salt",), "s")])
    ''
    """
    own = ["" if salting else body.get(FIELD), body.get(_EXTRA)]
    if not any(own):
        return ""
    return block_key(repr([salt for salt in own if isinstance(salt, str)])).hex()  # others are refused by engines
