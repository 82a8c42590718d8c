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
]


def placed(**options):
    postprocessor = ContextPilotPostprocessor(min_gain=0, **options)
    first, second = (NodeWithScore(node=TextNode(text=text)) for text in (SLICES, STEPS))
    postprocessor.postprocess_nodes([first, second], query_str="first")
    return postprocessor.postprocess_nodes([second, first], query_str="What stride?")


@pytest.mark.parametrize(("wording", "hint"), WORDINGS)
def test_the_synthesizer_tells_a_changed_order_as_the_setting_has_it(wording, hint):
    assert context_of(placed(order_hint=wording), "What stride?").hint == hint


@pytest.mark.parametrize(("wording", "hint"), WORDINGS[:-1])
def test_a_last_node_tells_it_to_everybody_else(wording, hint):
    assert placed(order_hint=wording, annotation="node")[-1].text.endswith(hint)
