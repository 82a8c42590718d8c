"""Whose a request is: namespaces never mix, and who is named wrongly never ends up among everybody."""

from __future__ import annotations

from uuid import UUID

import pytest
from contextpilot_rag import ContextPilot, Namespace
from contextpilot_rag.errors import SettingsError
from langchain_core.runnables import RunnableLambda
from langchain_hooks import found, returning

from langchain_contextpilot import ContextPilotRetriever


def ranks(documents):
    return [one.metadata["contextpilot"]["rank"] for one in documents]


@pytest.mark.parametrize("where", ["configurable", "metadata", "own metadata"])
async def test_namespaces_never_mix(ask, where):
    first, second = found("slices", "steps"), found("steps", "slices")
    retriever = ContextPilotRetriever(base_retriever=returning(first, second, second))

    async def asked(question, tenant):
        if where == "own metadata":
            retriever.metadata = {"contextpilot_namespace": tenant}
            return await ask(retriever, question)
        return await ask(retriever, question, {where: {"contextpilot_namespace": tenant}})

    await asked("1", "acme")
    assert ranks(await asked("2", "globex")) == [0, 1]
    assert ranks(await asked("3", "acme")) == [1, 0]
    assert retriever.pilot.stats().namespaces == 2


async def test_the_constructors_namespace_is_the_default(ask):
    first, second = found("slices", "steps"), found("steps", "slices")
    pilot = ContextPilot()
    await ask(ContextPilotRetriever(base_retriever=returning(first), pilot=pilot, namespace="acme"), "1")
    for namespace, expected in [(Namespace("acme", corpus="x"), [0, 1]), (None, [0, 1]), ("acme", [1, 0])]:
        retriever = ContextPilotRetriever(base_retriever=returning(second), pilot=pilot, namespace=namespace)
        assert ranks(await ask(retriever, "2")) == expected


UUID_7 = UUID(int=7)


@pytest.mark.parametrize("where", ["configurable", "metadata"])
async def test_numbers_and_uuids_are_namespaces(ask, where):
    first, second = found("slices", "steps"), found("steps", "slices")
    retriever = ContextPilotRetriever(base_retriever=returning(first, second))
    for tenant, expected in [(1, [0, 1]), (0, [0, 1]), (UUID_7, [0, 1]), (1, [1, 0]), ("1", [1, 0])]:
        assert ranks(await ask(retriever, "?", {where: {"contextpilot_namespace": tenant}})) == expected
    other = ContextPilotRetriever(base_retriever=returning(second), pilot=retriever.pilot, namespace=UUID_7)
    assert other.namespace == str(UUID_7)
    await ask(other, "?")
    assert retriever.pilot.stats().namespaces == 3


@pytest.mark.parametrize("wrong", ["", True, 1.5, b"acme", ["acme"], {"tenant": "acme"}])
async def test_a_namespace_that_is_none_is_an_error(ask, wrong):
    """Whoever names a tenant never ends up among everybody, whatever `on_error` says; the base is not even asked."""

    def fail(_):
        raise AssertionError

    retriever = ContextPilotRetriever(base_retriever=RunnableLambda(fail))
    for where in ("configurable", "metadata"):
        with pytest.raises(SettingsError, match="contextpilot_namespace in the request's config"):
            await ask(retriever, "?", {where: {"contextpilot_namespace": wrong}})
    with pytest.raises(SettingsError, match="namespace: "):
        ContextPilotRetriever(base_retriever=returning([]), namespace=wrong)
    with pytest.raises(SettingsError, match="namespace: "):
        retriever.namespace = wrong
    assert retriever.namespace is None
    assert retriever.failures == 0


@pytest.mark.parametrize("key", ["contextpilot_name_space", "contextpilot_namspace", "context_pilot_namespace"])
async def test_a_misspelt_key_is_an_error(ask, key):
    with pytest.raises(SettingsError, match="did you mean 'contextpilot_namespace'"):
        await ask(ContextPilotRetriever(base_retriever=returning([])), "?", {"configurable": {key: "acme"}})


async def test_a_namespace_that_is_required(ask):
    retriever = ContextPilotRetriever(base_retriever=returning(found("steps")), require_namespace=True)
    with pytest.raises(SettingsError, match="a namespace is required"):
        await ask(retriever, "?")
    assert ranks(await ask(retriever, "?", {"metadata": {"contextpilot_namespace": "acme"}})) == [0]
    retriever.namespace = "acme"
    assert ranks(await ask(retriever, "?")) == [0]


KEY = "contextpilot_namespace"


async def test_a_request_counts_more_than_what_it_runs_in(ask):
    """A call names its own tenant inside another's chain; a request's counts more than the retriever's metadata."""
    retriever = ContextPilotRetriever(base_retriever=returning(found("steps")), require_namespace=True)

    async def inner(_, config):
        await ask(retriever, "?", config)
        for place in ("configurable", "metadata"):
            await ask(retriever, "?", {place: {KEY: "globex"}})

    for place in ("configurable", "metadata"):
        await RunnableLambda(inner).ainvoke("?", {place: {KEY: "acme"}})
        spaces = [prompt.request.namespace.tenant for prompt in retriever.adapter._under_way.values()]
        assert spaces == ["acme", "globex", "globex"]
        retriever.adapter._under_way.clear()
    retriever.metadata = {KEY: "initech"}
    for config, expected in [
        ({"metadata": {KEY: "acme"}}, "acme"),
        ({"configurable": {KEY: "acme"}}, "acme"),
        ({}, "initech"),
    ]:
        await ask(retriever, "?", config)
        assert [prompt.request.namespace.tenant for prompt in retriever.adapter._under_way.values()][-1] == expected


async def test_two_namespaces_in_one_config_are_an_error(ask):
    retriever = ContextPilotRetriever(base_retriever=returning(found("steps")))
    with pytest.raises(SettingsError, match="two namespaces: 'acme' and 'globex'"):
        await ask(retriever, "?", {"configurable": {KEY: "acme"}, "metadata": {KEY: "globex"}})
    for same in (2, "2", Namespace("2"), None):
        await ask(retriever, "?", {"configurable": {KEY: 2}, "metadata": {KEY: same}})
    assert retriever.pilot.stats().namespaces == 1
