from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextpilot_rag.proxy.finding import headed, is_positional, numbered

lines = st.text(alphabet="ab é.,", min_size=1, max_size=20).map(lambda text: f"x{text}y")


def bodies_of(text, groups):
    return [[text[slice(*item.body)] for item in group.items] for group in groups]


@given(
    st.lists(lines, min_size=2, max_size=12),
    st.sampled_from(["[{}] ", "{}. ", "{})  "]),
    st.sampled_from(["\n", "\n\n", "\n \n\n"]),
    st.sampled_from(["", "Read:\n", "Read:\n\n"]),
    st.sampled_from(["", "\n", "\n\nWhy?", "\n \nWhy?\nBecause."]),
)
def test_a_list_that_counts_is_found(items, marker, between, before, after):
    text = before + between.join(marker.format(n) + item for n, item in enumerate(items, start=1)) + after
    [group] = numbered(text)
    assert bodies_of(text, [group]) == [items]
    assert [item.label for item in group.items] == [str(n) for n in range(1, len(items) + 1)]
    assert all(text[slice(*item.label_span)] == item.label for item in group.items)
    assert [text[slice(*item.span)] for item in group.items] == [
        marker.format(n) + item for n, item in enumerate(items, start=1)
    ]
    assert group.span == (len(before), len(text) - len(after))
    assert is_positional(group)


@given(
    st.lists(st.lists(lines, min_size=1, max_size=1).map("\n".join), min_size=2, max_size=12),
    st.sampled_from(
        [
            "Document {}: ",
            "Document {}:\n",
            "## Source {}\n",
            "### Source: {}\n\n",
            "--- Passage {} ---\n",
            "**Chunk {}**\n",
        ]
    ),
    st.sampled_from(["\n", "\n\n"]),
    st.sampled_from(["", "\n\nWhy?"]),
)
def test_headers_that_count_are_found(items, marker, between, after):
    text = between.join(marker.format(n) + item for n, item in enumerate(items, start=1)) + after
    [group] = headed(text)
    assert bodies_of(text, [group]) == [items]
    assert [item.label for item in group.items] == [str(n) for n in range(1, len(items) + 1)]
    assert group.span == (0, len(text) - len(after))


def test_items_may_have_several_lines_where_blank_lines_part_them():
    text = "[1] A\nb\n\n[2] C\nd\n\nWhy?"
    assert bodies_of(text, numbered(text)) == [["A\nb", "C\nd"]]


def test_several_lists_are_found():
    text = "[1] a\n[2] b\n\nand\n\n[1] c\n[2] d\n"
    assert bodies_of(text, numbered(text)) == [["a", "b"], ["c", "d"]]


def test_documents_below_headings_end_at_the_next_heading():
    text = "## Document 1\n\na\n\nb\n\n## Document 2\n\nc\n\n### d\n\ne\n\n## Question\n\nWhy?"
    assert bodies_of(text, headed(text)) == [["a\n\nb", "c\n\n### d\n\ne"]]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[1] a",
        "[1] a\n[3] b",
        "[2] a\n[3] b",
        "[1] a\n2. b",
        "[1] a\n[2] b\n[2] c",
        "[1] a\n[2] b\n[4] c",
        "[1] a\n[2] b\nWhy?",  # the last line may be of the list, or not
        "[1] a\n\n[2] b\nWhy?",
        "[1] a\n\nb\n\n[2] c\n\nWhy?",
        "[1] a\nb\n[2] c\nWhy?",
        "[1] a\n\n[2] b\n[3] c",
        "[1] a\n[2] b\n[1] c",
        "[1]a\n[2]b",
        "x[1] a\nx[2] b",
        "[1] \n[2] ",
        "```\n[1] a\n[2] b\n```",
        "[1] a\n(given above)\n\n[2] b\nc\n",
        "[1] a\n[2] b\n\nOrder of relevance, best first: 2 > 1",
        "[01] a\n[02] b",
    ],
)
def test_lists_that_can_be_read_in_two_ways_are_none(text):
    assert numbered(text) == []


@pytest.mark.parametrize(
    "text",
    [
        "Document 1: a",
        "Document 1: a\nDocument 3: b",
        "Document 1: a\nSource 2: b",
        "Document 1: a\n## Document 2\nb",
        "Document 1 is good.\nDocument 2 is better.",
        "See Document 1: a\nSee Document 2: b",
        "Document 1: a\nDocument 2: b\nWhy?",
        "## Document 1\n\na\n\nb\n\n## Document 2\n\nc\n\nWhy?",  # where the second one ends is not written
        "Document 1:\n\na\n\nb\n\nDocument 2:\n\nc\n\nWhy?",
        "Document 1:\n\nDocument 2:\n\nDocument 3:\n\n",
        "```\nDocument 1: a\nDocument 2: b\n```",
        "Table 1: a\nTable 2: b",
        "--- Document 1\na\n--- Document 2\nb",
    ],
)
def test_headers_that_can_be_read_in_two_ways_are_none(text):
    assert headed(text) == []


pieces = st.sampled_from(
    "[1] |[2] |[3] |1. |2. |Document 1:|Document 2:|## Source 1|## Source 2|a|é|```|# b".split("|")
)


@given(st.lists(st.tuples(pieces, st.sampled_from(["", " ", "\n", "\n\n", "\r\n"]))))
def test_whatever_the_text_is_groups_are_well_formed_and_never_overlap(made):
    text = "".join(map("".join, made))
    for groups in (numbered(text), headed(text)):
        place = 0
        for group in groups:
            assert len(group.items) > 1
            assert group.span == (group.items[0].span[0], group.items[-1].span[1])
            for item in group.items:
                assert place <= item.span[0] <= item.label_span[0] < item.label_span[1] < item.body[0] < item.body[1]
                assert item.body[1] == item.span[1]
                place = item.span[1]


@pytest.mark.parametrize(
    "piece", ["1. ", "1. a\n2. b\n", "[1] a\n", "## Source 1\n## Source 2\n", "- ", "-", "#", "\n \n"]
)
def test_very_much_of_anything_is_gone_through(piece):
    text = piece * (3 * 10**5 // len(piece))
    for last in ("", "\n\nWhy?", "x"):
        assert isinstance(numbered(text + last), list)
        assert isinstance(headed(text + last), list)
