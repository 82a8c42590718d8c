from __future__ import annotations

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextpilot_rag.proxy.finding import is_positional, wrappers
from contextpilot_rag.proxy.finding.tags import ITEMS
from tests.proxy.finding_material import PLAIN, wrapped


def bodies_of(text, group):
    return [text[slice(*item.body)] for item in group.items]


def one(text, *, whole=False):
    [group] = wrappers(text, whole=whole)
    return group


@given(wrapped())
def test_a_wrapper_is_found_with_its_items_in_any_text(made):
    text, bodies = made
    group = one(text)
    assert bodies_of(text, group) == bodies
    begin, end = group.span
    assert text[begin] == "<"
    assert text[end - 1] == ">"
    assert text[begin:end].strip() == text[begin:end]
    for item in group.items:
        assert text[slice(*item.span)].startswith("<")
        assert text[slice(*item.span)].endswith(">")
        assert item.span[0] < item.body[0] <= item.body[1] < item.span[1]


@given(wrapped(), PLAIN)
def test_a_tools_result_has_to_be_all_wrapper(made, more):
    text, bodies = made
    begin, end = one(text).span
    assert bodies_of(text[begin:end], one(text[begin:end], whole=True)) == bodies
    if more.strip():
        assert wrappers(f"{more}\n{text[begin:end]}", whole=True) == []
        assert wrappers(f"{text[begin:end]}\n{more}", whole=True) == []


pieces = st.sampled_from(
    "<documents> </documents> <document> </document> <doc> <DOC </doc> <docs> </docs> <context> </context> <passage> "
    "</passage> <document id='1'> <a> </a> ``` ~~~ <?xml <html> text < > / ' \" = [1] <doc/> \ud800 \0 é".split()
)


@given(st.lists(st.tuples(pieces, st.sampled_from(["", " ", "\n", "\r\n", "\n\n  "]))), st.booleans())
def test_whatever_the_text_is_groups_are_well_formed_and_never_overlap(made, whole):
    text = "".join(map("".join, made))
    end = 0
    for group in wrappers(text, whole=whole):
        assert end <= group.span[0]
        assert len(group.items) > 1
        place = group.span[0]
        for item in group.items:
            assert place < item.span[0] < item.body[0] <= item.body[1] < item.span[1]
            place = item.span[1]
        assert place < group.span[1] <= len(text)
        end = group.span[1]


@pytest.mark.parametrize(("wrapper", "item"), [(wrapper, item) for wrapper in ITEMS for item in ITEMS[wrapper]])
def test_each_wrapper_has_its_items(wrapper, item):
    text = f"<{wrapper}>\n<{item}>a</{item}>\n<{item}>b</{item}>\n</{wrapper}>"
    assert bodies_of(text, one(text)) == ["a", "b"]


def test_a_wrapper_in_a_wrapper_that_has_no_items_of_its_own_is_found():
    text = "<context>\n<note>Read.</note>\n<docs>\n<doc>a</doc>\n<doc>b</doc>\n</docs>\n</context>"
    assert bodies_of(text, one(text)) == ["a", "b"]


def test_several_wrappers_are_found_in_order():
    text = (
        "<docs>\n<doc>a</doc>\n<doc>b</doc>\n</docs>\nand\n<memories><memory>c</memory><memory>d</memory></memories>\n"
    )
    assert [bodies_of(text, group) for group in wrappers(text, whole=False)] == [["a", "b"], ["c", "d"]]


@pytest.mark.parametrize(
    "around", ["Use the <documents> only.\n{}", "{}\nUse the <documents>, and no others.", "```\n<documents>\n```\n{}"]
)
def test_prose_may_mention_the_wrapper(around):
    found = "<documents>\n<document>a</document>\n<document>b</document>\n</documents>"
    expected = 0 if around.startswith("```") else 1  # an example that looks like a wrapper that is not closed
    assert len(wrappers(around.format(found), whole=False)) == expected


def test_bodies_may_hold_code_and_pages():
    documents = "<docs>\n<doc>```\n<html>\n</doc>\n<doc><?xml version='1.0'?><a/></doc>\n</docs>"
    text = f"{documents}\n\n<memories>\n<memory>a</memory>\n<memory>b</memory>\n</memories>"
    assert [bodies_of(text, group) for group in wrappers(text, whole=False)] == [
        ["```\n<html>\n", "<?xml version='1.0'?><a/>"],
        ["a", "b"],
    ]


@pytest.mark.parametrize(
    "before", ["```\ncode\n```\n", "```code```\n", "~~~py\n```\n~~~~\n", "a ``` b\n", "> ```\n> ```\n"]
)
def test_what_stands_behind_a_fence_is_found(before):
    text = before + "<docs>\n<doc>a</doc>\n<doc>b</doc>\n</docs>"
    assert bodies_of(text, one(text)) == ["a", "b"]


@pytest.mark.parametrize(
    ("inside", "body"),
    [
        ("<source>a.txt</source>\n<document_content>\nOne.\n</document_content>\n", "\nOne.\n"),
        ("\n<title>A</title><content>One <b>two</b></content><url>x</url>", "One <b>two</b>"),
        ("<snippet>short</snippet><text>long</text>", "long"),
        ("<text>One</text> and more", "<text>One</text> and more"),
        ("<text>One</text><text>Two</text>", "<text>One</text><text>Two</text>"),
        ("<p><text>One</text></p>", "<p><text>One</text></p>"),
        ("Say <content>One</content>", "Say <content>One</content>"),
        ("<title>A</title>", "<title>A</title>"),
        ("", ""),
    ],
)
def test_the_child_that_is_the_content_is_the_body(inside, body):
    text = f"<documents>\n<document>{inside}</document>\n<document>b</document>\n</documents>"
    assert bodies_of(text, one(text)) == [body, "b"]


@pytest.mark.parametrize(
    ("attributes", "labels"),
    [
        (["index='2'", "index='1'"], ["2", "1"]),
        (['id="a" n="1"', 'n="2" id="b"'], ["1", "2"]),
        (["id=a", "id=b"], ["a", "b"]),
        (["id='a'", "id='a'"], [None, None]),
        (["id='a'", ""], [None, None]),
        (["id='a'", "id=''"], [None, None]),
        (["id='a>b'", "id='c'"], [None, None]),
        (["id='a\nb'", "id='c'"], [None, None]),
        ([f"id='{'a' * 41}'", "id='c'"], [None, None]),
        (["id='a' id='b'", "id='c'"], [None, None]),
        (["id=' a'", "id='a'"], [None, None]),
        (["title='x'", "title='y'"], [None, None]),
    ],
)
def test_labels_are_what_all_items_have_one_of_their_own(attributes, labels):
    items = "\n".join(f"<document {one} x='y'>t</document>" for one in attributes)
    text = f"<documents>\n{items}\n</documents>"
    group = one(text)
    assert [item.label for item in group.items] == labels
    for item in group.items:
        assert item.label == (text[slice(*item.label_span)] if item.label_span else None)


@pytest.mark.parametrize(
    ("labels", "positional"), [("123", True), ("012", True), ("132", False), ("234", False), ("abc", False)]
)
def test_labels_are_positional_if_they_count_in_order(labels, positional):
    items = "".join(f"<doc id='{label}'>t</doc>" for label in labels)
    assert is_positional(one(f"<docs>{items}</docs>")) is positional


def test_text_around_all_items_and_the_same_between_them_is_kept():
    text = "<docs>\nThese were found:\n<doc>a</doc>\nnext\n<doc>b</doc>\nnext\n<doc>c</doc>\nThat is all.\n</docs>"
    assert bodies_of(text, one(text)) == ["a", "b", "c"]


@pytest.mark.parametrize(
    "around", ["{}", "<context>\n{}\n</context>", "  <user>Me</user>\n{}", "Read:\n{}", "<DOCS> are below:\n\n{}"]
)
def test_a_wrapper_may_be_indented_and_stand_below_others(around):
    indent = "" if "user" in around else "  "
    text = around.format(
        f"{indent}<documents>\n  <document>a</document>\n  <document>b</document>\n{indent}</documents>"
    )
    assert bodies_of(text, one(text)) == ["a", "b"]


def test_bodies_in_braces_are_text_unless_they_are_variables():
    text = '<docs>\n<doc>{"a": 1}</doc>\n<doc>{}</doc>\n<doc>$5</doc>\n</docs>'
    assert bodies_of(text, one(text)) == ['{"a": 1}', "{}", "$5"]
    for name in ("{a}", "{a.text}", "{a[0]}", "{{ a }}", "{% a %}", "$a", "${a}", "%s", "%(a)s"):
        assert wrappers(f"<docs>\n<doc>\n{name}\n</doc>\n<doc>b</doc>\n</docs>", whole=False) == []


HOSTILE = {
    "wrappers": "<documents>\n",
    "open tags": "<document ",
    "pairs": "<documents>\n</documents>\n",
    "two wrappers": "<context>\n<docs>\n",
    "quotes": "\"'",
    "values": "<docs a=\"'",
    "attributes": " a='b'",
    "blanks": "< ",
    "fences": "```\n<docs>\n",
    "long lines": "<docs>```",
    "items": "<document>x</document>\n",
    "closes": "</document   ",
    "children": "<text><a>b</a>",
}


@pytest.mark.parametrize("piece", HOSTILE.values(), ids=list(HOSTILE))
@pytest.mark.parametrize(
    "around", ["{}</x>", "<docs {}</x>", "<documents>\n<document>{}</document><document>a</document>\n</documents>"]
)
def test_very_much_of_anything_is_gone_through(piece, around):
    # What grows with the square would take longer than a test may.
    text = around.format(piece * (3 * 10**5 // len(piece)))
    for whole in (False, True):
        assert all(len(group.items) > 1 for group in wrappers(text, whole=whole))


def test_nothing_is_as_deep_as_the_text():
    text = "<context>\n" * (3 * sys.getrecursionlimit()) + "</context>\n" * (3 * sys.getrecursionlimit())
    assert wrappers(text, whole=False) == []
