"""The order hint's wordings for results of a search."""

from __future__ import annotations

import pytest
from contextpilot_rag import ContextPilot

from mem0_contextpilot import order_hint
from mem0_contextpilot.results import aligned, found_in

TEA, RICE = {"id": "1", "memory": "Likes tea. Drinks it cold."}, {"id": "2", "memory": "Eats rice. Hates noodles."}


@pytest.mark.parametrize(
    ("wording", "hint"),
    [
        (True, "Order of relevance, best first: [2] > [1]"),
        ("best", "Most relevant: [2]"),
        ("title", 'Most relevant: [2], which begins: "Eats rice. Hates noodles."'),
        ("sentence", 'Most relevant: [2], which says: "Hates noodles."'),
        (False, ""),
    ],
)
def test_results_tell_their_order_in_the_wording_that_was_asked_for(wording, hint):
    pilot = ContextPilot(min_gain=0, order_hint=wording)
    reply = {"results": [RICE, TEA]}
    found = found_in(reply)
    pilot.align([TEA["memory"], RICE["memory"]], "first")
    blocks = [(place, text) for place, text in enumerate(found.texts)]
    results = aligned(reply, found, pilot.align(blocks, "Which noodles?"))
    assert order_hint(results) == order_hint(results["results"]) == order_hint(results["results"][:2]) == hint
