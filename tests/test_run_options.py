"""What `run` is given: options for the engine, and what is wrong with them before anything is sent."""

from __future__ import annotations

import openai
import pytest

from contextpilot_rag import Alignment, Plan, Request
from contextpilot_rag.errors import SettingsError
from contextpilot_rag.testing import FakeEngine
from tests.stage import Stage, small


@pytest.fixture(scope="module")
def engine():
    with FakeEngine() as running:
        yield running


async def test_tenants_stay_apart(engine):
    pilot, plan = small(2, namespace="acme")
    salt = plan[0].salt
    await pilot.run(plan, engine.base_url, extra_body={"top_k": 1})
    assert {request.cache_salt for request in engine.requests[-2:]} == {salt}
    stage = Stage(plan, answers=True)
    await pilot.run(plan, stage, extra_body={"cache_salt": salt})
    with pytest.raises(SettingsError, match="another cache_salt than the namespace of request"):
        await pilot.run(plan, stage, extra_body={"cache_salt": "mine"})
    assert stage.options == [{"extra_body": {"cache_salt": salt}}] * 2
    _, plan = small(1)
    stage = Stage(plan, answers=True)
    await pilot.run(plan, stage, extra_body={"cache_salt": "mine"})
    assert stage.options == [{"extra_body": {"cache_salt": "mine"}}]


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ({"concurrency": 0}, "concurrency must be an int, 1 or more"),
        ({"concurrency": True}, "concurrency"),
        ({"retries": -1}, "retries must be an int, 0 or more"),
        ({"give_up_after": 0}, "give_up_after"),
        ({"system": 5}, "system must be a str"),
        ({"model": ""}, "model must not be empty"),
        ({"model": b"m"}, "model must be a str"),
        ({"results": 5}, "results must be a path"),
        ({"progress": print}, "progress must be True or False"),
        ({"max_token": 5}, "no option 'max_token' for the engine; did you mean 'max_tokens'?"),
        ({"concurency": 5}, "did you mean 'concurrency'?"),
        ({"messages": []}, "no option 'messages'"),
        ({"stream": False}, "no option 'stream'"),
        ({"n": 2}, "one text for each request; n=2"),
        ({"tools": [{}]}, "one text for each request"),
        ({"extra_body": 5}, "extra_body must be a mapping"),
        ({"extra_body": {"x": object()}}, "option extra_body cannot be sent as JSON"),
        ({"temperature": float("nan")}, "option temperature cannot be sent as JSON"),
    ],
)
async def test_wrong_arguments(arguments, match):
    pilot, plan = small(2)
    stage = Stage(plan, answers=True)
    with pytest.raises(SettingsError, match=match):
        await pilot.run(plan, stage, **arguments)
    assert stage.arrived == []


@pytest.mark.parametrize("client", [None, 5, "no address", FakeEngine(), openai.OpenAI(api_key="none")])
async def test_wrong_clients(client):
    pilot, plan = small(2)
    with pytest.raises(SettingsError, match=r"an address, not to|an endpoint is an http"):
        await pilot.run(plan, client)


async def test_wrong_plans():
    pilot, plan = small(2)
    stage = Stage(plan, answers=True)
    for wrong, match in [
        (None, "run takes what plan returned, not NoneType"),
        (list(plan), "not list"),
        (Plan((Alignment(Request(()), ()),), (-1,)), "orders without texts"),
        (Plan(plan.alignments, (-1,)), "the plan's sources"),
        (Plan(plan.alignments, (-1, 1)), "the plan's sources"),
        (Plan(plan.alignments, (1, -1)), "the plan's sources"),
    ]:
        with pytest.raises(SettingsError, match=match):
            await pilot.run(wrong, stage)
    assert stage.arrived == []


async def test_options_that_were_not_given_are_not_sent():
    pilot, plan = small(1)
    stage = Stage(plan, answers=True)
    await pilot.run(plan, stage, seed=openai.NOT_GIVEN, stop=openai.Omit(), n=1, timeout=5.0)
    assert stage.options == [{"n": 1, "timeout": 5.0}]
