"""Blocks in a tool's result that is JSON with a list of results.

Lists in which the order is part of what they say, such as messages, lines, pages, segments of speech or words in a
picture, are none.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from ..words import Group, Item, Span
from .labels import LABELS, labelled
from .prose import is_ours
from .scanning import decoded, members, objects, start_of

_LISTS = frozenset(
    "results documents docs passages chunks memories hits matches snippets search_results excerpts references "
    "retrieved_documents source_documents".split()
)
_LOOSE_LISTS = frozenset("data items nodes sources".split())
"""May be anything, so their items have to say that they were found."""

_INSIDE = ("data", "response", "result", "hits", "body", "output")
"""Where a list may stand one level further down."""

_TEXTS = (
    *("text", "content", "page_content", "snippet", "memory", "passage", "chunk"),
    *("body", "document", "summary", "abstract"),
)
_NESTED = ("_source", "document", "node", "payload", "entity", "metadata", "fields")
"""Where an item's text may stand one level further down."""

_SCORES = frozenset(
    "score _score similarity distance relevance relevance_score certainty rerank_score @search.score".split()
)
_FOUND = frozenset(
    "id _id uuid doc_id document_id chunk_id node_id url uri link href title source file path metadata".split()
)
_IN_SEQUENCE = frozenset(
    "role cell_type line lines lineno line_number start_line end_line line_start line_end level timestamp timestamps "
    "start end start_time end_time start_index end_index start_char end_char offset offsets chunk_index paragraph "
    "speaker step page page_number sequence seq turn "
    "bbox box boxes bounding_box boundingbox boundingBox bounding_poly boundingPoly polygon".split()
)
_LOOSELY_IN_SEQUENCE = frozenset("type created_at updated_at created date time ts author user username sender".split())
_LINE_END = re.compile(r"\\[nr]")
_MESSAGES = frozenset(("role", "cell_type"))


def listed(text: str) -> Group | None:
    r"""The list of results that a text is, all of it; None: it is none. Never raises.

    Args:
        text: a tool's result.

    >>> group = listed('{"results": [{"id": 4, "text": "One"}, {"id": 2, "text": "Say \\"two\\""}]}')
    >>> [item.label for item in group.items]
    ['4', '2']
    """
    value = decoded(text)
    whole = start_of(text), len(text.rstrip(" \t\r\n"))
    if isinstance(value, list):
        return _listed(text, whole, whole[0], value, loose=True)
    path = _path(value) if isinstance(value, dict) else None
    if path is None:
        return None
    inner: Any = value
    place = whole[0]
    for key in path:
        found = members(text, place)
        if found is None:
            return None
        inner, place = inner[key], found[0][key][0]
    return _listed(text, whole, place, inner, loose=path[-1] in _LOOSE_LISTS)


def _path(value: dict[str, Any]) -> tuple[str, ...] | None:
    """The keys that lead to the one list of results; None: there is none, or there are several."""
    paths: list[tuple[str, ...]] = [(key,) for key, inner in value.items() if _is_list(key, inner)]
    for key in _INSIDE:
        inside = value.get(key)
        if isinstance(inside, dict):
            paths += [(key, inner_key) for inner_key, inner in inside.items() if _is_list(inner_key, inner)]
    return paths[0] if len(paths) == 1 else None


def _is_list(key: str, value: object) -> bool:
    loose = key in _LOOSE_LISTS
    return (loose or key in _LISTS) and isinstance(value, list) and _field(value, loose=loose) is not None


def _field(results: Sequence[Any], *, loose: bool) -> tuple[str, ...] | None:
    """The keys that lead to each result's text; None: these are no results."""
    if len(results) < 2 or not all(isinstance(result, dict) for result in results):
        return None
    if not all(_was_found(result, loose=loose) for result in results):
        return None
    for key in _TEXTS:
        if all(isinstance(result.get(key), str) for result in results):
            return (key,)
    for outer in _NESTED:
        insides = [result.get(outer) for result in results]
        for key in _TEXTS:
            if all(isinstance(inside, dict) and isinstance(inside.get(key), str) for inside in insides):
                return outer, key
    return None


def _was_found(result: Mapping[str, Any], *, loose: bool) -> bool:
    """Whether a search found it, as far as its members tell."""
    if not _MESSAGES.isdisjoint(result):
        return False
    if not _SCORES.isdisjoint(result):
        return True
    if not _IN_SEQUENCE.isdisjoint(result):
        return False
    if not loose:
        return True
    return _LOOSELY_IN_SEQUENCE.isdisjoint(result) and (len(result) == 1 or not _FOUND.isdisjoint(result))


def _listed(text: str, whole: Span, place: int, results: Sequence[Any], *, loose: bool) -> Group | None:
    field = _field(results, loose=loose)
    if field is None:
        return None
    found = objects(text, place)
    if found is None:
        return None
    items = []
    for element, inside in found:
        text_at = inside[field[0]]
        if len(field) > 1:
            nested = members(text, text_at[0])
            if nested is None:
                return None
            text_at = nested[0][field[1]]
        items.append(Item(element, (text_at[0] + 1, text_at[1] - 1)))
    values = [_names(text, inside) for _, inside in found]
    if is_ours(_LINE_END.sub("\n", text)):
        return None
    return Group(whole, labelled(text, items, values), "json")


def _names(text: str, found: Mapping[str, Span]) -> dict[str, Span]:
    """Where the values stand that may be labels: numbers, and strings without escapes."""
    names = {}
    for key in LABELS:
        start, end = found.get(key, (0, 0))
        if text.startswith('"', start) and "\\" not in text[start:end]:
            names[key] = start + 1, end - 1
        elif text[start:end].isdecimal():
            names[key] = start, end
    return names
