"""How good an answer is: the usual measures of extractive question answering.

Normalisation, exact containment and token F1 are SQuAD's (Rajpurkar et al., 2016): lower case, no punctuation, no
articles.
"""

from __future__ import annotations

import math
import re
import string
from collections import Counter
from collections.abc import Callable, Mapping

from .words import Outcome, Question

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)
_VERDICTS = frozenset({"yes", "no"})


def normal(text: str) -> str:
    """A text as the measures compare it.

    >>> normal("The  Big-Apple, 2019!")
    'bigapple 2019'
    """
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def token_f1(answer: str, gold: str) -> float:
    """Harmonic mean of the words' precision and recall, 0 to 1.

    >>> round(token_f1("Sales rose by 5 percent", "5 percent"), 3)
    0.571
    """
    words, right = normal(answer).split(), normal(gold).split()
    if not words or not right:
        return float(words == right)
    common = sum((Counter(words) & Counter(right)).values())
    return 2 * common / (len(words) + len(right))


def contained(answer: str, gold: str) -> float:
    """1 if the right answer stands in the answer, as whole words.

    >>> contained("It was 15 percent.", "5 percent"), contained("It was 5 percent.", "5 percent")
    (0.0, 1.0)
    """
    right = normal(gold)
    return float(bool(right) and f" {right} " in f" {normal(answer)} ")


def accurate(answer: str, gold: str) -> float:
    """1 if the answer says what is right: for yes and no, its first such word decides; else as `contained`.

    >>> accurate("No, it does not. Yes would be wrong.", "no"), accurate("Yes", "no")
    (1.0, 0.0)
    """
    right = normal(gold)
    if right not in _VERDICTS:
        return contained(answer, gold)
    said = next((word for word in normal(answer).split() if word in _VERDICTS), None)
    return float(said == right)


def _best(measure: Callable[[str, str], float]) -> Callable[[Question, Outcome], float | None]:
    def marked(question: Question, outcome: Outcome) -> float | None:
        return max((measure(outcome.text, gold) for gold in question.answers), default=None)

    return marked


def _logprob(_: Question, outcome: Outcome) -> float | None:
    """Of a token, on average."""
    return outcome.logprob / outcome.scored if outcome.logprob is not None and outcome.scored else None


def _probability(question: Question, outcome: Outcome) -> float | None:
    """Geometric mean of the tokens' probabilities: in the same units as the other measures, 0 to 1."""
    logprob = _logprob(question, outcome)
    return None if logprob is None else math.exp(logprob)


MEASURES: Mapping[str, Callable[[Question, Outcome], float | None]] = {
    "f1": _best(token_f1),
    "contained": _best(contained),
    "accuracy": _best(accurate),
    "logprob": _logprob,
    "probability": _probability,
}
"""All measures by name. Each gives None where there is nothing to measure by."""


def marks(question: Question, outcome: Outcome) -> dict[str, float]:
    """All measures that an outcome can be measured by."""
    found = {name: measure(question, outcome) for name, measure in MEASURES.items()}
    return {name: value for name, value in found.items() if value is not None}
