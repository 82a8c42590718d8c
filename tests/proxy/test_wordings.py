"""The wordings of the order hint in the proxy: for blocks given explicitly, and for those found in a text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextpilot_rag.proxy.arranging import order_hint_of
from contextpilot_rag.proxy.finding import find
from contextpilot_rag.proxy.problems import Unusable
from contextpilot_rag.proxy.words import Text
from tests.proxy.explicitly import Proxied, user
from tests.proxy.finding_material import wrapped

SLICES = "Slices count from zero. They end before the place that they name."
STEPS = "A step may be negative. Then the slice runs backwards."
TOLD = [
    ("order", "Order of relevance, best first: [2] > [1]"),
    ("best", "Most relevant: [2]"),
    ("title", f'Most relevant: [2], which begins: "{STEPS}"'),
    ("sentence", 'Most relevant: [2], which says: "Then the slice runs backwards."'),
]


@pytest.mark.parametrize(("wording", "hint"), [*TOLD, (True, TOLD[0][1]), (False, None)])
def test_a_field_says_how_its_order_is_told(wording, hint):
    proxied = Proxied()
    proxied.send({"messages": [user("q", SLICES, STEPS)]})
    sent = proxied.send({"messages": [user("What runs backwards?", STEPS, SLICES, order_hint=wording)]})
    content = sent["messages"][0]["content"]
    end = "</documents>\n\n" + (f"{hint}\n\n" if hint else "") + "What runs backwards?"
    assert content == f"<documents>\n[1] {SLICES}\n\n[2] {STEPS}\n{end}"


def test_other_wordings_are_refused_with_those_there_are():
    with pytest.raises(Unusable, match="is none of true, false, order, best, title, sentence"):
        Proxied().send({"messages": [user("q", SLICES, order_hint="loudly")]})


FOUND = f'<docs><doc index="7">{STEPS}</doc><doc index="9">{SLICES}</doc></docs>'


@pytest.mark.parametrize(("wording", "hint"), TOLD)
def test_blocks_that_are_found_go_by_their_own_labels(wording, hint):
    [group] = find(Text("user", 1, None, FOUND, ()))
    said = order_hint_of(group, [1, 0], wording=wording, text=FOUND, question="What runs backwards?")
    assert said == hint.replace("[2]", "7").replace("[1]", "9")


def test_of_json_nothing_is_quoted():
    text = '[{"id": "a", "text": "Slices count from zero."}, {"id": "b", "text": "Sets have no order."}]'
    [group] = find(Text("tool", 1, None, text, ()))
    assert order_hint_of(group, [1, 0], wording="title", text=text) == "Most relevant: a"


@given(wrapped(), st.sampled_from(["best", "title", "sentence"]), st.text(max_size=20))
def test_whatever_is_found_is_told_on_one_line_and_forges_no_frame(made, wording, question):
    text = made[0]
    for group in find(Text("user", 1, None, text, ())):
        order = list(reversed(range(len(group.items))))
        said = order_hint_of(group, order, wording=wording, text=text, question=question)
        assert len(said.splitlines()) == 1
        assert said.count('"') in {0, 2} or any('"' in (item.label or "") for item in group.items)
