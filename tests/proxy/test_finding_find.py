from __future__ import annotations

import pytest
from hypothesis import given

from contextpilot_rag.proxy.finding import find
from contextpilot_rag.proxy.words import Text
from tests.proxy.finding_material import LOOK_ALIKES, results, wrapped


def text_of(role, text):
    return Text(role, 1, None, text, ("messages", 0, "content"))


@pytest.mark.parametrize("role", ["system", "user", "assistant", "tool"])
@pytest.mark.parametrize("text", LOOK_ALIKES.values(), ids=list(LOOK_ALIKES))
def test_look_alikes_are_no_groups(text, role):
    assert find(text_of(role, text)) == []


@given(wrapped())
def test_wrappers_are_found_in_what_users_and_systems_say_and_never_in_what_the_model_said(made):
    text, bodies = made
    for role in ("system", "user"):
        [group] = find(text_of(role, text), frozenset(["numbered", "headed"]))
        assert [text[slice(*item.body)] for item in group.items] == bodies
    assert find(text_of("assistant", text)) == []
    assert len(find(text_of("tool", text), tool_results=False)) == (group.span == span_of(text))


def span_of(text):
    return len(text) - len(text.lstrip()), len(text.rstrip())


@given(results())
def test_json_is_only_looked_into_where_a_tool_says_it_and_the_setting_allows(made):
    text, bodies = made
    [group] = find(text_of("tool", text))
    assert [text[slice(*item.body)] for item in group.items] == bodies
    assert find(text_of("tool", text), tool_results=False) == []
    assert find(text_of("user", text)) == find(text_of("system", text)) == find(text_of("assistant", text)) == []


def test_lists_are_only_found_where_they_are_asked_for():
    text = "[1] One.\n[2] Two.\n\nDocument 1: Three.\n\nDocument 2: Four.\n\nWhy?"
    asked = {"numbered": ["numbered"], "headed": ["headed"], "numbered headed": ["numbered", "headed"], "": []}
    for names, forms in asked.items():
        for role in ("system", "user", "tool"):
            assert [group.form for group in find(text_of(role, text), frozenset(names.split()))] == forms
        assert find(text_of("assistant", text), frozenset(names.split())) == []


def test_numbers_below_headers_are_of_the_documents():
    text = "Document 1:\n[1] a\n[2] b\n\nDocument 2:\n[1] c\n[2] d\n\nWhy?"
    assert [group.form for group in find(text_of("user", text), frozenset(["numbered", "headed"]))] == ["headed"]


def test_numbers_beside_headers_are_found_too():
    text = "1. a\n2. b\n\nDocument 1:\n1. c\n2. d\n\nDocument 2:\n1. e\n2. f\n\n1. g\n2. h\n"
    groups = find(text_of("user", text), frozenset(["numbered", "headed"]))
    assert [group.form for group in groups] == ["numbered", "headed", "numbered"]
    assert [text[slice(*group.items[0].body)] for group in groups] == ["a", "1. c\n2. d", "g"]
