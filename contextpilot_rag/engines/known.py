"""Known: what is known of one engine, whoever follows it: a fleet, a service, a pilot whose index is elsewhere."""

from __future__ import annotations

from dataclasses import dataclass, field

from .engine import Engine, EngineFacts, Kind, Level


@dataclass(slots=True, eq=False)
class Known:
    """One engine, and what is known of it.

    Args:
        engine: which.
        alive: it answers.
        why: why it does not.
        level: how it is followed.
        level_why: why it is not followed by its events.
        facts: what it says of itself.
        told_block_size: tokens of the KV blocks that its events told of last, which are how large they are; None: they
            told of none, or are not listened to here.
    """

    engine: Engine
    alive: bool = True
    why: str = ""
    level: Level = "model"
    level_why: str = ""
    facts: EngineFacts = field(default_factory=EngineFacts)
    told_block_size: int | None = None

    @property
    def kind(self) -> Kind:
        """Which software it is."""
        return self.facts.kind

    @property
    def capacity_tokens(self) -> int | None:
        """As it was set, or as the engine says."""
        return self.engine.capacity_tokens or self.facts.capacity_tokens

    @property
    def block_size(self) -> int | None:
        """As its events tell, as it was set, or as the engine says."""
        return self.told_block_size or self.engine.block_size or self.facts.block_size
