"""A first request waits for nothing to be loaded: that takes longer than it may wait."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.remote.stub import honestly, never, reply, stub

FIRST = """
import asyncio, sys
from contextpilot_rag import AsyncContextPilot

async def nothing():
    pass

asyncio.run(nothing())  # what an event loop itself needs is none of ours
pilot = AsyncContextPilot({address!r}, index_timeout={timeout})

async def awaited():
    return await pilot.align(["one", "two"], "?")

def blocking():
    return pilot.blocking.align(["one", "two"], "?")

loop = asyncio.new_event_loop()
before = set(sys.modules)
prompt = loop.run_until_complete(awaited()) if {way!r} == "awaited" else blocking()
print(prompt.rule.value, sorted(set(sys.modules) - before))
loop.close()
"""


def first(address: str, way: str, timeout: float = 30) -> str:
    code = FIRST.format(address=address, way=way, timeout=timeout)
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


@pytest.mark.parametrize("way", ["blocking", "awaited"])
def test_the_first_answer(way):
    with stub(honestly) as service:  # a name, so that it has to be looked up
        assert first(service.address.replace("127.0.0.1", "localhost"), way) == "nothing_gained []"
        assert len(service.asked) == 1


@pytest.mark.parametrize("way", ["blocking", "awaited"])
def test_the_first_failure(way):
    with stub(never) as service:
        assert first(service.address, way, 0.5) == "failed_open []"
    assert first(service.address, way) == "failed_open []"  # nobody listens there


@pytest.mark.parametrize("way", ["blocking", "awaited"])
def test_the_first_refusal(way):
    refusal = reply({"title": "Unauthorized", "status": 401, "detail": "no such key"}, "401 Unauthorized")
    with stub(lambda sock, _: sock.sendall(refusal) is None) as service:
        assert first(service.address, way) == "failed_open []"


def test_an_index_in_the_process_loads_none_of_it():
    code = (
        "import sys, contextpilot_rag; contextpilot_rag.ContextPilot().align(['x']);"
        "print([name for name in ('anyio', 'sniffio', 'httpcore', 'h11', 'encodings.idna') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
