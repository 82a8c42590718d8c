"""What callers give, as what the library works with: blocks of many forms, namespaces, repeats."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from numbers import Real
from typing import Any

from .dedup.units import normal
from .errors import ConflictingBlocks, InvalidBlock, SettingsError, TextTooLong
from .identity import block_key
from .types import Block, Context, Namespace, short

BlockLike = Block | str | tuple[Hashable, str] | Mapping[str, Any]
ContextLike = Context | Iterable[BlockLike]


@dataclass(frozen=True, slots=True)
class Distinct:
    """The blocks of a request, each text once.

    Args:
        blocks: at their best rank.
        keys: their identities.
        aliases: for each block, every id its text came under, its own first.
    """

    blocks: tuple[Block, ...]
    keys: tuple[bytes, ...]
    aliases: tuple[tuple[Hashable, ...], ...]


def distinct(blocks: Iterable[BlockLike], normalise: bool = False, max_text: int | None = None) -> Distinct:
    """Each text once, at its best rank, with all the ids it came under.

    Args:
        blocks: best first.
        normalise: texts that differ only in line ends, Unicode form or blanks at the ends of lines are the same; the
            first is kept as it is.
        max_text: characters of one text.

    Raises:
        InvalidBlock: something that is no block; the message says which one and why.
        ConflictingBlocks: one id with two texts.
        TextTooLong: a text of more than ``max_text`` characters.

    >>> distinct([("a", "same"), ("b", "same"), ("c", "other")]).aliases
    (('a', 'b'), ('c',))
    """
    if isinstance(blocks, str | bytes | Mapping) or not isinstance(blocks, Iterable):
        raise InvalidBlock(f"blocks must be a sequence of blocks, not one {type(blocks).__name__}")
    found: dict[bytes, tuple[bytes, Block]] = {}  # by the hash of the text that counts
    aliases: dict[bytes, dict[Hashable, None]] = {}  # a text without any id goes by its hash
    key_of_id: dict[Hashable, bytes] = {}
    for rank, given in enumerate(blocks):
        block = _block(given, rank)
        if max_text is not None and len(block.text) > max_text:
            raise TextTooLong(
                f"block {rank} of the request has {len(block.text):,} characters; max_text is {max_text:,}"
            )
        counts = normal(block.text) if normalise else block.text
        same = block_key(counts)
        if same not in found:
            found[same] = (same if counts is block.text else block_key(block.text), block)
        names = aliases.setdefault(same, {})
        if block.id is None:
            continue
        name = block.id
        if key_of_id.setdefault(name, same) != same:
            raise ConflictingBlocks(
                f"block {rank} of the request: id {short(name)} came before with another text "
                "(give each chunk its own id)"
            )
        names.setdefault(name)
    keys = tuple(key for key, _ in found.values())
    ids = tuple(tuple(names) or (key.hex(),) for key, names in zip(keys, aliases.values(), strict=True))
    return Distinct(tuple(block for _, block in found.values()), keys, ids)


def _block(given: object, rank: int) -> Block:
    """Anything block-like as a `Block`; errors say which block of the request it was."""
    try:
        if isinstance(given, Block):
            return given
        if isinstance(given, str):
            return Block(given)
        if isinstance(given, tuple) and len(given) == 2:
            return Block(given[1], id=given[0])
        if isinstance(given, Mapping) and "text" in given:
            return Block(given["text"], given.get("id"), given.get("tokens"), given.get("score"))
    except InvalidBlock as error:
        raise InvalidBlock(f"block {rank} of the request: {error}") from None
    got = f"not {type(given).__name__}"
    if isinstance(given, Mapping):
        got = f"not a mapping with {short(list(given))}"
    elif isinstance(given, tuple):
        got = f"not a tuple of {len(given)}"
    raise InvalidBlock(
        f"block {rank} of the request: give a Block, a text, an (id, text) pair or a mapping with 'text', {got}"
    )


def keyed_contexts(
    contexts: Mapping[Hashable, ContextLike] | Iterable[ContextLike],
) -> list[tuple[Hashable, ContextLike]]:
    """The contexts of a batch with their keys; those of a sequence are numbered.

    Raises:
        InvalidBlock: no collection of contexts.

    >>> keyed_contexts([["a"], ["b"]])
    [(0, ['a']), (1, ['b'])]
    """
    if isinstance(contexts, Mapping):
        return list(contexts.items())
    if isinstance(contexts, str | bytes | Context) or not isinstance(contexts, Iterable):
        raise InvalidBlock(f"contexts must be a mapping or a sequence of contexts, not one {type(contexts).__name__}")
    return list(enumerate(contexts))


def namespace_of(value: Namespace | str | None) -> Namespace:
    """A namespace as callers name it: None is the default one, a string is a tenant.

    Raises:
        SettingsError: something else.
    """
    if value is None:
        return Namespace()
    if isinstance(value, Namespace):
        return value
    if isinstance(value, str) and value:
        return Namespace(tenant=value)
    if value == "":  # most likely a tenant that is missing, who must not end up among everybody
        raise SettingsError("a namespace's name must not be empty; None, or Namespace(), is the default one")
    raise SettingsError(f"a namespace is a Namespace or a str, not {type(value).__name__}")


def share_of(value: object) -> float | None:
    """A number from 0 to 1, of Python's or of another library's, as a float; None: it is none.

    >>> share_of(1), share_of(1.5), share_of(float("nan")), share_of("1")
    (1.0, None, None, None)
    """
    try:
        number = float(value) if isinstance(value, Real) else None
    except OverflowError:
        return None
    return number if number is not None and 0 <= number <= 1 else None
