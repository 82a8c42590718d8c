"""Many contexts as a few arrays: what is split, sent around and put together again.

Requests as objects take kilobytes each, and minutes to send between processes. Here each distinct block stands once,
and a context is a run of numbers.
"""

from __future__ import annotations

import hashlib
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..types import BlockRef, Namespace, OrderBudget, Request

Ints = npt.NDArray[np.int64]
Numbers = npt.NDArray[np.int32]
Hashes = npt.NDArray[np.uint64]
Kind = tuple[Namespace, OrderBudget]


@dataclass(frozen=True, slots=True)
class Contexts:
    """Some contexts. They have no names: whoever needs those keeps them beside, in the same order.

    Args:
        keys: of the distinct blocks.
        hashes: of these, with their namespace: equal in every process. Two blocks with one hash are only ever taken to
            be alike when contexts are grouped, never when they are planned: a collision costs a little quality.
        tokens: their lengths.
        blocks: for each context after the other the numbers of its blocks, best first.
        ends: where each context begins among these, and where the last one ends.
        kinds: namespaces and budgets that occur.
        kind: for each context the number of its own.
    """

    keys: list[Hashable]
    hashes: Hashes
    tokens: Ints
    blocks: Numbers
    ends: Ints
    kinds: list[Kind]
    kind: Numbers

    def __len__(self) -> int:
        return len(self.kind)

    @property
    def lengths(self) -> Ints:
        """How many blocks each context has."""
        return np.diff(self.ends)

    def select(self, rows: Ints) -> Contexts:
        """Some of them, in this order."""
        lengths = self.lengths[rows]
        flat = self.blocks[within(self.ends[rows], lengths)]
        used, blocks = np.unique(flat, return_inverse=True)
        return Contexts(
            [self.keys[number] for number in used.tolist()],
            self.hashes[used],
            self.tokens[used],
            blocks.astype(np.int32),
            offsets(lengths),
            self.kinds,
            self.kind[rows],
        )

    def requests(self) -> list[Request]:
        """As the planner takes them, their positions as keys."""
        refs = [BlockRef(key, tokens) for key, tokens in zip(self.keys, self.tokens.tolist(), strict=True)]
        blocks, ends = [refs[number] for number in self.blocks.tolist()], self.ends.tolist()
        found = []
        for row, kind in enumerate(self.kind.tolist()):
            namespace, budget = self.kinds[kind]
            found.append(Request(tuple(blocks[ends[row] : ends[row + 1]]), namespace, budget, row))
        return found

    @staticmethod
    def of(requests: Iterable[Request]) -> Contexts:
        """Requests; their keys are not kept.

        >>> a, b = BlockRef("a", 5), BlockRef("b", 3)
        >>> contexts = Contexts.of([Request((a, b)), Request((b,))])
        >>> contexts.keys, contexts.blocks.tolist(), contexts.ends.tolist()
        (['a', 'b'], [0, 1, 1], [0, 2, 3])
        """
        number: dict[tuple[Namespace, Hashable, int], int] = {}
        kinds: dict[Kind, int] = {}
        blocks: list[int] = []
        lengths: list[int] = []
        kind: list[int] = []
        for request in requests:
            space = request.namespace
            blocks += [number.setdefault((space, ref.key, ref.tokens), len(number)) for ref in request.blocks]
            lengths.append(len(request.blocks))
            kind.append(kinds.setdefault((space, request.budget), len(kinds)))
        return Contexts(
            [key for _, key, _ in number],
            hashes_of([key for _, key, _ in number], [space for space, _, _ in number]),
            np.array([tokens for _, _, tokens in number], np.int64),
            np.array(blocks, np.int32),
            offsets(np.array(lengths, np.int64)),
            list(kinds),
            np.array(kind, np.int32),
        )

    @staticmethod
    def concatenated(parts: Sequence[Contexts]) -> Contexts:
        """All contexts of several, one part after another."""
        number: dict[tuple[Hashable, int, int], int] = {}
        kinds: dict[Kind, int] = {}
        blocks: list[Numbers] = []
        kind: list[Numbers] = []
        for part in parts:
            entries = zip(part.keys, part.tokens.tolist(), part.hashes.tolist(), strict=True)
            numbers = np.array([number.setdefault(entry, len(number)) for entry in entries], np.int32)
            blocks.append(numbers[part.blocks] if len(numbers) else part.blocks)
            own = np.array([kinds.setdefault(one, len(kinds)) for one in part.kinds], np.int32)
            kind.append(own[part.kind] if len(own) else part.kind)
        lengths = [part.lengths for part in parts]
        return Contexts(
            [key for key, _, _ in number],
            np.array([hashed for _, _, hashed in number], np.uint64),
            np.array([tokens for _, tokens, _ in number], np.int64),
            np.concatenate([*blocks, np.empty(0, np.int32)]),
            offsets(np.concatenate([*lengths, np.empty(0, np.int64)])),
            list(kinds),
            np.concatenate([*kind, np.empty(0, np.int32)]),
        )


def offsets(lengths: Ints) -> Ints:
    """Where runs of these lengths begin, and where the last one ends.

    >>> offsets(np.array([2, 0, 1])).tolist()
    [0, 2, 2, 3]
    """
    ends = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=ends[1:])
    return ends


def within(starts: Ints, lengths: Ints) -> Ints:
    """The positions in several runs, one run after another.

    >>> within(np.array([10, 40]), np.array([3, 2])).tolist()
    [10, 11, 12, 40, 41]
    """
    total = int(lengths.sum())
    return np.repeat(starts - offsets(lengths)[:-1], lengths) + np.arange(total)


def hashes_of(keys: Sequence[Hashable], spaces: Namespace | Sequence[Namespace]) -> Hashes:
    """A 64-bit hash of each block key with its namespace, or that of all of them; equal in every process.

    Keys that are no str, bytes or int are known by their ``repr``.
    """
    each = [spaces] * len(keys) if isinstance(spaces, Namespace) else spaces
    known: dict[Namespace, bytes] = {}
    digests = []
    for key, space in zip(keys, each, strict=True):
        head = known.get(space)
        if head is None:
            fields = repr((space.tenant, space.model, space.corpus, space.head)).encode("utf-8", "surrogatepass")
            head = known[space] = hashlib.blake2b(fields, digest_size=16).digest()
        digests.append(hashlib.blake2b(_bytes_of(key), digest_size=8, key=head).digest())
    return np.frombuffer(b"".join(digests), "<u8").astype(np.uint64)


def _bytes_of(key: Hashable) -> bytes:
    if isinstance(key, str):
        return b"s" + key.encode("utf-8", "surrogatepass")
    return b"b" + key if isinstance(key, bytes) else b"o" + repr(key).encode("utf-8", "surrogatepass")
