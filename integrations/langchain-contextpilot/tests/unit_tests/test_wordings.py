"""The order hint's wordings: said by the documents alone, as the compressor's setting has it."""

from __future__ import annotations

import pytest
from langchain_core.documents import Document

from langchain_contextpilot import ContextPilotCompressor, order_hint

SLICES, STEPS = "Slices count from zero. They are copies.", "A step may be negative. It is a stride."


def placed(**options):
    compressor = ContextPilotCompressor(min_gain=0, **options)
    compressor.compress_documents([Document(SLICES), Document(STEPS)], "first")
    return compressor.compress_documents([Document(STEPS), Document(SLICES)], "second")


@pytest.mark.parametrize(
    ("wording", "hint"),
    [
        (True, "Order of relevance, best first: [2] > [1]"),
        ("order", "Order of relevance, best first: [2] > [1]"),
        ("best", "Most relevant: [2]"),
        ("title", f'Most relevant: [2], which begins: "{STEPS}"'),
        ("sentence", 'Most relevant: [2], which says: "It is a stride."'),
        (False, ""),
    ],
)
def test_a_changed_order_is_told_as_the_setting_has_it(wording, hint):
    documents = placed(order_hint=wording)
    assert [one.page_content for one in documents] == [SLICES, STEPS]
    assert order_hint(documents, question="What stride?") == hint


def test_by_default_nothing_is_said_of_a_changed_order():
    documents = placed()
    assert [one.metadata["contextpilot"]["rank"] for one in documents] == [1, 0]
    assert order_hint(documents, question="What stride?") == ""


def test_without_a_question_the_first_sentence_is_quoted_and_older_marks_are_read():
    documents = placed(order_hint="sentence")
    assert order_hint(documents) == 'Most relevant: [2], which says: "A step may be negative."'
    for document in documents:
        document.metadata["contextpilot"]["hint"] = True
    assert order_hint(documents) == "Order of relevance, best first: [2] > [1]"
