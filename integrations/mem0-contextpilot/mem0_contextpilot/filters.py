"""Whose memories a search is about: ids into filters, filters into a namespace."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any
from uuid import UUID

from contextpilot_rag import Namespace
from contextpilot_rag.errors import InputError

IDS = ("user_id", "agent_id", "app_id", "run_id")
_LOGICAL = ("AND", "OR", "NOT")


def with_ids(filters: Mapping[str, Any] | None, ids: Mapping[str, Any], *, nested: bool) -> Mapping[str, Any] | None:
    """Filters that also ask for these ids, as Mem0 2 wants them; what was given is not changed.

    Args:
        filters: as the caller gave them.
        ids: of `IDS`; None: not asked for.
        nested: filters with AND, OR or NOT go below an AND, as the hosted service wants them; else ids go beside them,
            as `mem0.Memory` wants them.

    Raises:
        InputError: the filters ask for another id, or are no mapping.

    >>> with_ids({"category": "food"}, {"user_id": "alice", "run_id": None}, nested=False)
    {'category': 'food', 'user_id': 'alice'}
    >>> with_ids({"OR": [{"category": "food"}]}, {"user_id": "alice"}, nested=True)
    {'AND': [{'user_id': 'alice'}, {'OR': [{'category': 'food'}]}]}
    >>> with_ids({"user_id": "bob"}, {"user_id": "alice"}, nested=False)
    Traceback (most recent call last):
        ...
    contextpilot_rag.errors.InputError: user_id='alice', but the filters ask for user_id='bob'; say it in one place
    """
    given = {name: value for name, value in ids.items() if value is not None}
    if not given:
        return filters
    if filters is None:
        return given
    if not isinstance(filters, Mapping):
        raise InputError(f"filters must be a mapping, not {type(filters).__name__}")
    for name, value in _asked_for(filters):
        if name in given and not _same(value, given[name]):
            raise InputError(f"{name}={given[name]!r}, but the filters ask for {name}={value!r}; say it in one place")
    if nested and any(key in filters for key in _LOGICAL):
        return {"AND": [given, dict(filters)]}
    return {**filters, **given}


def namespace_of_filters(filters: Mapping[str, Any] | None, base: Namespace) -> Namespace:
    """What may share cached prefixes with a search by these filters.

    One value each for some of `IDS`, perhaps inside AND: these. Anything else, such as OR, NOT, "*", lists of ids, or
    no id at all: the filters as a whole, so that nothing is shared more widely than was asked.

    Args:
        filters: of the search.
        base: the pilot's namespace; its tenant, model and corpus stay apart.

    >>> namespace_of_filters({"AND": [{"user_id": "alice"}, {"category": "food"}]}, Namespace()).tenant
    '{"user_id":"alice"}'
    >>> namespace_of_filters({"user_id": {"in": ["alice", "bob"]}}, Namespace(tenant="acme")).tenant
    '{"filters":{"user_id":{"in":["alice","bob"]}},"tenant":"acme"}'
    """
    return namespace_of_ids(_owner(filters) or {"filters": _whole(filters)}, base)


def owner_of_conversation(filters: Mapping[str, Any] | None, base: Namespace) -> Namespace:
    """Whose conversation it is that a search by these filters belongs to, whatever namespace it has.

    As `namespace_of_filters`, but OR and NOT make no difference if they do not speak of ids: what is looked for may
    change from turn to turn.

    >>> owner_of_conversation({"user_id": "alice", "OR": [{"day": 1}, {"day": 2}]}, Namespace()).tenant
    '{"user_id":"alice"}'
    >>> owner_of_conversation({"user_id": "alice", "OR": [{"run_id": "1"}, {"day": 2}]}, Namespace()).tenant
    '{"filters":{"OR":[{"run_id":"1"},{"day":2}],"user_id":"alice"}}'
    """
    ids = _one_each(filters) if isinstance(filters, Mapping) else None
    if not ids or _mentions(filters) != len(list(_asked_for(filters or {}))):
        return namespace_of_filters(filters, base)
    return namespace_of_ids(ids, base)


def namespace_of_ids(ids: Mapping[str, Any], base: Namespace) -> Namespace:
    """The namespace of these ids, below the pilot's own.

    >>> namespace_of_ids({"user_id": "alice"}, Namespace(model="m")).tenant
    '{"user_id":"alice"}'
    """
    names = {**ids, "tenant": base.tenant} if base.tenant else dict(ids)
    return replace(base, tenant=json.dumps(names, sort_keys=True, separators=(",", ":")))


def one_id(value: object) -> str | None:
    """An id as Mem0 stores it, if this is one id and not a pattern or a condition.

    >>> one_id("alice"), one_id(7), one_id("*"), one_id({"in": ["alice"]})
    ('alice', '7', None, None)
    """
    if isinstance(value, str):
        return value if value not in {"", "*"} else None
    return str(value) if type(value) in (int, UUID) else None


def _asked_for(filters: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """The ids that every result must have, with what was asked of them."""
    for key, value in filters.items():
        if key in IDS:
            yield key, value
        elif key == "AND" and isinstance(value, list | tuple):
            for part in value:
                if isinstance(part, Mapping):
                    yield from _asked_for(part)


def _owner(filters: Mapping[str, Any] | None) -> dict[str, str] | None:
    """The ids, if each that is asked for has one value, and nothing can widen the search."""
    return None if not isinstance(filters, Mapping) or _widens(filters) else _one_each(filters)


def _one_each(filters: Mapping[str, Any]) -> dict[str, str] | None:
    found: dict[str, str] = {}
    for name, value in _asked_for(filters):
        own = one_id(value)
        if own is None or found.setdefault(name, own) != own:
            return None
    return found


def _whole(filters: Mapping[str, Any] | None) -> Any:  # noqa: ANN401  a JSON value
    """The filters as they are; in their order, too, where two ids contradict each other: Mem0 goes by the last one."""
    asked = [] if not isinstance(filters, Mapping) else list(_asked_for(filters))
    values: dict[str, Any] = {}
    if any(values.setdefault(name, value) != value for name, value in asked):
        return json.dumps(_plain(filters), separators=(",", ":"))
    return _plain(filters)


def _mentions(filters: object) -> int:
    """How often there is a condition on an id, wherever it stands."""
    if isinstance(filters, Mapping):
        return sum((key in IDS) + _mentions(value) for key, value in filters.items())
    return sum(map(_mentions, filters)) if isinstance(filters, list | tuple) else 0


def _widens(filters: Mapping[str, Any]) -> bool:
    """Whether there is anything but conditions that all have to be met."""
    for key, value in filters.items():
        if key == "AND":
            if not isinstance(value, list | tuple) or not all(isinstance(part, Mapping) for part in value):
                return True
            if any(_widens(part) for part in value):
                return True
        elif str(key).lstrip("$").upper() in _LOGICAL:
            return True
    return False


def _same(asked: object, given: object) -> bool:
    own = one_id(asked)
    return asked == given if own is None else own == one_id(given)


def _plain(value: object) -> Any:  # noqa: ANN401  a JSON value
    """Anything as JSON can say it: equal filters in equal words, different ones in different words."""
    if isinstance(value, Mapping):
        return {_name(key): _plain(own) for key, own in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(own) for own in value]
    if value is None or isinstance(value, str | int | float):
        return value
    return _name(value)


def _name(value: object) -> str:
    return value if isinstance(value, str) else f"{type(value).__name__} {value!r}"
