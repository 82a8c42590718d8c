"""Ratings and the fallback where the index is a service: they live in the pilot, and nothing goes over the wire."""

from __future__ import annotations

from contextpilot_rag import AsyncContextPilot, ContextPilot
from tests.quality.test_fallback import COMMON, blocks
from tests.remote.service import fresh_key

OPTIONS = {"index_timeout": 20, "quality_drop": 0.0, "quality_control": 0.4}


def test_a_pilot_of_a_service_tries_what_one_of_its_own_index_tries(service):
    near = ContextPilot(quality_drop=0.0, quality_control=0.4)
    with ContextPilot(service.address, api_key=fresh_key(), **OPTIONS) as far:
        for pilot in (near, far):
            pilot.align(COMMON, "first", order="retrieved")
        number = 0
        while not near.quality().off:
            one, other = (pilot.align(blocks(number), f"question {number}") for pilot in (near, far))
            assert (one.order, one.rule, one.trial) == (other.order, other.rule, other.trial)
            for pilot, prompt in ((near, one), (far, other)):
                pilot.observe(prompt, {"usage": {"prompt_tokens": 900}})
                assert pilot.rate(prompt, 0.1 if prompt.changed else 0.9)
            number += 1
        assert far.quality() == near.quality()
        for later in range(number, number + 30):
            one, other = (pilot.align(blocks(later), f"question {later}") for pilot in (near, far))
            assert (one.order, one.rule) == (other.order, other.rule)
        assert far.stats() == near.stats()
        assert far.stats().rules["quality"]
        far.forget()
        assert not far.quality().off
        assert far.failures == 0


async def test_the_same_awaited(service):
    near = AsyncContextPilot(quality_drop=0.0, quality_control=0.4)
    async with AsyncContextPilot(service.address, api_key=fresh_key(), **OPTIONS) as far:
        for pilot in (near, far):
            await pilot.align(COMMON, "first", order="retrieved")
        for number in range(20):
            one = await near.align(blocks(number), f"question {number}")
            other = await far.align(blocks(number), f"question {number}")
            assert (one.order, one.rule, one.trial) == (other.order, other.rule, other.trial)
            assert await far.rate(other, 1.0)
        assert (await far.stats()).rules == (await near.stats()).rules
        await far.forget()
        assert (await far.quality()).aligned.count == 0
