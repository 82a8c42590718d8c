"""From bytes to a `Batch` of events: what vLLM and SGLang publish of their KV caches, as MessagePack.

Both forms of events are understood, maps with a "type" and the positional arrays of older versions; fields that are not
known here are left alone, fields that are missing have their usual values. The formats changed several times, so one
event that is not understood is left out and counted wherever that can only make us believe less than is there.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Any

import msgspec

from ..errors import EventError
from .kv import Batch, Cleared, Event, Hash, Removed, Stored, salt_extra

MAX_PAYLOAD = 16 * 1024 * 1024
"""Bytes of one message; 3,000,000 tokens fit."""
MAX_HASH = 64
"""Bytes; of a longer one a digest is kept."""
MAX_WORD = 128
"""Characters of what engines call media and their lives."""

_STORED = (
    "block_hashes parent_block_hash token_ids block_size lora_id medium lora_name extra_keys group_idx "
    "kv_cache_spec_kind kv_cache_spec_sliding_window"
).split()
_REMOVED = "block_hashes medium group_idx".split()
_BATCH = "ts events data_parallel_rank".split()
# Attention for which a KV block depends on the whole prefix, and is of use as long as all of that is there.
_WHOLE = {None, "full_attention", "mla_attention", "sink_full_attention", "unknown"}
_64_BITS = (1 << 64) - 1

_decoder = msgspec.msgpack.Decoder()


def decode(payload: bytes) -> Batch:
    """What a message says.

    Args:
        payload: its last frame.

    Raises:
        EventError: it is too long, no MessagePack, no batch of events, or it has an event of a known kind without what
            such an event has to have. Messages have neither tokens nor salts in them.

    >>> decode(msgspec.msgpack.encode([1.5, [["BlockRemoved", [-1, b"x"]], ["BlockMoved", 7]], 0]))
    Batch(events=(Removed(hashes=(18446744073709551615, b'x'), medium='GPU', group=0),), rank=0, unknown=1, at=1.5, \
epoch=None)
    """
    if len(payload) > MAX_PAYLOAD:
        raise EventError(f"a message of {len(payload):,} bytes; {MAX_PAYLOAD:,} at most")
    try:
        raw = _decoder.decode(payload)
    except (msgspec.MsgspecError, ValueError, TypeError, OverflowError, RecursionError) as error:
        raise EventError(f"no MessagePack: {type(error).__name__}") from None
    outer = _fields(raw, _BATCH)
    events = None if outer is None else outer.get("events")
    if outer is None or not isinstance(events, list):
        raise EventError(f"no batch of events, but {_kind(raw)}")
    found: list[Event] = []
    unknown = 0
    for number, event in enumerate(events):
        try:
            understood = _event(event)
        except _Malformed as error:
            raise EventError(f"event {number + 1} of {len(events)}: {error}") from None
        if understood is None:
            unknown += 1
        else:
            found.append(understood)
    rank = outer.get("data_parallel_rank", outer.get("attn_dp_rank"))
    epoch = outer.get("epoch")
    return Batch(
        tuple(found),
        rank if type(rank) is int and rank >= 0 else None,
        unknown,
        _seconds(outer.get("ts")),
        str(epoch)[:MAX_WORD] if isinstance(epoch, str | int) else None,
    )


class _Malformed(Exception):
    """An event has not what it must have."""


def _event(raw: object) -> Event | None:
    """The event, or None if it is of no kind that is known here, or its tokens cannot be told apart."""
    if isinstance(raw, dict):
        kind: object = raw.get("type")
        positions: Sequence[object] = ()
    elif isinstance(raw, list) and raw:
        kind, positions = raw[0], raw[1:]
    else:
        raise _Malformed(f"neither a map nor an array with a type, but {_kind(raw)}")
    if not isinstance(kind, str):
        raise _Malformed("without a type")
    if kind == "AllBlocksCleared":
        return Cleared()
    if kind == "BlockRemoved":
        given = raw if isinstance(raw, dict) else dict(zip(_REMOVED, positions, strict=False))
        return Removed(_hashes(given), _medium(given), _group(given))
    if kind == "BlockStored":
        return _stored(raw if isinstance(raw, dict) else dict(zip(_STORED, positions, strict=False)))
    return None


def _stored(given: Mapping[Any, Any]) -> Stored | None:
    hashes = _hashes(given)
    parent = given.get("parent_block_hash")
    size = given.get("block_size")
    tokens = given.get("token_ids")
    if not isinstance(tokens, list) or type(size) is not int:
        raise _Malformed("BlockStored without token_ids or block_size")
    # Models with several kinds of attention leave KV blocks out and do not say which; those in other media may come
    # without tokens; speculative decoding may have pairs for tokens. None of them can be found by a prompt's tokens.
    if not hashes or size < 1 or len(tokens) != len(hashes) * size or not _are_tokens(tokens):
        return None
    known_parent = None if parent is None else _hash(parent)
    extra = _extra(given, len(hashes), first=known_parent is None)
    if extra is None:
        return None
    window = given.get("kv_cache_spec_sliding_window")
    kind = given.get("kv_cache_spec_kind")
    return Stored(
        hashes,
        known_parent,
        tuple(tokens),
        size,
        extra,
        _medium(given),
        _group(given),
        sliding=bool(window) or not (kind is None or isinstance(kind, str)) or kind not in _WHOLE,
    )


def _extra(given: Mapping[Any, Any], count: int, *, first: bool) -> tuple[str, ...] | None:
    """As `Stored.extra`; None if it is not clear what belongs to which KV block.

    Args:
        given: the event.
        count: of its KV blocks.
        first: the first of them begins a prompt.
    """
    keys, salt = given.get("extra_keys"), given.get("cache_salt")
    # A LoRA stands among the keys without saying that it is one, where a salt could stand. Its name tells.
    lora = [given.get("lora_name"), given.get("lora_id")]
    tuned = lora != [None, None]
    if not keys:
        keys = [None] * count
    if not isinstance(keys, list) or len(keys) != count:
        return None
    extra = []
    for number, one in enumerate(keys):
        begins = first and number == 0
        own = [] if one is None else list(one) if isinstance(one, list) else [one]
        if not own and salt and begins:
            own = [salt]
        if tuned:
            extra.append(_other([lora, own]))
        elif begins and len(own) == 1 and isinstance(own[0], str):
            extra.append(salt_extra(own[0]))
        else:
            extra.append(_other(own) if own else "")
    return tuple(extra) if any(extra) else ()


def _other(keys: list[Any]) -> str:
    # A digest, so that what may be long (or somebody's secret) is not kept.
    try:
        canonical = msgspec.msgpack.encode(keys, order="deterministic")
    except (TypeError, ValueError, RecursionError):
        canonical = repr(keys).encode("utf-8", "surrogatepass")
    return "other:" + blake2b(canonical, digest_size=16).hexdigest()


def _fields(raw: object, names: Sequence[str]) -> Mapping[Any, Any] | None:
    if isinstance(raw, dict):
        return raw
    return dict(zip(names, raw, strict=False)) if isinstance(raw, list) else None


def _hashes(given: Mapping[Any, Any]) -> tuple[Hash, ...]:
    hashes = given.get("block_hashes")
    if not isinstance(hashes, list):
        raise _Malformed(f"block_hashes: no array, but {_kind(hashes)}")
    return tuple(map(_hash, hashes))


def _hash(raw: object) -> Hash:
    if type(raw) is int:
        return raw & _64_BITS
    if isinstance(raw, bytes):
        return raw if len(raw) <= MAX_HASH else blake2b(raw, digest_size=MAX_HASH).digest()
    raise _Malformed(f"a hash that is neither a number nor bytes, but {_kind(raw)}")


def _are_tokens(tokens: Sequence[object]) -> bool:
    return set(map(type, tokens)) == {int} and min(tokens) >= 0  # type: ignore[type-var, operator]


def _medium(given: Mapping[Any, Any]) -> str:
    medium = given.get("medium")
    return medium[:MAX_WORD] if isinstance(medium, str) else "GPU"


def _group(given: Mapping[Any, Any]) -> int:
    group = given.get("group_idx")
    return group if type(group) is int else 0


def _seconds(raw: object) -> float | None:
    return float(raw) if isinstance(raw, int | float) and not isinstance(raw, bool) and math.isfinite(raw) else None


def _kind(raw: object) -> str:
    return "nothing" if raw is None else type(raw).__name__
