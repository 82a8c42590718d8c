from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from contextpilot_rag.identity import block_key
from contextpilot_rag.tokens import DEFAULT_BYTES_PER_TOKEN, TokenCounter


class Words:
    def __init__(self) -> None:
        self.calls = 0

    def encode(self, text):
        self.calls += 1
        return text.split()


@pytest.mark.parametrize(("text", "tokens"), [("", 1), ("abc", 1), ("a" * 400, 100), ("é" * 200, 100), ("\ud800", 1)])
def test_the_estimate_counts_bytes(text, tokens):
    assert TokenCounter().count(text) == tokens


def test_the_estimate_learns_and_forgets_nothing_sudden():
    counter = TokenCounter()
    counter.calibrate(200, 100)
    assert 1_000 / DEFAULT_BYTES_PER_TOKEN < counter.estimate("a" * 1_000) < 500
    for _ in range(40):
        counter.calibrate(200, 100)
    assert counter.estimate("a" * 1_000) == pytest.approx(500, abs=2)


@pytest.mark.parametrize(("size", "tokens"), [(0, 5), (100, 0), (100, 100_000), (1_000_000, 3)])
def test_implausible_reports_teach_nothing(size, tokens):
    counter = TokenCounter()
    counter.calibrate(size, tokens)
    assert counter.estimate("a" * 1_000_000) == 1_000_000 / DEFAULT_BYTES_PER_TOKEN


def test_a_tokenizer_counts_each_block_once():
    tokenizer = Words()
    counter = TokenCounter(tokenizer)
    for _ in range(3):
        assert counter.count("a b c", block_key("a b c")) == 3
    assert tokenizer.calls == 1
    assert counter.count("a b") == 2
    assert counter.count("", block_key("")) == 1


def test_a_tokenizer_is_not_calibrated():
    counter = TokenCounter(len)
    counter.calibrate(200, 100)
    assert counter.count("four") == 4


def test_remembered_counts_are_bounded():
    tokenizer = Words()
    counter = TokenCounter(tokenizer, cache_size=2)
    for text in ("a", "b", "c", "a"):
        counter.count(text, block_key(text))
    assert tokenizer.calls == 4
    assert len(counter._cache) == 2


def test_many_threads():
    counter = TokenCounter(Words(), cache_size=10)
    with ThreadPoolExecutor(8) as pool:
        counts = list(pool.map(lambda n: counter.count("x " * (n % 20 + 1), block_key(str(n % 20))), range(2_000)))
    assert counts == [n % 20 + 1 for n in range(2_000)]
