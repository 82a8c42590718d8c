"""What is asked in these tests: recorded questions with the articles that a retriever found for them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

import pytest

TRACES = Path(__file__).resolve().parents[3] / "shared" / "traces" / "multihoprag_stubs"
needs_traces = pytest.mark.skipif(not TRACES.exists(), reason="the recorded traces (../shared/traces) are not here")
SYSTEM = "Answer the question from the documents. Name the documents that you used, and say so if they do not tell."


class Question(NamedTuple):
    """A question and its blocks, (id, text), best first."""

    text: str
    blocks: list[tuple[str, str]]


def recorded(count: int, top: int | None = 10) -> list[Question]:
    """The first questions of multihoprag.

    Args:
        count: how many.
        top: blocks of each; None: from 10 to 15 of them, by turns.
    """
    texts = {}
    for line in (TRACES / "corpus.jsonl").read_text(encoding="utf-8").splitlines():
        article = json.loads(line)
        texts[article["id"]] = f"{article['title']}\n{article['text']}"
    found = []
    for number, line in enumerate((TRACES / "trace_bm25_top15.jsonl").read_text(encoding="utf-8").splitlines()[:count]):
        one = json.loads(line)
        ids = one["context_ids"][: 10 + number % 6 if top is None else top]
        found.append(Question(one["question"], [(name, texts[name]) for name in ids]))
    return found


def made_up(count: int, topics: int = 6) -> list[Question]:
    """Questions about a few topics, each with blocks that others about it have, too, in an order of its own."""
    questions = []
    for number in range(count):
        topic = number * number % topics
        names = [f"{topic}-{(number * step + step) % 9}" for step in range(1, 7)]
        blocks = [(name, f"This is document {name}. " + f"It tells of {name}, at length. " * 12) for name in names]
        questions.append(Question(f"Question {number}: what is told of topic {topic}?", list(dict(blocks).items())))
    return questions
