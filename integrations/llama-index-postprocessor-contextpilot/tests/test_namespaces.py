"""Namespaces: nobody's order is learnt from, or shared with, somebody else."""

from __future__ import annotations

import pytest
from contextpilot_rag import ContextPilot, Namespace
from contextpilot_rag.errors import SettingsError
from hypothesis import given, settings
from hypothesis import strategies as st
from li_support import LONG, Listed, llm_of, pick
from llama_index.core.query_engine import RetrieverQueryEngine
from llama_index.core.schema import NodeWithScore, TextNode

from llama_index.postprocessor.contextpilot import ContextPilotPostprocessor, ContextPilotSynthesizer


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
