"""Namespaces: nobody's order is learnt from, or shared with, somebody else."""

from __future__ import annotations

import pytest
from contextpilot_rag import ContextPilot, Namespace
from contextpilot_rag.errors import SettingsError
from hypothesis import given, settings
from hypothesis import strategies as st
from li_support import LONG, Listed, llm_of, pick, streaming
from llama_index.core.llms import MockLLM
from llama_index.core.query_engine import RetrieverQueryEngine
from llama_index.core.schema import NodeWithScore, TextNode
from llama_index.llms.openai_like import OpenAILike

from llama_index.postprocessor.contextpilot import (
    ContextPilotChatEngine,
    ContextPilotPostprocessor,
    ContextPilotSynthesizer,
)


def of(tenant, *places):
    """Long nodes as a multi-tenant store returns them."""
    return [NodeWithScore(node=TextNode(text=LONG[place], metadata={"tenant_id": tenant})) for place in places]


def order(nodes):
    return [LONG.index(node.text) for node in nodes]


def test_two_tenants_of_one_pilot_do_not_meet():
    pilot = ContextPilot()
    ours, theirs = (ContextPilotPostprocessor(pilot, namespace=name) for name in ("acme", "other"))
    ours.postprocess_nodes(pick(0, 1, 2))
    assert order(theirs.postprocess_nodes(pick(2, 1, 0))) == [2, 1, 0]
    assert order(ours.postprocess_nodes(pick(2, 1, 0))) == [0, 1, 2]


def test_the_tenant_of_the_nodes():
    postprocessor = ContextPilotPostprocessor(namespace_key="tenant_id")
    postprocessor.postprocess_nodes(of("acme", 0, 1, 2))
    assert order(postprocessor.postprocess_nodes(of("other", 2, 1, 0))) == [2, 1, 0]
    assert order(postprocessor.postprocess_nodes(of("acme", 2, 1, 0))) == [0, 1, 2]
    number = ContextPilotPostprocessor(namespace_key="tenant_id", namespace=Namespace(corpus="docs"))
    assert order(number.postprocess_nodes(of(7, 2, 1, 0))) == [2, 1, 0]
    assert number.failures == 0


@pytest.mark.parametrize("odd", [None, "", "other", 1.5, True, ["acme"]])
def test_nodes_that_disagree_or_have_none_come_back_as_they_are(odd, caplog):
    postprocessor = ContextPilotPostprocessor(namespace_key="tenant_id", min_gain=0)
    postprocessor.postprocess_nodes(of("acme", 0, 1, 2))
    mixed = [*of("acme", 2, 1), *of(odd, 0)]
    assert postprocessor.postprocess_nodes(mixed) is mixed
    assert postprocessor.postprocess_nodes(pick(2, 1, 0))[0].text == LONG[2]
    assert postprocessor.failures == 2
    assert len([record for record in caplog.records if record.name == "contextpilot_rag"]) == 1
    # and nothing was learnt from them
    assert order(postprocessor.postprocess_nodes(of("acme", 2, 1, 0))) == [0, 1, 2]


@settings(max_examples=20, deadline=None)
@given(st.lists(st.tuples(st.sampled_from("ab"), st.permutations(range(4))), max_size=8))
def test_each_tenant_is_served_as_if_alone(requests):
    together = ContextPilotPostprocessor(namespace_key="tenant_id")
    alone = {tenant: ContextPilotPostprocessor() for tenant in "ab"}
    for tenant, places in requests:
        expected = order(alone[tenant].postprocess_nodes(of(tenant, *places)))
        assert order(together.postprocess_nodes(of(tenant, *places))) == expected


def test_a_tenant_given_twice_is_refused():
    with pytest.raises(SettingsError, match="twice"):
        ContextPilotPostprocessor(namespace="acme", namespace_key="tenant_id")


def test_the_salt_arrives_at_the_engine(engine):
    postprocessor = ContextPilotPostprocessor(namespace="acme")
    llm = llm_of(engine, additional_kwargs={"extra_body": postprocessor.extra_body()})
    query = RetrieverQueryEngine(
        Listed(pick(0)),
        response_synthesizer=ContextPilotSynthesizer(llm=llm),
        node_postprocessors=[postprocessor],
    )
    query.query("Why?")
    salt = ContextPilot(namespace="acme").extra_body()["cache_salt"]
    assert engine.requests[0].cache_salt == salt
    assert ContextPilotPostprocessor().extra_body() == {}


def test_each_tenant_of_the_nodes_has_a_salt_of_its_own():
    postprocessor = ContextPilotPostprocessor(namespace_key="tenant_id")
    assert postprocessor.extra_body("acme") == ContextPilot().extra_body("acme") != postprocessor.extra_body("other")
    assert postprocessor.extra_body(7) == postprocessor.extra_body("7")
    for missing in (None, "", 1.5):
        with pytest.raises(SettingsError, match="extra_body\\(tenant\\)"):
            postprocessor.extra_body(missing)
    with pytest.raises(SettingsError, match="only with namespace_key"):
        ContextPilotPostprocessor(namespace="acme").extra_body("acme")


def test_the_salt_is_that_of_the_namespace_which_the_nodes_are_filed_under():
    docs = Namespace(corpus="docs")
    for postprocessor in (
        ContextPilotPostprocessor(namespace_key="tenant_id", namespace=docs),
        ContextPilotPostprocessor(ContextPilot(namespace=docs), namespace_key="tenant_id"),
    ):
        postprocessor.postprocess_nodes(of("acme", 0, 1, 2))
        filed = Namespace(tenant="acme", corpus="docs")
        assert postprocessor.extra_body("acme") == ContextPilot().extra_body(filed)
        there = ContextPilotPostprocessor(postprocessor.adapter.pilot, namespace=filed)
        assert order(there.postprocess_nodes(of("acme", 2, 1, 0))) == [0, 1, 2]
    with pytest.raises(SettingsError, match="twice"):
        ContextPilotPostprocessor(ContextPilot(namespace="acme"), namespace_key="tenant_id")


def chatting(llm, **options):
    return ContextPilotChatEngine.from_defaults(Listed(pick(0)), llm=llm, **options)


async def test_a_chat_engine_sends_its_salt_itself(engine):
    chat = chatting(streaming(engine), namespace="acme")
    chat.chat("One?")
    await chat.achat("Two?")
    "".join(chat.stream_chat("Three?").response_gen)
    response = await chat.astream_chat("Four?")
    async for _ in response.async_response_gen():
        pass
    salt = ContextPilot().extra_body("acme")["cache_salt"]
    assert chat.extra_body() == {"cache_salt": salt}
    assert [request.cache_salt for request in engine.requests] == [salt] * 4
    chatting(llm_of(engine), pilot=ContextPilot(namespace="acme")).chat("One?")
    chatting(llm_of(engine)).chat("One?")
    chatting(llm_of(engine), namespace="acme", send_salt=False).chat("One?")
    assert [request.cache_salt for request in engine.requests[4:]] == [salt, None, None]


def test_an_llm_that_has_a_body_of_its_own_keeps_it(engine, caplog):
    own = {"cache_salt": "mine"}
    chatting(llm_of(engine, additional_kwargs={"extra_body": own}), namespace="acme").chat("One?")
    assert engine.requests[-1].cache_salt == "mine"
    assert not any("contextpilot" in record.name for record in caplog.records)
    for _ in range(2):
        chatting(llm_of(engine, additional_kwargs={"extra_body": {"top_k": 5}}), namespace="acme").chat("One?")
    assert engine.requests[-1].cache_salt is None
    assert sum("chat_engine.extra_body()" in record.message for record in caplog.records) == 1


def test_other_llms_are_asked_only_if_that_is_wanted(engine):
    class Hosted(OpenAILike):
        """Such as those of services that refuse what they do not know."""

    hosted = Hosted(model="m", api_key="none", is_chat_model=True, api_base=engine.base_url, context_window=10_000)
    chatting(hosted, namespace="acme").chat("One?")
    chatting(hosted, namespace="acme", send_salt=True).chat("One?")
    assert [request.cache_salt is None for request in engine.requests] == [True, False]
    assert chatting(MockLLM(), namespace="acme").chat("One?").response
