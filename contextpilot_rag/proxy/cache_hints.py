"""Cache hints: what a cloud is told besides the texts, so that it finds in its cache what is believed to be there.

OpenAI is told a key, by which requests that begin alike come to the same machine; Anthropic where its breakpoints are.
"""

from __future__ import annotations

from ..identity import secret_salt
from ..types import Namespace
from .breakpoints import Stable, breakpoints
from .opening import Opening, Ordered
from .rewriting import Cloud
from .words import Asked, Edit
from .writing import Written

_CACHE_KEY = "prompt_cache_key"


def changed(
    asked: Asked,
    done: Written,
    opening: Opening | None,
    ordered: Ordered | None,
    cloud: Cloud,
    secret: str = "",
) -> list[Edit]:
    """All changes to a request's texts, with what its cloud is told; an engine is told nothing.

    Args:
        asked: the request.
        done: its texts.
        opening: the group of blocks that stands first.
        ordered: the order of these; None: nothing was aligned, and nothing is told.
        cloud: whose the upstream is; empty: an engine, or nothing is to be told.
        secret: that keys are derived with.
    """
    plain = [Edit(path, text) for path, text in done.texts.items()]
    if opening is None or ordered is None or done.group is None or not cloud:
        return plain
    if cloud == "anthropic" and asked.api == "messages":
        return breakpoints(asked, done.texts, [Stable(opening.text.path, _ends(ordered, done))])
    if cloud == "openai" and asked.api in ("chat", "responses") and asked.body.get(_CACHE_KEY) is None:
        request = ordered.alignment.request
        first = request.blocks[ordered.alignment.order[0]].key
        return [*plain, Edit((_CACHE_KEY,), _key(request.namespace, first, secret))]
    return plain


def prompt_cache_key(namespace: Namespace, first_block: bytes, secret: str = "") -> str:
    """OpenAI's ``prompt_cache_key`` for requests that begin alike, which are sent to the same machine by it.

    Args:
        namespace: with tenant, model and head.
        first_block: the key of the first block.
        secret: without one, whoever knows all this can compute the key.

    Returns:
        43 characters, of 64 that it may have.

    >>> key = prompt_cache_key(Namespace(tenant="acme"), b"block")
    >>> len(key), key == prompt_cache_key(Namespace(tenant="other"), b"block")
    (43, False)
    """
    fields = (namespace.tenant, namespace.model, namespace.corpus, namespace.head, first_block.hex())
    return secret_salt(b"prompt cache key v1", fields, secret)


def _key(namespace: Namespace, first: object, secret: str) -> str:
    return prompt_cache_key(namespace, first if isinstance(first, bytes) else repr(first).encode(), secret)


def _ends(ordered: Ordered, done: Written) -> list[int]:
    """Where the group ends, and before it, where that part ends that was believed cached when it was first sent.

    The cache is found there and written at the end. History that is sent again is cut where it was.
    """
    assert done.group is not None  # noqa: S101  the caller looked
    items = done.group.items
    ends = [items[-1].span[1]]
    if 0 < ordered.cached < len(items):
        ends.insert(0, items[ordered.cached - 1].span[1])
    return ends
