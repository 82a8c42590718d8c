"""Space: what has one log. Its name on the log's server, and the key that its entries are signed with."""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass
from functools import lru_cache

from ..identity import secret_salt
from ..types import Namespace

_MAC_BYTES = 16
_MOST_KNOWN = 65_536  # streams


@dataclass(frozen=True, slots=True)
class Space:
    """A namespace of an index that has replicas; all its heads share one log.

    Args:
        pool: which index, among those that one process has: such as that of a tenant, or of an engine.
        namespace: without a head.
    """

    pool: str
    namespace: Namespace


class Names:
    """Names and signatures, by a secret that all replicas share and nobody else has.

    What is signed for one space is good for no other, and whoever holds the key of one tenant's spaces (`key`) can sign
    for no other tenant. With an empty secret a signature shows damage, and keeps out nobody who knows this library.

    Args:
        secret: shared.
        prefix: of all keys on the server.
    """

    def __init__(self, secret: str, prefix: str = "contextpilot") -> None:
        self.prefix = prefix
        self._secret = secret
        self._key = lru_cache(4_096)(self._make_key)
        self._stream = lru_cache(_MOST_KNOWN)(self._make_stream)
        self._known: dict[str, Space] = {}  # by stream

    def stream(self, space: Space) -> str:
        """The name of a space's log: 32 hexadecimal digits, from which nothing can be told of the space."""
        return self._stream(space)

    def named(self, space: Space, stream: str) -> bool:
        """Whether a stream is a space's. Nothing is remembered of those that are made up."""
        return self._known.get(stream) == space or self._found(space, stream)

    def key(self, space: Space) -> bytes:
        """What a tenant's entries in one pool are signed with."""
        return self._key(space.pool, space.namespace.tenant)

    def mac(self, space: Space, *parts: bytes) -> bytes:
        """The signature (HMAC-SHA256, shortened to 16 bytes) of some bytes as an entry of a space's log."""
        whole = b"".join([len(part).to_bytes(4, "big") + part for part in (self.stream(space).encode(), *parts)])
        return hmac.digest(self.key(space), whole, "sha256")[:_MAC_BYTES]

    def signed(self, space: Space, mac: bytes, *parts: bytes) -> bool:
        """Whether a signature is right."""
        return hmac.compare_digest(self.mac(space, *parts), mac)

    def _found(self, space: Space, stream: str) -> bool:
        tenant = self._make_key(space.pool, space.namespace.tenant)
        found = _stream(tenant, space.namespace) == stream
        if found:
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            self._known[stream] = space
        return found

    def _make_key(self, pool: str, tenant: str) -> bytes:
        return hashlib.sha256(secret_salt(b"replica log v1", (pool, tenant), self._secret).encode()).digest()

    def _make_stream(self, space: Space) -> str:
        return _stream(self.key(space), space.namespace)


def _stream(key: bytes, named: Namespace) -> str:
    fields = (utf8(named.tenant), utf8(named.model), utf8(named.corpus))
    whole = b"".join([len(field).to_bytes(4, "big") + field for field in fields])
    return hmac.digest(key, b"stream" + whole, "sha256").hex()[:32]


def utf8(text: str) -> bytes:
    """A text as bytes, whatever it is made of."""
    return text.encode("utf-8", "surrogatepass")
