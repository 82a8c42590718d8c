"""KV-cache events in bytes, as vLLM and SGLang publish them. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import msgspec

from ..engines.kv import Cleared, Event, Hash, Removed, Stored
from ..errors import SettingsError

Dialect = Literal["vllm", "sglang"]
Format = Literal["map", "array"]
Hashes = Literal["unsigned", "signed", "bytes"]


@dataclass(frozen=True, slots=True)
class EventOptions:
    """How a FakeEngine publishes its KV-cache events.

    Args:
        dialect: vLLM's events (``extra_keys``, a removal for each KV block) or SGLang's (``cache_salt``, an event for
            each KV block stored, one for all that are removed). None: the engine's.
        format: an event is a map, as in vLLM since 0.26 and in SGLang, or a positional array, as in vLLM before.
        hashes: of KV blocks: 64 bits unsigned, 64 bits signed, or 32 bytes. None: the dialect's.
        topic: the first frame of each message.
        replay: whether there is an address that replays what was published.
        replay_topic_frame: whether replayed messages begin with the topic, as in vLLM since 0.26.
        buffer_steps: how many of the latest messages can be replayed.
        rank: data-parallel rank that messages name; None: they name none.
        connect: an address (tcp://HOST:PORT) that events are sent to, where the follower has to listen, as vLLM does
            for an address without "*". Empty: followers connect to the engine.
        late_clear: a reset is told with the next request's events, as vLLM does. False: at once.

    Raises:
        SettingsError: a value that cannot be.
    """

    dialect: Dialect | None = None
    format: Format = "map"
    hashes: Hashes | None = None
    topic: str = ""
    replay: bool = True
    replay_topic_frame: bool = True
    buffer_steps: int = 10_000
    rank: int | None = 0
    connect: str = ""
    late_clear: bool = False

    def __post_init__(self) -> None:
        for name, kinds in (("dialect", Dialect), ("format", Format), ("hashes", Hashes)):
            value = getattr(self, name)
            if value not in get_args(kinds) and not (value is None and name != "format"):
                raise SettingsError(f"events' {name} must be one of {', '.join(get_args(kinds))}, not {value!r}")
        if type(self.buffer_steps) is not int or self.buffer_steps < 0:
            raise SettingsError(f"events' buffer_steps must be an int, 0 or more, not {self.buffer_steps!r}")
        if self.dialect == "sglang" and self.format == "array":
            raise SettingsError("events in SGLang's dialect are maps")

    def spoken(self, dialect: Dialect) -> EventOptions:
        """With what is left to the engine's dialect filled in.

        >>> EventOptions().spoken("sglang").hashes
        'signed'
        """
        dialect = self.dialect or dialect
        return replace(self, dialect=dialect, hashes=self.hashes or ("signed" if dialect == "sglang" else "unsigned"))


def encoded(events: Iterable[Event], salt: str | None, options: EventOptions, at: float) -> bytes:
    """One message's payload.

    Args:
        events: of one step.
        salt: of the prompt that they happened for.
        options: with dialect and hashes.
        at: seconds since the epoch.

    >>> options = EventOptions(format="array").spoken("vllm")
    >>> msgspec.msgpack.decode(encoded([Removed((2**64 - 1,)), Cleared()], None, options, 0.5))
    [0.5, [['BlockRemoved', [18446744073709551615], 'GPU', 0], ['AllBlocksCleared']], 0]
    """
    told = [*(_sglang(events, salt, options) if options.dialect == "sglang" else _vllm(events, options))]
    if options.format == "array":
        told = [[*event.values()] for event in told]
    rank = () if options.rank is None else (options.rank,)
    return msgspec.msgpack.encode([at, told, *rank])


def _vllm(events: Iterable[Event], options: EventOptions) -> Iterator[Any]:
    named = _named(options)
    for event in events:
        if isinstance(event, Stored):
            yield {
                "type": "BlockStored",
                "block_hashes": [named(one) for one in event.hashes],
                "parent_block_hash": None if event.parent is None else named(event.parent),
                "token_ids": event.tokens,
                "block_size": event.block_size,
                "lora_id": None,
                "medium": event.medium,
                "lora_name": None,
                "extra_keys": [[_salt(one)] if one else None for one in event.extra or ("",) * len(event.hashes)],
                "group_idx": event.group,
                "kv_cache_spec_kind": "full_attention",
            }
        elif isinstance(event, Removed):
            for one in event.hashes:
                hashes = [named(one)]
                yield {"type": "BlockRemoved", "block_hashes": hashes, "medium": event.medium, "group_idx": event.group}
        else:
            yield {"type": "AllBlocksCleared"}


def _sglang(events: Iterable[Event], salt: str | None, options: EventOptions) -> Iterator[Any]:
    named = _named(options)
    salted = {} if salt is None else {"cache_salt": salt}
    removed: list[Hash] = []
    for event in [*events, None]:
        if removed and not isinstance(event, Removed):
            yield {"type": "BlockRemoved", "block_hashes": [named(one) for one in removed], "medium": "GPU"}
            removed = []
        if isinstance(event, Removed):
            removed += event.hashes
        elif isinstance(event, Stored):
            parent = event.parent
            for number, one in enumerate(event.hashes):
                yield {
                    "type": "BlockStored",
                    "block_hashes": [named(one)],
                    "parent_block_hash": None if parent is None else named(parent),
                    "token_ids": event.tokens[number * event.block_size : (number + 1) * event.block_size],
                    "block_size": event.block_size,
                    "lora_id": None,
                    "medium": event.medium,
                    **salted,
                }
                parent = one
        elif isinstance(event, Cleared):
            yield {"type": "AllBlocksCleared"}


def _named(options: EventOptions) -> Callable[[Hash], Hash]:
    return {"unsigned": _unsigned, "signed": _signed, "bytes": _bytes}[options.hashes or "unsigned"]


def _unsigned(one: Hash) -> Hash:
    return one


def _signed(one: Hash) -> Hash:
    return one - 2**64 if isinstance(one, int) and one >= 2**63 else one


def _bytes(one: Hash) -> Hash:
    return one.to_bytes(32, "big") if isinstance(one, int) else one


def _salt(extra: str) -> str:
    return extra.removeprefix("salt:")
