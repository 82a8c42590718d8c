"""Tokenizers of several kinds, small and slow, with a chat template: what follows a text changes its tokens in each of
them in another way."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from itertools import pairwise
from typing import Any

from contextpilot_rag.testing.chat import text_tokens

_MARKS = {"<|im_start|>": 1 << 40, "<|im_end|>": (1 << 40) + 1}
_SPLIT = re.compile("(" + "|".join(map(re.escape, _MARKS)) + ")")
# As GPT-2's and as cl100k's words: in the latter, line ends stick to the punctuation before them.
_GPT2 = re.compile(r"'(?:s|t|re|ve|m|ll|d)| ?[^\W\d_]+| ?\d+| ?[^\s\w]+|\s+(?!\S)|\s+|_+")
_CL100K = re.compile(r"'(?:s|t|re|ve|m|ll|d)|[^\r\n\w]?[^\W\d_]+|\d{1,3}| ?[^\s\w]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+|_+")
_LEARNT_FROM = (
    "<documents>\n[1] Slices count from zero.\n\n[2] A step may be negative.\n\n[3] Sets have no order; (see above)\n"
    "</documents>\n\nOrder of relevance, best first: [2] > [1]\nWhere do the slices start? user assistant system\n"
    "Answer from the documents, and name the documents that the answer is from. the the then there these those\n\n\n"
) * 3


class Templated:
    """A tokenizer with a template in the manner of ChatML.

    Args:
        encode: the ids of a text without marks.
    """

    def __init__(self, encode: Callable[[str], list[int]]) -> None:
        self._encode = encode
        self.texts = 0
        self.prompts = 0

    def of_text(self, text: str) -> list[int]:
        self.texts += 1
        return self._ids(text)

    def of_messages(
        self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]] | None = None
    ) -> list[int]:
        self.prompts += 1
        told = "".join(f"<|im_start|>{one['role']}\n{content_of(one)}<|im_end|>\n" for one in messages)
        return self._ids(f"{tools or ''}{told}<|im_start|>assistant\n")

    def _ids(self, text: str) -> list[int]:
        ids: list[int] = []
        for part in _SPLIT.split(text):
            ids += [_MARKS[part]] if part in _MARKS else self._encode(part)
        return ids


def content_of(message: Mapping[str, Any]) -> str:
    content = message["content"]
    return content if isinstance(content, str) else "\n".join(part["text"] for part in content)


@cache
def merges(words: re.Pattern[str] | None, number: int = 150) -> dict[tuple[int, int], int]:
    """Pairs of byte-level BPE with their ranks, learnt from a little text."""
    pieces = [_LEARNT_FROM] if words is None else words.findall(_LEARNT_FROM)
    counted = Counter(tuple(piece.encode()) for piece in pieces)
    learnt: dict[tuple[int, int], int] = {}
    for rank in range(number):
        pairs: Counter[tuple[int, int]] = Counter()
        for word, times in counted.items():
            for pair in pairwise(word):
                pairs[pair] += times
        if not pairs:
            break
        best = max(pairs, key=lambda pair: (pairs[pair], pair))
        learnt[best] = 256 + rank
        merged: Counter[tuple[int, ...]] = Counter()
        for word, times in counted.items():
            merged[tuple(_merge(list(word), best, 256 + rank))] += times
        counted = merged
    return learnt


def _merge(word: list[int], pair: tuple[int, int], into: int) -> list[int]:
    merged: list[int] = []
    at = 0
    while at < len(word):
        if at + 1 < len(word) and (word[at], word[at + 1]) == pair:
            merged.append(into)
            at += 2
        else:
            merged.append(word[at])
            at += 1
    return merged


def _bpe(words: re.Pattern[str] | None) -> Callable[[str], list[int]]:
    known = merges(words)

    def encode(text: str) -> list[int]:
        ids: list[int] = []
        for piece in [text] if words is None else words.findall(text):
            word = list(piece.encode("utf-8", "surrogatepass"))
            while len(word) > 1:
                pairs = [pair for pair in pairwise(word) if pair in known]
                if not pairs:
                    break
                best = min(pairs, key=lambda pair: known[pair])
                word = _merge(word, best, known[best])
            ids += word
        return ids

    return encode


def _greedy(text: str) -> list[int]:
    """Words with the blanks before them, and runs of blanks, whatever their length."""
    return [hash_of(word) for word in re.findall(r"\s*\w{1,4}|\s*[^\w\s]+|\s+", text)]


def _with_a_blank(text: str) -> list[int]:
    """As SentencePiece does it: a text begins with a blank that it does not have, unless it stands behind a mark."""
    spelled = ("\u2581" + text).replace(" ", "\u2581")
    return [hash_of(word) for word in re.findall(r"\u2581*[^\W_]{1,5}|\u2581+|.", spelled, re.DOTALL)]


def hash_of(word: str) -> int:
    return int.from_bytes(word.encode("utf-8", "surrogatepass").ljust(4, b"\0")[:8], "big")


KINDS: dict[str, Callable[[str], list[int]]] = {
    "gpt2": _bpe(_GPT2),
    "cl100k": _bpe(_CL100K),
    "no words": _bpe(None),
    "greedy": _greedy,
    "sentencepiece": _with_a_blank,
    "fake": lambda text: list(text_tokens(text)),
}
