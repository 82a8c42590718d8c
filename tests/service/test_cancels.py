"""Fifty clients at once, who hang up whenever they like: the service stays well, and every answer is its request's."""

from __future__ import annotations

import asyncio
import json
import random
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from contextpilot_rag.service.tenant import Tenant

from .harness import SECONDS, serving

CLIENTS = 50
REQUESTS = 12  # of each


@dataclass
class Tally:
    """What the clients saw."""

    sent: int = 0  # requests that were written in whole
    begun: int = 0  # requests of which a part was written, or all
    answers: int = 0
    reports: int = 0
    tickets: list[str] = field(default_factory=list)
    statuses: Counter[int] = field(default_factory=Counter)


async def answer(reader: asyncio.StreamReader) -> tuple[int, Any]:
    head = await reader.readuntil(b"\r\n\r\n")
    lines = head.decode().lower().split("\r\n")
    length = next(int(line.partition(":")[2]) for line in lines if line.startswith("content-length"))
    return int(lines[0].split()[1]), json.loads(await reader.readexactly(length))


def message(path: str, body: object) -> bytes:
    encoded = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(encoded)}\r\n\r\n".encode() + encoded


def request(name: str, chance: random.Random) -> dict[str, Any]:
    ids = chance.sample(range(60), chance.randint(1, 15))
    conversation = {"id": f"talk-{chance.randrange(20)}"} if chance.random() < 0.3 else None
    blocks = [{"id": f"doc-{number}", "tokens": 50 + number} for number in ids]
    return {
        "key": name,
        "blocks": blocks,
        "conversation": conversation,
        "namespace": {"model": f"m{chance.randrange(3)}"},
    }


def check(given: dict[str, Any], got: dict[str, Any]) -> None:
    assert got["key"] == given["key"]
    assert sorted(got["order"]) == list(range(len(given["blocks"])))
    assert len(got["labels"]) == len(given["blocks"])
    assert 0 <= got["cached_blocks"] <= len(given["blocks"])
    assert got["predicted_cached_tokens"] <= sum(block["tokens"] for block in given["blocks"])


async def client(number: int, port: int, tally: Tally) -> None:
    chance = random.Random(number)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for turn in range(REQUESTS):
        if writer.is_closing():
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
        batch = chance.random() < 0.2
        given = [request(f"{number}-{turn}-{place}", chance) for place in range(chance.randint(2, 8) if batch else 1)]
        sent = message("/v1/align/batch", {"requests": given}) if batch else message("/v1/align", given[0])
        tally.begun += len(given)
        mood = chance.random()
        if mood < 0.2:  # half a request, and gone
            writer.write(sent[: chance.randrange(len(sent))])
            await writer.drain()
        else:
            writer.write(sent)
            tally.sent += len(given)
        if mood < 0.4:  # gone before the answer
            await asyncio.sleep(chance.random() * 0.01)
            writer.transport.abort()
            continue
        status, got = await answer(reader)
        tally.statuses[status] += 1
        answers = got["alignments"] if batch else [got]
        assert len(answers) == len(given)
        for one, other in zip(given, answers, strict=True):
            check(one, other)
        tally.answers += len(given)
        tally.tickets += [one["ticket"] for one in answers]
        if chance.random() < 0.5:
            writer.write(message("/v1/observe", {"ticket": answers[0]["ticket"], "usage": {"cached_tokens": 1}}))
            status, got = await answer(reader)
            assert (status, got) == (200, {"counted": True})
            tally.reports += 1
    writer.close()


async def everybody(port: int, tally: Tally) -> None:
    await asyncio.wait_for(asyncio.gather(*(client(number, port, tally) for number in range(CLIENTS))), SECONDS * 2)


def test_fifty_clients_with_random_cancels(caplog):
    tally = Tally()
    with serving(tenant_tickets=100_000) as service:
        asyncio.run(everybody(service.port, tally))
        stats = service.ask("GET", "/v1/stats").json()
        assert tally.answers <= stats["requests"] <= tally.sent < tally.begun
        assert stats["requests"] == stats["tickets"] == sum(stats["rules"].values())
        assert stats["observed"] == stats["reported_cached_tokens"] == tally.reports
        assert len(set(tally.tickets)) == len(tally.tickets) == tally.answers > 0
        assert tally.statuses.keys() == {200}
        assert service.ask("GET", "/readyz").status == 200
        assert service.ask("POST", "/v1/align", request("last", random.Random(0))).status == 200
    assert service.server.connections == 0
    assert not caplog.records


def test_a_batch_leaves_others_their_turn(monkeypatch) -> None:
    """Single requests are answered while a batch is worked on, not after it: it has work as long as they wait."""
    batch = {"requests": [request(f"b{number}", random.Random(number)) for number in range(1_000)]}
    begun, answered, done = threading.Event(), threading.Event(), 0
    align = Tenant.align

    def slowly(self, given, found=None):
        nonlocal done
        if given.key.startswith("b"):
            begun.set()
            if not answered.is_set():
                time.sleep(0.006)
            done += 1
        return align(self, given, found)

    async def asked(port: int, sent: bytes) -> int:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(sent)
        assert (await answer(reader))[0] == 200
        writer.close()
        return done

    async def both(port: int) -> list[int]:
        long = asyncio.ensure_future(asked(port, message("/v1/align/batch", batch)))
        assert await asyncio.to_thread(begun.wait, SECONDS)
        seen = [await asked(port, message("/v1/align", request(f"s{n}", random.Random(n)))) for n in range(3)]
        answered.set()
        assert await long == 1_000
        return seen

    monkeypatch.setattr(Tenant, "align", slowly)
    with serving(max_batch=1_000) as service:
        seen = asyncio.run(both(service.port))
    assert max(seen) < 1_000
