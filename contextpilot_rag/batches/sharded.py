"""A plan in shards, one for each engine; its rows stay with the workers until they are asked for."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import InputError, SettingsError
from .cutting import Piece
from .emitting import piece_rows, piece_table
from .planning import Totals
from .reading import IDS
from .workers import RayWorkers, Workers

if TYPE_CHECKING:
    import ray.data


@dataclass(frozen=True, slots=True)
class Shard:
    """The requests of one engine, in the order of sending. Iterates over its rows.

    A row has what you gave for it, and

    - ``shard`` and ``position``, in which it stands where;
    - ``order``: positions in its ``context_ids``, in prompt order, each block once;
    - ``predicted_cached_tokens`` and ``cached_blocks``: how much of its beginning the engine is predicted to have;
    - ``source``: the position of the request that computes this beginning; -1: nobody has to.

    Args:
        number: from 0.
        requests: how many.
        tokens: of all their blocks.
        predicted_cached_tokens: of these.
    """

    number: int
    requests: int
    tokens: int
    predicted_cached_tokens: int
    _pieces: tuple[Piece, ...] = field(repr=False)
    _groups: Sequence[Any] = field(repr=False, compare=False)
    _workers: Workers = field(repr=False, compare=False)

    def __len__(self) -> int:
        return self.requests

    def __iter__(self) -> Iterator[dict[str, Any]]:
        position = 0
        for piece in self._pieces:
            planned = self._workers.get(self._groups[piece.group])
            yield from piece_rows(planned, piece, self.number, position)
            position += piece.stop - piece.start

    @property
    def work(self) -> int:
        """Tokens that the engine has to compute."""
        return self.tokens - self.predicted_cached_tokens

    @property
    def hit_ratio(self) -> float:
        """Predicted cached tokens over tokens."""
        return self.predicted_cached_tokens / self.tokens if self.tokens else 0.0

    def to_dataset(self) -> ray.data.Dataset:
        """The rows as a Ray data set, in the order of sending, which what follows is asked to keep, too.

        Raises:
            SettingsError: this plan was not made on Ray.
        """
        if not isinstance(self._workers, RayWorkers):
            raise SettingsError("only a plan that was made on Ray can become a data set of Ray")
        import ray.data

        tables, position = [], 0
        for piece in self._pieces:
            tables.append(self._workers.submit(piece_table, self._groups[piece.group], piece, self.number, position))
            position += piece.stop - piece.start
        if not tables:
            return ray.data.from_items([])
        dataset = ray.data.from_arrow_refs(tables)
        dataset.context.execution_options.preserve_order = True
        return dataset

    def write(self, path: str | Path) -> None:
        """Write a schedule: JSON lines of the rows' own names and their ``context_ids`` in prompt order.

        Raises:
            InputError: the rows have no such ids, or the file cannot be written.
        """
        try:
            with Path(path).open("w", encoding="utf-8") as file:
                for row in self:
                    if IDS not in row:
                        raise InputError(f"a schedule is of rows with {IDS}; these are Request objects")
                    name = {key: row[key] for key in ("qid", "key") if key in row}
                    ids = [row[IDS][place] for place in row["order"]]
                    file.write(json.dumps({**name, IDS: ids}) + "\n")
        except (OSError, TypeError) as error:
            raise InputError(f"cannot write {path}: {error}") from error


@dataclass(frozen=True, slots=True)
class ShardedPlan:
    """A batch in shards, one for each engine.

    Args:
        shards: in each request exactly once.
        totals: of all of it. What was cut apart is subtracted.
        groups: how many were planned on their own.
        largest: requests of the largest of them.
        levels: how often the batch was split.
        uncertain: how far the heaviest blocks' weights may be off, as a share of all tokens.
    """

    shards: tuple[Shard, ...]
    totals: Totals
    groups: int
    largest: int
    levels: int
    uncertain: float

    def __len__(self) -> int:
        return self.totals.requests

    @property
    def tokens(self) -> int:
        """Tokens of all blocks."""
        return self.totals.tokens

    @property
    def predicted_cached_tokens(self) -> int:
        """Of these, those that the engines are predicted to find in their caches."""
        return self.totals.cached

    @property
    def hit_ratio(self) -> float:
        """Predicted cached tokens over tokens."""
        return self.totals.cached / self.totals.tokens if self.totals.tokens else 0.0

    @property
    def imbalance(self) -> float:
        """How much more the busiest engine has to compute than the average, as a share; 0: all the same."""
        work = [shard.work for shard in self.shards]
        return max(work) * len(work) / sum(work) - 1 if sum(work) else 0.0

    def explain(self) -> str:
        """What the plan does, in a few lines."""
        before = self.totals.retrieved / self.totals.tokens if self.totals.tokens else 0.0
        computed = self.tokens - self.totals.retrieved
        saved = (self.totals.cached - self.totals.retrieved) / computed if computed else 0.0
        engines = f"{len(self.shards)} engines" if len(self.shards) > 1 else "1 engine"
        groups = (
            f"{self.groups:,} groups of up to {self.largest:,}" if self.groups > 1 else f"1 group of {self.largest:,}"
        )
        return "\n".join(
            [
                f"{len(self):,} requests, {self.tokens:,} tokens of blocks, for {engines}",
                f"as retrieved {before:>6.1%} of the tokens found in the caches".replace("%", " %"),
                f"as planned   {self.hit_ratio:>6.1%}, {saved:.1%} of the prefill saved".replace("%", " %"),
                f"another order for {self.totals.changed:,} of {len(self):,} requests",
                f"planned in {groups}, found by {self.levels} levels of splits",
                f"the busiest engine computes {self.imbalance:.1%} more than the average".replace("%", " %"),
            ]
        )
