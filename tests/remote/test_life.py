"""Threads, event loops, forked processes, and services that stop, hang and come back."""

from __future__ import annotations

import asyncio
import gc
import os
import random
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from contextpilot_rag import Alignment, BlockRef, ContextPilot, Namespace, RemoteIndex, Request, Usage
from contextpilot_rag.errors import IndexFailed
from tests.remote.service import fresh_key
from tests.remote.stub import SECONDS, Asked, honestly, stub
from tests.service.harness import process

BLOCKS = [BlockRef(number.to_bytes(16, "big"), 100) for number in range(40)]


def some_request(numbers: random.Random) -> Request:
    return Request(tuple(numbers.sample(BLOCKS, numbers.randrange(1, 12))), Namespace(str(numbers.randrange(3))))


def fits(alignment: Alignment, request: Request) -> bool:
    return alignment.request is request and sorted(alignment.order) == list(range(len(request.blocks)))


def test_threads_and_event_loops_at_once(service):
    index = RemoteIndex(service.address, api_key=fresh_key(), timeout=20, connections=4)

    def blocking(seed: int) -> list[str]:
        numbers = random.Random(seed)
        tickets = []
        for _ in range(40):
            request = some_request(numbers)
            alignment = index.align(request)
            assert fits(alignment, request)
            index.observe(alignment, Usage(1_000, 100))
            tickets.append(alignment.ticket)
        return tickets

    async def awaited(seed: int) -> list[str]:
        numbers = random.Random(seed)

        async def one() -> str:
            request = some_request(numbers)
            alignment = await index.aalign(request)
            assert fits(alignment, request)
            await index.aobserve(alignment, Usage(1_000, 100))
            return alignment.ticket or ""

        return list(await asyncio.gather(*(one() for _ in range(40))))

    with ThreadPoolExecutor(6) as pool:
        jobs = [pool.submit(blocking, seed) for seed in range(3)]
        jobs += [pool.submit(asyncio.run, awaited(seed)) for seed in range(3, 6)]
        tickets = [ticket for job in jobs for ticket in job.result(60)]
    assert len(set(tickets)) == 240
    stats = index.stats()
    assert (stats.requests, stats.observed) == (240, 240)
    transport = index._own().calls.transport
    assert 1 <= len(transport._idle) <= 4
    assert 1 <= len(transport._idle_async) <= 4
    index.close()
    assert not transport._idle
    assert not transport._idle_async
    assert index.align(some_request(random.Random(9))).ticket  # closed is not the end
    index.close()


def test_a_loop_that_ends_leaves_nothing_behind(service):
    index = RemoteIndex(service.address, api_key=fresh_key(), timeout=20)
    for seed in range(3):
        assert asyncio.run(index.aalign(some_request(random.Random(seed)))).ticket
    del index
    gc.collect()  # an unclosed socket would be a warning here, and warnings are errors


async def test_cancelled_calls_leave_nothing_behind(service):
    index = RemoteIndex(service.address, api_key=fresh_key(), timeout=20, connections=3)
    numbers = random.Random(0)
    for round_ in range(25):
        tasks = [asyncio.ensure_future(index.aalign(some_request(numbers))) for _ in range(8)]
        await asyncio.sleep(numbers.random() * 0.02)
        for task in tasks[round_ % 2 :: 2]:
            task.cancel()
        answers = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(isinstance(answer, Alignment | asyncio.CancelledError) for answer in answers)
        assert len(index._own().calls.transport._idle_async) <= 3
    assert not index.left_alone
    results = await asyncio.gather(*(index.aalign(some_request(numbers)) for _ in range(20)))
    assert len({result.ticket for result in results}) == 20
    await index.aclose()


async def test_who_tries_a_service_again_and_is_cancelled_lets_the_next_one_try():
    answers = threading.Event()

    def sometimes(sock, asked: Asked) -> bool:
        if answers.is_set():
            return honestly(sock, asked)
        sock.recv(1)
        return False

    request = Request((BLOCKS[0],))
    with stub(sometimes) as service, RemoteIndex(service.address, timeout=0.05) as index:
        for _ in range(5):
            with pytest.raises(IndexFailed):
                await index.aalign(request)
        breaker = index._own().calls.breaker
        while breaker.wait:  # noqa: ASYNC110  the pause of a real clock
            await asyncio.sleep(0.02)
        probe = asyncio.ensure_future(index.aalign(request))
        await asyncio.sleep(0)
        probe.cancel()
        with pytest.raises(asyncio.CancelledError):
            await probe
        answers.set()
        index._own().calls.timeout = 20
        assert (await index.aalign(request)).order == (0,)
        assert not index.left_alone


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_process_shares_no_connection_and_no_lock(service):
    """Forked while others work: their locks are held for ever in the child, and their connections are theirs."""
    index = RemoteIndex(service.address, api_key=fresh_key(), timeout=20)
    index.align(some_request(random.Random(0)))
    salt = index.cache_salt(Namespace("1"), None, ask=True)
    stop = threading.Event()

    def work(seed: int) -> int:
        numbers, done = random.Random(seed), 0
        while not stop.is_set():
            request = some_request(numbers)
            assert fits(index.align(request), request)
            done += 1
        return done

    def in_child() -> int:
        signal.alarm(60)
        parents = {pair[0]._sock.fileno() for pair in index._owns[os.getppid()].calls.transport._idle}
        before = {os.fstat(number).st_ino for number in parents}
        for seed in range(10):
            request = some_request(random.Random(seed))
            if not fits(index.align(request), request):
                return 2
        if list(index._owns) != [os.getpid()]:
            return 3
        idle = index._own().calls.transport._idle
        if {os.fstat(pair[0]._sock.fileno()).st_ino for pair in idle} & before:
            return 4
        if index._own().salts.get(("1", "", "")) != (salt,):
            return 5
        return 0 if fits(asyncio.run(index.aalign(request)), request) else 6

    with ThreadPoolExecutor(3) as pool:
        jobs = [pool.submit(work, seed) for seed in range(3)]
        try:
            children = []
            for _ in range(4):
                time.sleep(0.02)
                child = os.fork()
                if child == 0:
                    status = 1
                    try:
                        status = in_child()
                    finally:
                        os._exit(status)
                children.append(child)
            statuses = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
        finally:
            stop.set()
        assert statuses == [0, 0, 0, 0]
        assert sum(job.result(SECONDS) for job in jobs) > 0
    index.close()


def test_a_service_that_hangs_costs_the_order_and_nothing_else(tmp_path):
    with process(tmp_path) as service:
        pilot = ContextPilot(service.address, index_timeout=20)
        blocks = ["first " * 50, "second " * 50]
        assert pilot.align(blocks).rule == "nothing_gained"
        assert pilot.align(blocks[::-1]).order == (1, 0)
        pilot.index._own().calls.timeout = 0.05
        service.popen.send_signal(signal.SIGSTOP)
        try:
            prompts = [pilot.align(blocks[::-1], "?") for _ in range(50)]
        finally:
            service.popen.send_signal(signal.SIGCONT)
        assert {prompt.rule for prompt in prompts} == {"failed_open"}
        assert {prompt.order for prompt in prompts} == {(0, 1)}
        assert pilot.failures == 50
        assert pilot.index.left_alone
        pilot.index._own().calls.timeout = 20
        ends = time.monotonic() + SECONDS
        while pilot.align(blocks[::-1]).order == (0, 1) and time.monotonic() < ends:
            time.sleep(0.05)
        assert not pilot.index.left_alone
        assert pilot.align(blocks[::-1]).order == (1, 0)
        pilot.close()


def test_a_service_that_was_started_again_is_found_again_and_knows_no_old_tickets(tmp_path):
    with process(tmp_path) as service:
        port = str(service.port)
        pilot = ContextPilot(service.address, index_timeout=20)
        before = pilot.align(["first " * 50, "second " * 50])
        service.stop()
        pilot.observe(before, {"usage": {"prompt_tokens": 100}})
        assert pilot.align(["first"]).rule == "failed_open"
        assert pilot.failures == 2
    with process(tmp_path, "--port", port) as service:
        pilot.observe(before, {"usage": {"prompt_tokens": 100}})
        after = pilot.align(["second " * 50, "first " * 50])
        assert (after.rule, after.order) == ("nothing_gained", (0, 1))
        assert pilot.failures == 2
        assert pilot.stats().observed == 0
        pilot.close()
