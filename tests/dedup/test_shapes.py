"""Long texts of shapes that make a careless search slow (a test that hangs is ended), and every process alike."""

from __future__ import annotations

import os
import random
import string
import subprocess
import sys

import pytest

from contextpilot_rag.dedup.chunks import Originals, Repeats
from contextpilot_rag.dedup.units import normal
from tests.dedup.material import SENTENCES, size

LENGTH = 150_000


def lines(count, length, letters="bcdfghijkl"):
    """So many different lines."""
    numbers = random.Random(count)
    return ["".join(numbers.choices(letters, k=length)) + "\n" for _ in range(count)]


def shuffled(from_lines):
    """Every line comes often, and no two of them often one after the other."""
    return "".join(random.Random(1).choices(from_lines, k=LENGTH // len(from_lines[0])))


def apart(passage):
    """A passage many times, with something else each time in between."""
    return "".join(
        f"{passage}\nLine {number} is unlike all others.\n" for number in range(LENGTH // (len(passage) + 40))
    )


PUNCTUATION = "".join(random.Random(2).choices("-=+*#~", k=5000))
SHAPES = {
    "one character": "x" * LENGTH,
    "one dash": "-" * LENGTH,
    "one backslash": "\\" * LENGTH,
    "blanks": " " * LENGTH,
    "line ends": "\n" * LENGTH,
    "windows line ends": "\r\n" * (LENGTH // 2),
    "one short line": "abc\n" * (LENGTH // 4),
    "one line": "A line of some length.\n" * (LENGTH // 23),
    "two lines in turn": "A line of some length.\nB line of some length.\n" * (LENGTH // 46),
    "short lines shuffled": shuffled(lines(10, 13)),
    "lines shuffled": shuffled(lines(100, 99)),
    "long lines shuffled": shuffled(lines(50, 400)),
    "passages apart": apart(SENTENCES),
    "punctuation apart": apart(PUNCTUATION),
    "backslashes apart": apart("\\" * 480),
    "marks": "[same text as in " * (LENGTH // 17),
    "backslashes before a mark": "\\" * LENGTH + "[same text as in ",
    "backslashes and no mark": "[same text as in the mirror" + "\\" * 1_000_000,
    "open quotes": '[same text as in [1] at 0: 5 characters from "' * (LENGTH // 46),
    "words without end": "".join(random.Random(3).choices(string.ascii_lowercase + " ", k=LENGTH)),
    "accents": "e\u0301" * (LENGTH // 2),
    "lone surrogates": "\ud800" * LENGTH,
}


@pytest.mark.parametrize("shape", SHAPES)
def test_long_texts_of_odd_shapes(shape):
    text = SHAPES[shape]
    repeats, originals = Repeats(), Originals()
    first, again = repeats.add("[1]", text), repeats.add("[2]", text)
    assert originals.add("[1]", first) == text
    assert originals.add("[2]", again) == text
    assert size(again) <= size(first)


def test_one_line_and_the_same_wrapped():
    sentences = SENTENCES.split(". ") * 500
    one, wrapped = ". ".join(sentences), ".\n".join(sentences)
    repeats, originals = Repeats(), Originals()
    for number, text in enumerate([one, wrapped, one.replace(". ", ".  "), wrapped.replace("\n", " \r\n")], start=1):
        assert normal(originals.add(f"[{number}]", repeats.add(f"[{number}]", text))) == normal(text)


def test_short_lines_against_long_blanks():
    padded = "".join(line[:-1] + " " * 400 + "\n" for line in lines(500, 60))
    bare = "".join(lines(500, 60))
    repeats, originals = Repeats(), Originals()
    for number, text in enumerate([padded, bare * 5, "".join(lines(500, 60)[::-1])], start=1):
        sent = repeats.add(f"[{number}]", text)
        assert size(sent) <= size(text)
        assert normal(originals.add(f"[{number}]", sent)) == normal(text)


IN_A_PROCESS = """
import hashlib, random
from contextpilot_rag.dedup.messages import deduplicate
from tests.dedup.material import POOL
numbers = random.Random(5)
texts = ["".join(numbers.choices(POOL, k=5)) for _ in range(40)]
messages = [{"role": "tool", "tool_call_id": "x", "content": text} for text in texts]
print(hashlib.sha256(repr(deduplicate(messages)).encode()).hexdigest())
"""


def test_every_process_sends_the_same():
    found = set()
    for seed in ("0", "1", "4294967295"):
        environ = {**os.environ, "PYTHONHASHSEED": seed}
        done = subprocess.run(
            [sys.executable, "-c", IN_A_PROCESS], capture_output=True, text=True, check=True, env=environ
        )
        found.add(done.stdout)
    assert len(found) == 1
