from __future__ import annotations

import json
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextpilot_rag.prompt.escape import forges
from contextpilot_rag.prompt.hints import ORDER_HINT
from contextpilot_rag.proxy.arranging import arranged, order_hint_of, with_hint
from contextpilot_rag.proxy.finding import find, is_positional, listed, numbered, wrappers
from contextpilot_rag.proxy.words import Group, Item, Text
from tests.proxy.finding_material import results, wrapped

LABELS = st.sampled_from(["keep", "renumber"])


@st.composite
def cases(draw):
    """A text, its group, an order, and who says it."""
    role = draw(st.sampled_from(["user", "tool"]))
    text = draw(wrapped() if role == "user" else results())[0]
    [group] = find(Text(role, 1, None, text, ()))
    return role, text, group, draw(st.permutations(range(len(group.items))))


def items_of(text, group):
    return [text[slice(*item.span)] for item in group.items]


def gaps_of(text, group):
    """What stands between items, before the first and after the last."""
    ends = [0, *(item.span[1] for item in group.items)]
    return [
        text[end:begin] for end, begin in zip(ends, [*(item.span[0] for item in group.items), len(text)], strict=True)
    ]


@given(cases())
def test_items_are_in_their_order_and_all_else_is_in_its_place(case):
    _, text, group, order = case
    new, there = arranged(text, group, order)
    assert items_of(new, there) == [items_of(text, group)[position] for position in order]
    assert Counter(items_of(new, there)) == Counter(items_of(text, group))
    assert gaps_of(new, there) == gaps_of(text, group)
    assert there.span == group.span
    assert there.form == group.form
    for place, position in enumerate(order):
        before, after = group.items[position], there.items[place]
        assert new[slice(*after.body)] == text[slice(*before.body)]
        assert after.label == before.label
        assert after.label is None or new[slice(*after.label_span)] == after.label


@given(cases())
def test_what_is_arranged_is_found_again(case):
    role, text, group, order = case
    new, there = arranged(text, group, order)
    assert find(Text(role, 1, None, new, ())) == [there]


@given(cases(), LABELS)
def test_the_order_as_it_is_changes_nothing(case, labels):
    _, text, group, _ = case
    assert arranged(text, group, range(len(group.items)), labels) == (text, group)


@given(cases())
def test_the_order_back_gives_the_original(case):
    _, text, group, order = case
    back = [list(order).index(position) for position in range(len(order))]
    assert arranged(*arranged(text, group, order), back) == (text, group)


@given(cases())
def test_renumbered_items_count_in_prompt_order(case):
    role, text, group, order = case
    new, there = arranged(text, group, order, "renumber")
    if not is_positional(group):
        assert (new, there) == arranged(text, group, order)
        return
    assert is_positional(there)
    assert [item.label for item in there.items] == [item.label for item in group.items]
    assert [new[slice(*item.label_span)] for item in there.items] == [item.label for item in group.items]
    bodies = [new[slice(*item.body)] for item in there.items]
    assert bodies == [text[slice(*group.items[position].body)] for position in order]
    assert gaps_of(new, there) == gaps_of(text, group)
    assert find(Text(role, 1, None, new, ())) == [there]
    back = [list(order).index(position) for position in range(len(order))]
    assert arranged(new, there, back, "renumber") == (text, group)


def test_labels_may_get_longer_and_shorter():
    text = "Read:\n" + "\n".join(f"[{n}] Item {'x' * n}" for n in range(1, 12)) + "\n\nWhy?"
    [group] = numbered(text)
    order = list(reversed(range(11)))
    new, there = arranged(text, group, order, "renumber")
    assert new == "Read:\n" + "\n".join(f"[{n}] Item {'x' * (12 - n)}" for n in range(1, 12)) + "\n\nWhy?"
    assert numbered(new) == [there]


def test_json_stays_json_and_the_hint_stands_behind_all_of_it():
    text = json.dumps({"a": 1, "results": [{"id": n, "text": f"t{n}"} for n in range(1, 4)]}, indent=1)
    new, there = arranged(text, listed(text), [2, 0, 1], "renumber")
    assert with_hint(new, there, "HINT")[0] == f"{new}\n\nHINT"
    assert json.loads(new) == {"a": 1, "results": [{"id": n, "text": f"t{n}"} for n in (3, 1, 2)]}


@pytest.mark.parametrize("order", [[], [0], [0, 0], [0, 2], [0, 1, 2], [-1, 0]])
def test_an_order_of_other_items_is_refused(order):
    text = "<docs>\n<doc>a</doc>\n<doc>b</doc>\n</docs>"
    [group] = wrappers(text, whole=False)
    with pytest.raises(ValueError, match="an order of 2 items"):
        arranged(text, group, order)
    with pytest.raises(ValueError, match="an order of 2 items"):
        order_hint_of(group, order)


def labelled(*labels):
    return Group(
        (0, 99), tuple(Item((n, n + 1), (n, n + 1), label, (n, n + 1)) for n, label in enumerate(labels)), "xml"
    )


@pytest.mark.parametrize(
    ("group", "labels", "hint"),
    [
        (labelled("1", "2", "3"), "keep", "1 > 2 > 3"),
        (labelled("1", "2", "3"), "renumber", "2 > 3 > 1"),
        (labelled("0", "1", "2"), "renumber", "1 > 2 > 0"),
        (labelled("a", "c", "b"), "renumber", "a > c > b"),
        (labelled("a", None, "b"), "keep", "2 > 3 > 1 (counted from the top)"),
        (labelled(None, None, None), "renumber", "2 > 3 > 1 (counted from the top)"),
    ],
)
def test_the_hint_names_items_as_they_stand_in_the_new_text(group, labels, hint):
    assert order_hint_of(group, [2, 0, 1], labels) == f"{ORDER_HINT} {hint}"


@given(cases(), LABELS)
def test_the_hint_leads_from_the_new_text_to_the_order_that_items_came_in(case, labels):
    _, text, group, order = case
    new, there = arranged(text, group, order, labels)
    hint = order_hint_of(group, order, labels)
    assert forges(hint)
    names = hint.removeprefix(f"{ORDER_HINT} ").removesuffix(" (counted from the top)").split(" > ")
    if hint.endswith(")"):
        places = [int(name) - 1 for name in names]
    else:
        places = [[item.label for item in there.items].index(name) for name in names]
    bodies = [new[slice(*there.items[place].body)] for place in places]
    assert bodies == [text[slice(*item.body)] for item in group.items]


@given(cases())
def test_a_hint_stands_right_behind_its_group_and_changes_nothing_else(case):
    _, text, group, _ = case
    new, more = with_hint(text, group, "HINT")
    end = group.span[1]
    assert new == text[:end] + new[end : end + more] + text[end:]
    assert new[end : end + more].strip() == "HINT"
    assert "HINT" in [line.strip() for line in new.splitlines()]
    assert not find(Text("user", 1, None, new.replace("HINT", f"{ORDER_HINT} 1 > 2"), ()))


@pytest.mark.parametrize(
    ("after", "added"),
    [
        ("", "\n\nHINT"),
        ("\n", "\n\nHINT"),
        ("\n\nWhy?", "\n\nHINT"),
        ("\nWhy?", "\n\nHINT\n\n"),
        (" Why?", "\n\nHINT\n\n"),
    ],
)
def test_what_follows_a_hint_is_a_paragraph_of_its_own(after, added):
    text = "<docs>" + after
    assert with_hint(text, Group((0, 6), (), "xml"), "HINT") == ("<docs>" + added + after, len(added))
