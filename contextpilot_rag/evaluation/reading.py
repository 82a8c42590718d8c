"""Users' questions, their blocks and their traffic, from JSON lines (``.gz`` is fine).

    {"qid": "q1", "question": "...", "answers": ["..."], "blocks": [{"id": "doc-7", "text": "..."}, ...]}
    {"qid": "q2", "question": "...", "answer": "...", "context_ids": ["doc-7", "doc-3"], "gold_ids": ["doc-3"]}

Blocks stand best first, in full or as ids of a file of ``{"id": ..., "text": ...}`` lines. Turns of conversations have
``conversation`` and perhaps ``turn``. The traffic is more such lines, which need neither question nor answer.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from ..errors import InputError, TraceError
from ..intake import distinct
from ..trace import text_of
from ..types import Block
from .words import Question

Texts = Mapping[str, str]


class _Block(msgspec.Struct):
    text: str
    id: str | int | None = None
    score: float | None = None
    tokens: int | None = None


class _Line(msgspec.Struct):
    qid: str | int
    question: str = ""
    answer: str | int | float | None = None
    answers: list[str | int | float] = []
    blocks: list[_Block] | None = None
    context_ids: list[str | int] | None = None
    gold_ids: list[str | int] = []
    conversation: str | int | None = None
    turn: int | None = None


class _Text(msgspec.Struct):
    id: str | int
    text: str


@dataclass(frozen=True, slots=True)
class _Row:
    """One line, and where it stands."""

    line: _Line
    where: str
    asked: bool


def read_questions(
    path: Path, blocks: Path | None = None, traffic: Path | None = None, *, judged: bool = False
) -> list[Question]:
    """The traffic and then the questions, in the order of the files.

    Args:
        path: the questions; they are to be asked.
        blocks: texts that ``context_ids`` name.
        traffic: requests that only shape what is cached.
        judged: questions without an answer will do.

    Raises:
        TraceError: something cannot be read or used; the message names file, line and what is missing.
    """
    texts = None if blocks is None else _texts(blocks)
    rows = [] if traffic is None else list(_rows(traffic, asked=False))
    rows += _rows(path, asked=True)
    if not any(row.asked for row in rows):
        raise TraceError(f"{path} holds no question")
    _check_names(rows)
    _check_conversations(rows)
    return [_question(row, texts, judged=judged) for row in rows]


def sampled(questions: Sequence[Question], count: int) -> list[Question]:
    """The same traffic, with so many of its questions to be asked, the same each time; of conversations, whole ones.

    Args:
        questions: in the order of the traffic.
        count: how many; all, if there are fewer.
    """
    pool = [question for question in questions if question.asked]
    random.Random("evaluate").shuffle(pool)  # noqa: S311  the same each time
    order = {name: place for place, name in enumerate(dict.fromkeys(one.conversation for one in pool))}
    pool.sort(key=lambda one: 0 if one.conversation is None else order[one.conversation])
    drawn = {question.id for question in pool[:count]}
    return [replace(question, asked=question.id in drawn) for question in questions]


def _lines(path: Path) -> Iterator[tuple[str, str]]:
    """Each line that is not blank, and where it stands. Texts may hold characters that others take as line ends."""
    for number, text in enumerate(text_of(path).split("\n"), start=1):
        if text.strip():
            yield f"{path}, line {number}", text


def _rows(path: Path, *, asked: bool) -> Iterator[_Row]:
    for where, text in _lines(path):
        try:
            yield _Row(msgspec.json.decode(text, type=_Line), where, asked)
        except (msgspec.DecodeError, RecursionError) as error:
            raise TraceError(f"{where}: {error}") from None


def _texts(path: Path) -> Texts:
    found: dict[str, str] = {}
    for where, text in _lines(path):
        try:
            block = msgspec.json.decode(text, type=_Text)
        except (msgspec.DecodeError, RecursionError) as error:
            raise TraceError(f"{where}: {error}") from None
        if found.setdefault(str(block.id), block.text) != block.text:
            raise TraceError(f"{where}: block {str(block.id)!r} came before with another text")
    return found


def _check_names(rows: Sequence[_Row]) -> None:
    seen: dict[str, str] = {}
    for row in rows:
        name = str(row.line.qid)
        if name in seen:
            raise TraceError(f"{row.where}: qid {name!r} came before, in {seen[name]}")
        seen[name] = row.where


def _check_conversations(rows: Sequence[_Row]) -> None:
    """That all lines are turns, or none; and that each turn has an answer for the turns behind it."""
    turns = [row for row in rows if row.line.conversation is not None]
    if turns and len(turns) < len(rows):
        alone = next(row for row in rows if row.line.conversation is None)
        raise TraceError(f"{alone.where}: no conversation, and {turns[0].where} has one; evaluate them apart")
    before: dict[str, _Row] = {}
    for row in turns:
        name = str(row.line.conversation)
        last = before.get(name)
        if last is not None and not _answers(last.line):
            raise TraceError(f"{last.where}: no answer, and {row.where} goes on with its conversation")
        if last is not None and None not in {last.line.turn, row.line.turn} and _turn(last) >= _turn(row):
            raise TraceError(f"{row.where}: turn {row.line.turn} comes after turn {last.line.turn}")
        before[name] = row


def _turn(row: _Row) -> int:
    return row.line.turn or 0


def _answers(line: _Line) -> tuple[str, ...]:
    given = [*line.answers, *([] if line.answer is None else [line.answer])]
    return tuple(str(answer) for answer in given if str(answer).strip())


def _question(row: _Row, texts: Texts | None, *, judged: bool) -> Question:
    line, answers = row.line, _answers(row.line)
    if row.asked and not line.question.strip():
        raise TraceError(f"{row.where}: no question")
    if row.asked and not answers and not judged:
        raise TraceError(f"{row.where}: no answers; give some, or a judge")
    try:
        found = distinct(_blocks(row, texts), normalise=True)
    except InputError as error:
        raise error if isinstance(error, TraceError) else TraceError(f"{row.where}: {error}") from None
    named = [replace(block, id=names[0]) for block, names in zip(found.blocks, found.aliases, strict=True)]
    right = {str(name) for name in line.gold_ids}
    gold = frozenset(names[0] for names in found.aliases if right & {str(name) for name in names})
    conversation = None if line.conversation is None else str(line.conversation)
    return Question(str(line.qid), line.question, tuple(named), answers, gold, conversation, row.asked)


def _blocks(row: _Row, texts: Texts | None) -> list[Block]:
    line = row.line
    if (line.blocks is None) == (line.context_ids is None):
        raise TraceError(f"{row.where}: give blocks, or context_ids, not {'both' if line.blocks else 'neither'}")
    if line.blocks is not None:
        return [Block(one.text, None if one.id is None else str(one.id), one.tokens, one.score) for one in line.blocks]
    if texts is None:
        raise TraceError(f"{row.where}: context_ids need a file of blocks")
    ids = [str(name) for name in line.context_ids or ()]
    unknown = [name for name in ids if name not in texts]
    if unknown:
        raise TraceError(f"{row.where}: there is no block {unknown[0]!r} among the blocks")
    return [Block(texts[name], name) for name in ids]
