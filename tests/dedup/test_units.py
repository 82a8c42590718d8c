from __future__ import annotations

import itertools
import random
import re
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextpilot_rag.dedup.units import normal, starts, units
from tests.dedup.material import SAME, SENTENCES, texts

any_text = st.one_of(texts, st.text(), st.text("ab .\n\r\t\x0ce\u0301\u2028", max_size=40))


HALF = r"[02468aegikmoqsuwyACEGIKMOQSUWY\x80-\U0010ffff]"
SLOW_CUT = re.compile(  # what is preferred stands first
    rf".{{40,478}}?[.;!?,:)\]}}>](?<={HALF}.) |.{{40,478}}?[.;!?,:)\]}}> ](?<={HALF}.)"
    rf"|.{{48,479}}?[05AEMae\u3001\u3002\uff0c](?<={HALF}.)|.{{1,480}}(?:(?<=\r)\n)?",
    re.DOTALL,
)


def slow_units(text):
    """Each line by one pattern that tries all places."""
    found = []
    for line in text.splitlines(keepends=True):
        body = len(line.rstrip(" \t\r\n"))
        if len(line) - body > 480:
            found += SLOW_CUT.findall(line)
        elif body <= 480:
            found.append(line)
        else:
            *some, last = SLOW_CUT.findall(line, 0, body)
            found += [*some, last + line[body:]]
    return found


def drawn(letters, count, seed, share=1.0):
    """A text of these letters; with a share less than 1 the first ones are the more frequent."""
    weights = [share**place for place in range(len(letters))]
    return "".join(random.Random(seed).choices(letters, weights, k=count))


ALPHABETS = [
    *("ab .", "bdfhj. ", "b. ", "xyz.;", "b", "abcdefgh ,:0", "b\r\n", "bd \t\r\n", "0123456789abcdef", "bdf05AEM"),
    *(
        "\u4e00\u4e8c\u3001\u3002\uff0c",
        "\u0431\u0430, .",
        "b\u00e9 .",
        "\U0001f600b. ",
        "b}>)] ",
        "\u05d0\u0628 .",
        "\x1c\x85b. ",
    ),
]


@given(
    st.one_of(
        any_text,
        st.builds(
            drawn,
            st.one_of(st.sampled_from(ALPHABETS), st.text("abM.,; 0\r\n\t\u3002\u0431", min_size=1, max_size=9)),
            st.integers(0, 3_000),
            st.integers(),
            st.sampled_from([1.0, 0.5, 0.1]),
        ),
    )
)
def test_cuts_are_those_of_one_pattern_that_tries_all_places(text):
    assert units(text) == slow_units(text)


@pytest.mark.parametrize("length", [479, 480, 481, 482, 959, 960, 961, 962])
@pytest.mark.parametrize("rare", ["b. ", "a. ", "a.", "a ", "aa", "\u4e00\u3002", "\r\n", "  ", ""])
def test_cuts_are_the_same_where_what_they_are_made_by_stands_at_a_limit(rare, length):
    for place in (0, 37, 38, 39, 40, 41, 46, 47, 48, 476, 477, 478, 479, 480, 481, 520):
        text = ("b" * place + rare).ljust(length, "b")
        for end in ("", "\n", " \r\n", " " * 481):
            assert units(text + end) == slow_units(text + end)


def slow_normal(text):
    """Line by line, as one would say it."""
    text = unicodedata.normalize("NFC", text).replace("\r\n", "\n").replace("\r", "\n")
    return "\n".join(line.rstrip(" \t") for line in text.split("\n"))


@given(any_text)
def test_units_together_are_the_text_and_none_is_long(text):
    pieces = units(text)
    assert "".join(pieces) == text
    assert all(0 < len(piece) <= 962 for piece in pieces)
    assert [text[begin:].startswith(piece) for begin, piece in zip(starts(pieces), pieces, strict=False)] == [
        True
    ] * len(pieces)
    assert starts(pieces)[-1] == len(text)


@given(any_text)
def test_no_unit_separates_a_line_end(text):
    pieces = units(text)
    assert not any(one.endswith("\r") and other.startswith("\n") for one, other in itertools.pairwise(pieces))


@given(any_text)
def test_normal_is_what_it_says(text):
    assert normal(text) == slow_normal(text)
    assert normal(normal(text)) == normal(text)


@given(texts, st.sampled_from(SAME))
def test_what_counts_for_nothing(text, change):
    assert normal(change(text)) == normal(text)


def several(form, count, seed=0):
    """A text made of random numbers, without a line's end."""
    numbers = random.Random(seed).randrange
    return "".join(form(numbers) for _ in range(count))


def sentence(numbers):  # all of nearly one length, so cuts could stay out of step for ever
    return f"Item {numbers(1000)} was counted on day {numbers(31)}. "


@pytest.mark.parametrize(
    "passage",
    [
        several(sentence, 400),
        several(
            lambda numbers: f'{{"id":{numbers(999)},"age":{numbers(90)},"open":{numbers(500)}.{numbers(100):02}}},', 400
        ),
        several(lambda numbers: f"{numbers(1000)};", 4000),
        several(lambda numbers: chr(0x4E00 + numbers(3000)) if numbers(11) else "\uff0c", 9000),
        several(lambda numbers: chr(0x430 + numbers(32)) if numbers(6) else ", "[numbers(8) > 0 :], 9000),
        several(lambda numbers: "0123456789abcdef"[numbers(16)], 9000),
    ],
    ids="sentences json numbers chinese russian hexadecimal".split(),
)
def test_a_passage_is_cut_the_same_way_wherever_it_stands(passage):
    pieces = units(passage)
    for before in ("x. ", "Something else, of another length. " * 20, several(sentence, 300, 1), passage[777:]):
        again = set(units(before + passage))
        assert sum(len(piece) for piece in pieces if piece not in again) < 0.1 * len(passage)


def test_only_long_lines_are_cut():
    short = "A sentence. " * 39 + "\n"
    assert units(short * 3) == [short] * 3
    assert len(units(SENTENCES)) > 5
