"""Questions and cases to test with."""

from __future__ import annotations

from hypothesis import strategies as st

from contextpilot_rag import Block
from contextpilot_rag.evaluation.arms import SINGLE
from contextpilot_rag.evaluation.words import Case, Outcome, Prompted, Question

TEXTS = [f"Part {number} says what is to be known of it." + " More." * (3 * number) for number in range(10)]


def block(number, score=None):
    return Block(TEXTS[number], id=f"d{number}", score=score)


def question(name, numbers, gold=(), answers=("yes",), **more):
    ids = frozenset(f"d{number}" for number in gold)
    return Question(str(name), f"What of {name}?", tuple(map(block, numbers)), tuple(answers), ids, **more)


lists = st.lists(st.integers(0, 9), unique=True, max_size=8)
traffics = st.lists(lists, max_size=12).map(
    lambda many: [question(name, numbers, numbers[:1]) for name, numbers in enumerate(many)]
)


def case(name, arm, mark, *, key=None, place=None, tokens=100, cached=None, content="prompt", measure="f1"):
    """A case; unless a key is given, no other has its prompt."""
    outcome = Outcome(key or f"{name} {arm}", "text", tokens, cached)
    prompted = Prompted(({"role": "user", "content": content},), place=place)
    return Case(question(name, [0]), SINGLE[arm], prompted, outcome, {} if mark is None else {measure: mark})
