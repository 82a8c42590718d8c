"""Requests that say themselves which blocks they have, taken through the proxy's explicit form as its rewriter does."""

from __future__ import annotations

import asyncio
import copy
import json
from dataclasses import dataclass, field
from typing import Any

from contextpilot_rag import AsyncContextPilot, Namespace
from contextpilot_rag.conversation import Dedup
from contextpilot_rag.proxy.attached import Attached
from contextpilot_rag.proxy.explicit import Explicit, explicit_of, opening_key
from contextpilot_rag.proxy.formats.table import FORMATS
from contextpilot_rag.proxy.located import splice
from contextpilot_rag.proxy.memory import Decision, Memory, chain
from contextpilot_rag.proxy.orders import Orders
from contextpilot_rag.proxy.replaying import Replayed, Replaying, replayed
from contextpilot_rag.proxy.words import Api, Asked

ALL = Dedup(chunks=True)
BLOCKS = Dedup()


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@dataclass
class Proxied:
    """What becomes of requests that come one after another. With order hints: that is the harder case."""

    dedup: Dedup = ALL
    pilot: AsyncContextPilot = field(
        default_factory=lambda: AsyncContextPilot(dedup="blocks+chunks", min_gain=0, order_hint=True)
    )
    clock: Clock = field(default_factory=Clock)
    characters: int = 64 * 2**20

    def __post_init__(self) -> None:
        self.memory = Memory(1_000, 1_000.0, self.clock)
        self.attached = Attached(1_000.0, self.clock, self.characters)
        self.last: Replayed | None = None

    def send(self, body: dict[str, Any], api: Api = "chat", tenant: str = "") -> dict[str, Any]:
        """The body that is forwarded."""
        before = copy.deepcopy(body)
        raw = json.dumps(body).encode()
        asked = read(body, api)
        explicit = explicit_of(asked)
        assert explicit is not None
        full = self.attached.joined(asked, explicit, tenant)
        keys = chain("test", (tenant, asked.model), [message.value for message in asked.messages])
        key = opening_key(full, keys)
        known = None if key is None else self.memory.get(key)
        namespace = Namespace(tenant=tenant, model=asked.model)
        request = Replaying(asked, full, namespace, self.dedup)
        done = asyncio.run(replayed(request, Orders(self.pilot), known))
        self.attached.keep(asked, explicit, tenant)
        if key is not None and done.order is not None:
            self.memory.put(key, Decision(done.order))
        self.last = done
        assert body == before
        assert self.pilot.failures == 0
        sent: dict[str, Any] = json.loads(splice(raw, done.changes))
        assert '"contextpilot"' not in json.dumps(sent)
        return sent


def read(body: dict[str, Any], api: Api = "chat") -> Asked:
    asked = FORMATS[api].read(body)
    assert asked is not None
    return asked


def said(body: dict[str, Any], api: Api = "chat") -> Explicit:
    found = explicit_of(read(body, api))
    assert found is not None
    return found


def user(text: str, *blocks: Any, **members: Any) -> dict[str, Any]:
    return {"role": "user", "content": text, "contextpilot": {"blocks": list(blocks), **members}}
