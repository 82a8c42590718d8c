"""The order hint's wordings: in the synthesizer's prompt, and in a last node for all others."""

from __future__ import annotations

import pytest
from llama_index.core.schema import NodeWithScore, TextNode

from llama_index.postprocessor.contextpilot import ContextPilotPostprocessor
from llama_index.postprocessor.contextpilot.synthesizer import context_of

SLICES, STEPS = "Slices count from zero. They are copies.", "A step may be negative. It is a stride."
WORDINGS = [
    (True, "Order of relevance, best first: [2] > [1]"),
    ("best", "Most relevant: [2]"),
    ("title", f'Most relevant: [2], which begins: "{STEPS}"'),
    ("sentence", 'Most relevant: [2], which says: "It is a stride."'),
    (False, None),
    (None, None),  # as the pilot has it, and its default is none
]


def placed(**options):
    postprocessor = ContextPilotPostprocessor(min_gain=0, **options)
    first, second = (NodeWithScore(node=TextNode(text=text)) for text in (SLICES, STEPS))
    postprocessor.postprocess_nodes([first, second], query_str="first")
    return postprocessor.postprocess_nodes([second, first], query_str="What stride?")


@pytest.mark.parametrize(("wording", "hint"), WORDINGS)
def test_the_synthesizer_tells_a_changed_order_as_the_setting_has_it(wording, hint):
    nodes = placed(order_hint=wording)
    assert [node.text for node in nodes] == [SLICES, STEPS]
    assert context_of(nodes, "What stride?").hint == hint


def test_by_default_a_changed_order_is_not_told():
    nodes = placed()
    assert [node.metadata["contextpilot"]["rank"] for node in nodes] == [1, 0]
    assert context_of(nodes, "What stride?").hint is None


@pytest.mark.parametrize(("wording", "hint"), WORDINGS[:4])
def test_a_last_node_tells_it_to_everybody_else(wording, hint):
    assert placed(order_hint=wording, annotation="node")[-1].text.endswith(hint)
