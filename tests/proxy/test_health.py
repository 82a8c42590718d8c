"""Health: an upstream that nobody follows is asked whether it is well, and tried last while it is not."""

from __future__ import annotations

import asyncio
import logging

from contextpilot_rag.engines.engine import Engine
from contextpilot_rag.proxy.health import HealthChecks
from contextpilot_rag.proxy.upstreams import Upstreams
from contextpilot_rag.testing import FakeEngine


def test_one_that_is_gone_is_known_to_be_and_so_is_one_that_is_back(caplog):
    gone = FakeEngine().start()
    with FakeEngine() as there:
        engines = [Engine(gone.base_url, name="gone"), Engine(there.base_url, name="there")]
        upstreams = Upstreams(engines)
        checks = HealthChecks(engines, upstreams, 0.02)

        async def until(alive):
            for _ in range(1_000):
                if upstreams.alive() == alive:
                    return
                await asyncio.sleep(0.01)
            raise AssertionError(upstreams.alive())

        async def watched():
            await checks.start()
            await until({"gone", "there"})
            await asyncio.to_thread(gone.stop)
            await until({"there"})
            assert {upstreams.choose(None, 0)[0].name for _ in range(4)} == {"there"}
            assert {one.name for one in upstreams.choose(None, 0)} == {"gone", "there"}, "it is still tried, last"
            upstreams.told("gone", well=True)
            assert upstreams.alive() == {"gone", "there"}
            await checks.stop()

        with caplog.at_level(logging.INFO, "contextpilot_rag"):
            asyncio.run(watched())
    said = [record.getMessage() for record in caplog.records if record.name == "contextpilot_rag"]
    assert len([line for line in said if "gone does not answer" in line]) == 1
