"""What is held in memory, for each entry, namespace, ticket and conversation.

    python benchmarks/memory.py

Writes its table into benchmarks/README.md. Each line is measured in a process of its own: by how much its resident
memory has grown when so many are held.
"""

from __future__ import annotations

import gc
import json
import random
import resource
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from report import provenance, table, write_section

from contextpilot_rag import BlockRef, ContextPilot, LocalIndex, Namespace, OrderBudget, Request
from contextpilot_rag.remote import wire
from contextpilot_rag.service.core import Service
from contextpilot_rag.service.settings import ServiceSettings
from contextpilot_rag.service.tenant import Tenant

BLOCKS = 15  # of a request
TOPICS, TOPIC = 1_000, 20  # topics, and blocks of each
TURNS, NEW = 5, 5  # of a conversation, and blocks that are new in each of them
CHARACTERS = 1_500  # of a block's text in a conversation
STATM = Path("/proc/self/statm")

ABOUT = f"""## What is held in memory

Resident memory of a process, by how much it has grown when so many are held. Requests have {BLOCKS} blocks.
*Unrelated*: no two of them share any; *topics*: each has {BLOCKS} of the {TOPIC} blocks of one of {TOPICS:,} topics.
What `throughput` keeps to learn from (recent requests, shadow trees) is in its lines. A conversation has {TURNS}
turns with {NEW} new blocks each, of {CHARACTERS:,} characters: the library's holds these texts and its messages; the
service's holds neither, and its tickets are in the figure."""


@dataclass(frozen=True)
class Held:
    """What was made.

    Args:
        kept: so that it is not forgotten.
        number: how many there are.
    """

    kept: object
    number: int


def entries(order: str, *, topics: bool) -> Held:
    """Entries of an index."""
    index, draw = LocalIndex(), random.Random(0)
    for number in range(20_000):
        request = _topic(draw) if topics else range(number * BLOCKS, (number + 1) * BLOCKS)
        index.align(Request(tuple(BlockRef(_key(block), 200) for block in request), budget=OrderBudget(order)))
    return Held(index, index.stats().tree_blocks)


def namespaces(order: str) -> Held:
    """Namespaces that were asked once, for the same blocks."""
    index, number = LocalIndex(max_namespaces=10**6), 5_000
    blocks = tuple(BlockRef(_key(block), 200) for block in range(BLOCKS))
    for tenant in range(number):
        index.align(Request(blocks, Namespace(f"tenant {tenant}"), OrderBudget(order)))
    return Held(index, number)


def tickets() -> Held:
    """Tickets of a service that knows all that it is asked for."""
    number = 20_000
    service, tenant = _service()
    for _ in range(number):
        tenant.align(wire.AlignIn(_asked(range(BLOCKS))))
    return Held(service, number)


def conversations() -> Held:
    """Conversations of a pilot, with their texts."""
    pilot, number = ContextPilot(order="retrieved"), 1_000
    for one in range(number):
        talk = pilot.conversation(f"conversation {one}", system="Answer from the documents.")
        for turn in range(TURNS):
            texts = [f"{one}, {turn}, {block}. ".ljust(CHARACTERS, "x") for block in range(NEW)]
            talk.align(texts, "Why is that so?")
            talk.answer("Because it is. " * 20)
    return Held(pilot, number)


def conversations_over_http() -> Held:
    """Conversations of a service, which holds no texts."""
    number = 4_000
    service, tenant = _service()
    for one in range(number):
        after, label = None, None
        for turn in range(TURNS):
            start = (one * TURNS + turn) * NEW
            asked = wire.TurnIn(f"conversation {one}", after, label)
            answer = tenant.align(wire.AlignIn(_asked(range(start, start + NEW)), conversation=asked))
            after, label = answer.turn, (turn + 1) * NEW + 1
    return Held(service, number)


CASES: dict[str, Callable[[], Held]] = {
    "entry of a tree, unrelated, `balanced`": lambda: entries("balanced", topics=False),
    "entry of a tree, topics, `balanced`": lambda: entries("balanced", topics=True),
    "entry of a tree, unrelated, `throughput`": lambda: entries("throughput", topics=False),
    "entry of a tree, topics, `throughput`": lambda: entries("throughput", topics=True),
    "namespace with one request, `balanced`": lambda: namespaces("balanced"),
    "namespace with one request, `throughput`": lambda: namespaces("throughput"),
    "ticket of the service": tickets,
    "conversation of the library": conversations,
    "conversation of the service": conversations_over_http,
}


def measure(name: str) -> tuple[int, int]:
    """How many there are, and by how many bytes this process has grown."""
    gc.collect()
    before = _resident()
    held = CASES[name]()
    gc.collect()
    return held.number, _resident() - before


def _service() -> tuple[Service, Tenant]:
    service = Service(ServiceSettings())
    return service, service.tenant("")


def _asked(blocks: range) -> list[wire.BlockIn]:
    return [wire.BlockIn(hash=_key(block).hex(), tokens=200) for block in blocks]


def _topic(draw: random.Random) -> list[int]:
    topic = draw.randrange(TOPICS) * TOPIC
    return draw.sample(range(topic, topic + TOPIC), BLOCKS)


def _key(block: int) -> bytes:
    return blake2b(str(block).encode(), digest_size=16).digest()


def _resident() -> int:
    return int(STATM.read_text().split()[1]) * resource.getpagesize()


def main() -> None:
    """Measure and write; with a name, measure that one here and print it."""
    if len(sys.argv) > 1:
        sys.stdout.write(json.dumps(measure(sys.argv[1])))
        return
    rows = []
    for name in CASES:
        done = subprocess.run([sys.executable, __file__, name], capture_output=True, text=True, check=True)
        number, grown = json.loads(done.stdout)
        rows.append([name, f"{number:,}", f"{grown / 1e6:.0f}", f"{grown / number:,.0f}"])
    figures = table(["what", "number", "grown by, MB", "each, bytes"], rows)
    write_section("memory", f"{ABOUT}\n\nFrom {provenance(('msgspec',))}\n\n{figures}")


if __name__ == "__main__":
    main()
