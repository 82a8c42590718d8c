"""Names of a service's indexes, as its replicas know them."""

from __future__ import annotations

import hashlib
from collections.abc import Collection


def pool_name(kind: str, name: str, members: Collection[str] = ()) -> str:
    """What replicas call an index. A corpus that others share has another log, so that they learn nothing of it.

    Args:
        kind: "tenant" or "corpus".
        name: of it.
        members: the tenants that share a corpus.

    >>> pool_name("tenant", "acme"), pool_name("corpus", "handbook", ["acme", "globex"])
    ('tenant:acme', 'corpus:handbook:a61cacff89eca25220207b487ec3bf4b')
    """
    if kind == "tenant":
        return f"tenant:{name}"
    raw = [member.encode("utf-8", "surrogatepass") for member in sorted(members)]
    whole = b"".join([len(each).to_bytes(4, "big") + each for each in raw])
    return f"corpus:{name}:{hashlib.blake2b(whole, digest_size=16).hexdigest()}"


def pool_named(pool: str) -> tuple[str, str]:
    """Its kind and name; empty: no service calls one so.

    >>> pool_named("tenant:a:b"), pool_named("corpus:a:b:00"), pool_named("pilot")
    (('tenant', 'a:b'), ('corpus', 'a:b'), ('', ''))
    """
    kind, _, name = pool.partition(":")
    if kind == "tenant":
        return kind, name
    if kind == "corpus":
        return kind, name.rpartition(":")[0]
    return "", ""
