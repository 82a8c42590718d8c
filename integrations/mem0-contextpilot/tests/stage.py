"""Stand-ins: a memory that returns what it is told to, an index that fails."""

from __future__ import annotations

import hashlib
from typing import Any


def item(name: str, text: Any, **others: Any) -> dict[str, Any]:
    """A memory as Mem0 returns it."""
    version = hashlib.md5(repr(text).encode(), usedforsecurity=False).hexdigest()
    dates = {"created_at": "2026-11-01T08:00:00+00:00", "updated_at": "2026-11-02T09:00:00+00:00"}
    return {"id": name, "memory": text, "hash": version, "metadata": None, "score": 0.5, **dates, **others}


class Notes:
    """A memory that returns what it is told to, whatever is looked for."""

    def __init__(self, *replies: Any) -> None:
        self.replies = list(replies)
        self.calls: list[dict[str, Any]] = []

    def search(self, query: str, **arguments: Any) -> Any:
        self.calls.append({"query": query, **arguments})
        reply = self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]
        return reply() if callable(reply) else reply


class AsyncNotes(Notes):
    """The same, to be awaited."""

    async def search(self, query: str, **arguments: Any) -> Any:  # type: ignore[override]
        return super().search(query, **arguments)


class Broken:
    """An index that fails whatever it is asked."""

    def align(self, _request: object) -> None:
        raise OSError("no route to host")

    observe = predict = align


LONG = [f"{word} " * 40 for word in ("slices", "steps", "copies", "sets", "dicts")]


def reply(*texts: str, **others: Any) -> dict[str, Any]:
    """A reply with these texts; ids are the texts' first words."""
    return {"results": [item(text.split()[0] if text.split() else "blank", text) for text in texts], **others}


def names(found: Any) -> list[str]:
    """Ids of a reply's results."""
    return [memory["id"] for memory in found["results"]]
