"""Who a block is: a hash of its exact text. Ids are only aliases.

The prompt shows a block's text through a reversible escaping (`prompt.escape`), so equal text means equal bytes in the
prompt and different text means different bytes; the hash of one is as good as the hash of the other.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import logging
import threading
from collections.abc import Sequence

from .types import Namespace, plain_text

logger = logging.getLogger("contextpilot_rag")

KEY_BYTES = 16
GOOD_SECRET = 22
"""Characters: as many as it takes to write down 128 random bits. A shorter secret can be found by trying."""
_said = threading.Event()


def block_key(text: str) -> bytes:
    r"""The 16-byte identity of a text: equal in every process, whatever the id.

    >>> block_key("a") == block_key("a"), block_key("a") == block_key("a\r\n")
    (True, False)
    """
    # surrogatepass: a lone surrogate (from a badly decoded file) is unusual, but not ours to reject or to change
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=KEY_BYTES).digest()


def head_of(system: str) -> str:
    """What stands for a system prompt as a namespace's ``head``: also in a conversation that begins with it.

    Raises:
        InvalidBlock: it is no str.
    """
    return block_key(repr([{"role": "system", "content": plain_text(system, "the system prompt")}])).hex()


def cache_salt(namespace: Namespace, secret: str = "") -> str | None:
    """The engine's ``cache_salt`` for a namespace: 43 urlsafe characters, or None for the default namespace.

    HMAC-SHA256 over length-prefixed fields, so that ("org_1", "2345") and ("org_12345", "") cannot meet. With an empty
    secret whoever knows a namespace can compute its salt; set one where callers of the engine are not trusted.

    >>> cache_salt(Namespace()) is None
    True
    >>> len(cache_salt(Namespace(tenant="acme")))
    43
    """
    if not namespace:
        return None
    return secret_salt(b"cache salt v1", (namespace.tenant, namespace.model, namespace.corpus), secret)


def secret_salt(purpose: bytes, fields: Sequence[str], secret: str) -> str:
    """HMAC-SHA256 over length-prefixed fields, as 43 urlsafe characters. Each purpose has salts of its own.

    >>> secret_salt(b"t", ("a", "bc"), "s") == secret_salt(b"t", ("ab", "c"), "s")
    False
    """
    parts = [field.encode("utf-8", "surrogatepass") for field in fields]
    message = b"contextpilot-rag " + purpose + b"".join(len(part).to_bytes(4, "big") + part for part in parts)
    digest = hmac.new(secret.encode("utf-8", "surrogatepass"), message, hashlib.sha256).digest()
    return base64.urlsafe_b64encode(digest).decode("ascii").rstrip("=")


def warn_of_short_secret(secret: str) -> None:
    """Log that a secret is short, once in a process. None at all is another matter, and none of this one's.

    Whoever sees a cache salt and knows its namespace, or reads replicas' log, can try secrets for as long as he likes.
    """
    if secret and len(secret) < GOOD_SECRET and not _said.is_set():
        _said.set()
        logger.warning(
            "a salt_secret of %d characters may be found by trying (said once); take %d random ones or more, such as "
            "`openssl rand -base64 32` makes",
            len(secret),
            GOOD_SECRET,
        )
