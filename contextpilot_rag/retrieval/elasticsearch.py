"""Elasticsearch and OpenSearch response bodies as contexts."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from itertools import pairwise
from typing import Any

from ..errors import InvalidBlock, RetrievalError
from ..types import Block, Context, short
from .results import checked_k

Hit = Mapping[str, Any]


def from_elasticsearch(
    body: object, text: str | Callable[[Hit], str] = "text", k: int | None = None, question: str = ""
) -> Context:
    """The hits of a search as a context.

    The engine's order is kept, but for equal scores in a search without a ``sort`` of its own: those are ordered by id,
    since shards and replicas order them differently from call to call. Highlights, sort values and inner hits are left
    aside: they differ from question to question, and a block's text must not.

    Args:
        body: the response, or its ``hits``: parsed JSON, or the client's response object.
        text: the field of ``_source`` (or of ``fields``) that holds the text, with dots for fields of fields; or a
            function from a hit to its text.
        k: how many to keep at most; None: all.
        question: kept on the context.

    Returns:
        Blocks by ``_id``; by ``(_index, _id)`` if the hits come from several indices.

    Raises:
        RetrievalError: no such body, an error in place of one, or a hit without id or text; the message says which.

    >>> hits = [{"_id": "7", "_score": 2.1, "_source": {"text": "tea"}}, {"_id": "3", "_score": 2.1,
    ...         "_source": {"text": "milk"}}]
    >>> [block.id for block in from_elasticsearch({"hits": {"hits": hits}})]
    ['3', '7']
    """
    if k is not None:
        checked_k(k)
    hits = _hits(body)
    several = len({hit.get("_index") for hit in hits}) > 1
    blocks = []
    for rank, hit in enumerate(hits):
        name: Hashable = hit.get("_id")
        if not isinstance(name, str):
            raise RetrievalError(f"hit {rank} has no _id")
        if several:
            name = (hit.get("_index"), name)
        score = hit.get("_score")
        try:
            blocks.append(Block(_text(hit, text, rank), id=name, score=None if score is None else float(score)))
        except (TypeError, ValueError, OverflowError, InvalidBlock) as error:
            raise RetrievalError(f"hit {rank}: {error}") from None
    sorted_by_them = any("sort" in hit for hit in hits)
    return Context(tuple((blocks if sorted_by_them else _ties_by_id(blocks))[:k]), question)


def _hits(body: object) -> Sequence[Hit]:
    found: Any = getattr(body, "body", body)  # the clients' response objects wrap a plain dict
    if isinstance(found, Mapping) and "error" in found:
        raise RetrievalError(f"the search failed: {short(found['error'])}")
    for _ in range(2):
        if isinstance(found, Mapping):
            found = found.get("hits")
    if not isinstance(found, list | tuple) or not all(isinstance(hit, Mapping) for hit in found):
        raise RetrievalError("expected a search response: a mapping with hits.hits, a list")
    return found


def _text(hit: Hit, text: str | Callable[[Hit], str], rank: int) -> str:
    if callable(text):
        try:
            return text(hit)
        except Exception as error:
            raise RetrievalError(f"hit {rank}: the function for its text failed: {error!r}") from error
    for holder in (hit.get("_source"), hit.get("fields")):
        value = _field(holder, text)
        if isinstance(value, list) and value and all(isinstance(part, str) for part in value):
            value = "\n".join(value)
        if isinstance(value, str):
            return value
    raise RetrievalError(f"hit {rank} has no text in the field {text!r}; name another one with text=")


def _field(holder: object, path: str) -> object:
    """A field's value: its name as it stands (``fields`` has flat names), else step by step along the dots."""
    if isinstance(holder, Mapping):
        if path in holder:
            return holder[path]
        first, dot, rest = path.partition(".")
        return _field(holder.get(first), rest) if dot else None
    return None


def _ties_by_id(blocks: list[Block]) -> list[Block]:
    """Blocks with equal scores by id, if the scores are what they are ordered by."""
    scores = [block.score for block in blocks]
    known = [score for score in scores if score is not None]
    if len(known) < len(scores) or not all(one >= other for one, other in pairwise(known)):
        return blocks
    return sorted(blocks, key=lambda block: (-(block.score or 0.0), str(block.id)))
