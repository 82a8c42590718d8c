"""A plain English tokenizer for lexical retrieval: lower case, no stop words, plural endings off."""

from __future__ import annotations

import re

_WORD = re.compile(r"\w\w+")
_STOP_WORDS = frozenset(
    "a about all also an and any are as at be been but by can could did do does for from get had has have he her "
    "his how i if in into is it its just like may me might my no not of on one or our out over please should so "
    "some such than that the their them then there these they this those to up us use used using was we were what "
    "when where which who whose why will with would you your".split()
)


def words(text: str) -> list[str]:
    """The words of a text that are worth searching for.

    >>> words("How do I slice lists?")
    ['slice', 'list']
    """
    return [_stem(word) for word in _WORD.findall(text.lower()) if word not in _STOP_WORDS]


def _stem(word: str) -> str:
    return word[:-1] if len(word) > 3 and word.endswith("s") and not word.endswith(("ss", "us", "is")) else word
