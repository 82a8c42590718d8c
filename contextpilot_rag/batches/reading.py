"""What callers give, of any length, as lots of contexts."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import numpy as np

from ..errors import InputError
from ..trace import EQUAL_TOKENS, TraceRequest
from ..types import Namespace, OrderBudget, Request, short
from .contexts import Contexts, hashes_of, offsets
from .payload import Payload, Table

LOT = 16_384  # contexts that one task reads
Where = tuple[str, int]
IDS, LENGTHS = "context_ids", "tokens"
PLAN_COLUMNS = ("shard", "position", "order", "cached_blocks", "predicted_cached_tokens", "source")


@dataclass(frozen=True, slots=True)
class Reading:
    """How rows become requests. Those that are `Request` objects already keep their own namespace and budget.

    Args:
        budget: how much of the retriever's order may be given up.
        namespace: what may share.
    """

    budget: OrderBudget = field(default_factory=OrderBudget)
    namespace: Namespace = field(default_factory=Namespace)


def lots(contexts: Iterable[object], size: int = LOT) -> Iterator[list[object]]:
    """Lists of so many, one after another; nothing is read ahead.

    >>> list(lots(iter("abc"), 2))
    [['a', 'b'], ['c']]
    """
    left = iter(contexts)
    while lot := list(islice(left, size)):
        yield lot


def read_lot(
    lot: Sequence[object] | Table, where: Where, lengths: Mapping[Any, int] | None, how: Reading
) -> tuple[Contexts, Payload, int]:
    """A lot as contexts, what is kept for each of them, and how many there are.

    Args:
        lot: `Request` or `TraceRequest` objects, mappings with ``context_ids``; or a table with such a column.
        where: what errors say of its place, and how many contexts came before.
        lengths: tokens of each block, for rows that do not tell; None: all are equally long.
        how: see there.

    Raises:
        InputError: something that is no context; the message says which.
    """
    if not isinstance(lot, Sequence):
        _check_columns(lot.column_names, f"{where[0]}its table")
        ids = lot.column(IDS).to_pylist()
        own = lot.column(LENGTHS).to_pylist() if LENGTHS in lot.column_names else [None] * len(ids)
        return _contexts(ids, own, where, lengths, how), lot, len(ids)
    if isinstance(lot[0], Request):
        requests = [_a(Request, request, where, place) for place, request in enumerate(lot)]
        return Contexts.of(requests), [{"key": request.key} for request in requests], len(requests)
    if isinstance(lot[0], TraceRequest):
        recorded = [_a(TraceRequest, request, where, place) for place, request in enumerate(lot)]
        contexts = Contexts.of(Request(request.blocks, how.namespace, how.budget) for request in recorded)
        rows = [{"qid": request.qid, IDS: [block.key for block in request.blocks]} for request in recorded]
        return contexts, rows, len(rows)
    given = [dict(_a(Mapping, row, where, place)) for place, row in enumerate(lot)]
    for place, row in enumerate(given):
        _check_columns(row, _name(where, place))
    contexts = _contexts([row[IDS] for row in given], [row.get(LENGTHS) for row in given], where, lengths, how)
    return contexts, given, len(given)


def places(ids: Sequence[Hashable]) -> list[int]:
    """Where each distinct id comes first; a block that comes twice is placed once.

    >>> places(["b", "a", "b", "c"])
    [0, 1, 3]
    """
    found: dict[Hashable, int] = {}
    for place, name in enumerate(ids):
        found.setdefault(name, place)
    return list(found.values())


def _contexts(
    ids: Sequence[Sequence[Hashable]],
    own: Sequence[Sequence[int] | None],
    where: Where,
    lengths: Mapping[Any, int] | None,
    how: Reading,
) -> Contexts:
    number: dict[tuple[Hashable, int | None], int] = {}
    blocks: list[int] = []
    counts: list[int] = []
    for place, (names, tokens) in enumerate(zip(ids, own, strict=True)):
        _check_ids(names, tokens, _name(where, place))
        before = len(blocks)
        kept = places(names)
        for at in kept:
            entry = (names[at], None if tokens is None else tokens[at])
            blocks.append(number.setdefault(entry, len(number)))
        counts.append(len(blocks) - before)
    keys = [name for name, _ in number]
    return Contexts(
        keys,
        hashes_of(keys, how.namespace),
        np.array([_tokens(*entry, lengths) for entry in number], np.int64),
        np.array(blocks, np.int32),
        offsets(np.array(counts, np.int64)),
        [(how.namespace, how.budget)],
        np.zeros(len(counts), np.int32),
    )


def _a(kind: Any, value: Any, where: Where, place: int) -> Any:  # noqa: ANN401
    if not isinstance(value, kind):
        raise InputError(
            f"{_name(where, place)}: give all as Request objects or all as mappings with {IDS}, not {short(value)}"
        )
    return value


def _name(where: Where, place: int) -> str:
    return f"{where[0]}context {where[1] + place}"


def _check_columns(names: Iterable[str], what: str) -> None:
    names = list(names)
    if IDS not in names:
        raise InputError(f"{what} has no {IDS}, only {short(names)}")
    taken = [name for name in PLAN_COLUMNS if name in names]
    if taken:
        raise InputError(f"{what} has a column {taken[0]!r}; that is what the plan's own is called, so rename yours")


def _check_ids(names: object, tokens: object, what: str) -> None:
    if not isinstance(names, list | tuple) or not all(isinstance(name, str | int | bytes) for name in names):
        raise InputError(f"{what}: {IDS} must be a list of str, int or bytes, not {short(names)}")
    if tokens is not None and (not isinstance(tokens, list | tuple) or len(tokens) != len(names)):
        raise InputError(f"{what}: {LENGTHS} must be a list, one length for each of {IDS}")


def _tokens(name: Hashable, own: int | None, lengths: Mapping[Any, int] | None) -> int:
    length = own
    if length is None:
        length = EQUAL_TOKENS if lengths is None else lengths.get(name)
    if type(length) is not int or length < 1:
        raise InputError(f"block {short(name)} has length {short(length)}; it must be a whole number, at least 1")
    return length
