"""The sets of benchmarks/quality.py: recorded retrieval with questions whose answers are known.

Each is the traffic of a whole trace, through which every layout goes; a sample of its questions is asked. Blocks are
cut to fit a small model's prompt by leaving long ones out, never by shortening one.
"""

from __future__ import annotations

import gzip
import json
import random
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

from contextpilot_rag.evaluation.marking import contained
from contextpilot_rag.evaluation.shares import Share, shares
from contextpilot_rag.evaluation.words import Arm, Question
from contextpilot_rag.types import Block

TRACES = Path(__file__).resolve().parents[2] / "shared" / "traces"


@dataclass(frozen=True, slots=True)
class Recorded:
    """Where a set comes from, and what is taken of it.

    Args:
        name: of the set, and of its folder.
        trace: file of the retriever's results.
        top: the best blocks, so many, of those that are taken.
        longest: tokens of a block; longer ones are left out of the corpus.
        max_tokens: of an answer.
        turns: the set is of conversations; their first turns, so many, are taken.
        extractive: only questions whose answer stands in a gold block word for word.
    """

    name: str
    trace: str
    top: int
    longest: int = 10_000
    max_tokens: int = 16
    turns: int | None = None
    extractive: bool = False


SETS: Mapping[str, Recorded] = {
    one.name: one
    for one in (
        Recorded("tatqa", "trace_bm25_top15.jsonl.gz", 4, longest=300, extractive=True),
        Recorded("multihoprag_stubs", "trace_bm25_top15.jsonl", 6),
        Recorded("locomo", "trace_bm25_top15.jsonl", 12),
        Recorded("mtrag", "trace_bm25_prevcur_top15.jsonl", 3, longest=300, max_tokens=24, turns=5),
    )
}


def questions(name: str, count: int) -> list[Question]:
    """A set's traffic; ``count`` of its questions, drawn by a fixed seed, are to be asked.

    Those have an answer, and a gold block among what was retrieved; of conversations, all turns but the first.
    """
    traffic, pool = _traffic(name)
    drawn = {one.id for one in pool[:count]}
    return [replace(one, asked=one.id in drawn) for one in traffic]


@cache
def _traffic(name: str) -> tuple[list[Question], list[Question]]:
    """A set's requests, and those of them that may be asked, in the order in which they are drawn; read once."""
    of = SETS[name]
    folder = TRACES / of.name
    texts, lengths = _corpus(folder), json.loads((folder / "block_tokens.json").read_text())
    known = {row["id"]: row for row in _rows(folder / "queries.jsonl")}
    found = []
    for row in _rows(folder / of.trace):
        query = known[row["qid"]]
        if of.turns is not None and row["turn"] > of.turns:
            continue
        ids = [block for block in row["context_ids"] if block in texts and lengths[block] <= of.longest][: of.top]
        blocks = [Block(texts[one], id=one) for one in ids]
        distinct = {block.text: block for block in reversed(blocks)}
        blocks = [block for block in blocks if distinct[block.text] is block]
        if blocks:
            found.append(_question(query, blocks, row["qid"], row if of.turns is not None else {}))
    found = _scored(found, texts)
    return found, _shuffled([one for one in found if _suits(one, of, known[one.id])], of)


def _scored(found: Sequence[Question], texts: Mapping[str, str]) -> list[Question]:
    """With BM25's scores, which the traces leave out: the layout that looks at the best block's lead needs them."""
    from rank_bm25 import BM25Okapi

    place = {block: number for number, block in enumerate(texts)}
    scorer = BM25Okapi([_words(text) for text in texts.values()])
    scored = []
    for one in found:
        scores = scorer.get_batch_scores(_words(one.text), [place[block.id] for block in one.blocks])
        scored.append(
            replace(one, blocks=tuple(map(lambda block, score: replace(block, score=float(score)), one.blocks, scores)))
        )
    return scored


def _words(text: str) -> list[str]:
    return re.findall(r"\w+", text.lower())


def _question(query: Mapping[str, Any], blocks: Sequence[Block], qid: str, row: Mapping[str, Any]) -> Question:
    gold = frozenset(query.get("gold_ids", ())) & {block.id for block in blocks}
    answers = (query["answer"],) if query["answer"] else ()
    return Question(qid, query["question"], tuple(blocks), answers, gold, row.get("conversation"), asked=False)


def _suits(question: Question, of: Recorded, query: Mapping[str, Any]) -> bool:
    """Whether it can show anything."""
    if of.turns is not None:
        return bool(question.answers) and query["turn"] > 1  # before that nothing was given that could be left out
    if not question.gold or not question.answers or query.get("category") == 5:  # locomo's trick questions
        return False
    gold = " ".join(block.text for block in question.blocks if block.id in question.gold)
    return not of.extractive or contained(gold, question.answers[0]) == 1


def _shuffled(suited: Sequence[Question], of: Recorded) -> list[Question]:
    """Questions as they are drawn; of conversations whole ones."""
    pool = list(suited)
    random.Random(f"quality {of.name}").shuffle(pool)
    if of.turns is not None:  # turn by turn, so that what stands before is cached
        order = {name: place for place, name in enumerate(dict.fromkeys(one.conversation for one in pool))}
        pool.sort(key=lambda one: order[one.conversation])
    return pool


def _corpus(folder: Path) -> dict[str, str]:
    rows = _rows(next(iter(folder.glob("corpus.jsonl*"))))
    return {row["id"]: "\n".join(part for part in (row.get("title"), row["text"]) if part) for row in rows}


def _rows(path: Path) -> Iterable[dict[str, Any]]:
    with gzip.open(path, "rt") if path.suffix == ".gz" else path.open() as file:
        return [json.loads(line) for line in file]


class Shares:
    """What a cache would find of each arm's prompts of a whole trace, kept in a file: it takes minutes.

    Args:
        path: of the file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._kept: dict[str, list[int]] = json.loads(path.read_text()) if path.exists() else {}

    def of(self, name: str, all_: Sequence[Question], arms: Sequence[Arm]) -> dict[str, Share]:
        """By the arm's name."""
        places = {arm.name: f"{metadata.version('contextpilot-rag')} {SETS[name]} {arm}" for arm in arms}
        missing = [arm for arm in arms if places[arm.name] not in self._kept]
        for arm, share in shares(all_, missing).items():
            self._kept[places[arm]] = [share.sent, share.cached]
        self._path.write_text(json.dumps(self._kept, indent=1))
        return {arm: Share(*self._kept[place]) for arm, place in places.items()}
