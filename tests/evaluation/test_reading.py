from __future__ import annotations

import gzip
import json

import pytest

from contextpilot_rag.errors import TraceError
from contextpilot_rag.evaluation.reading import read_questions, sampled
from tests.evaluation.common import question

TEXT = {"id": "a", "text": "Alpha."}
GOOD = {"qid": "q1", "question": "What?", "answer": "yes", "blocks": [TEXT, {"id": 2, "text": "Beta.", "score": 0.5}]}


def lines(path, *rows):
    path.write_text("".join(f"{row if isinstance(row, str) else json.dumps(row)}\n" for row in rows))
    return path


def read(tmp_path, *rows, **more):
    return read_questions(lines(tmp_path / "questions.jsonl", *rows), **more)


def test_a_question_with_its_blocks(tmp_path):
    (found,) = read(tmp_path, {**GOOD, "answers": ["aye"], "gold_ids": [2], "extra": 1})
    assert (found.id, found.text, found.answers, found.asked) == ("q1", "What?", ("aye", "yes"), True)
    assert [(block.id, block.text, block.score) for block in found.blocks] == [
        ("a", "Alpha.", None),
        ("2", "Beta.", 0.5),
    ]
    assert found.gold == {"2"}


def test_blocks_may_stand_in_a_file_of_their_own(tmp_path):
    blocks = lines(tmp_path / "blocks.jsonl", TEXT, {"id": 2, "text": "Beta."})
    (found,) = read(tmp_path, {"qid": 1, "question": "?", "answer": 5, "context_ids": [2, "a"]}, blocks=blocks)
    assert (found.id, [block.text for block in found.blocks], found.answers) == ("1", ["Beta.", "Alpha."], ("5",))


def test_a_text_that_comes_twice_stands_once_and_stays_gold(tmp_path):
    twice = [TEXT, {"id": "b", "text": "Beta."}, {"id": "c", "text": "Alpha.  "}]
    (found,) = read(tmp_path, {**GOOD, "blocks": twice, "gold_ids": ["c"]})
    assert [block.id for block in found.blocks] == ["a", "b"]
    assert found.gold == {"a"}


def test_blocks_without_ids_get_some(tmp_path):
    (found,) = read(tmp_path, {**GOOD, "blocks": [{"text": "Alpha."}, {"text": "Beta."}]})
    assert len({block.id for block in found.blocks} - {None}) == 2


def test_the_traffic_comes_first_and_is_not_asked(tmp_path):
    traffic = lines(tmp_path / "traffic.jsonl", {"qid": "t1", "blocks": [TEXT]})
    found = read(tmp_path, GOOD, traffic=traffic)
    assert [(one.id, one.asked) for one in found] == [("t1", False), ("q1", True)]


def test_files_may_be_compressed_and_texts_hold_any_line_end(tmp_path):
    path = tmp_path / "questions.jsonl.gz"
    row = {**GOOD, "blocks": [{"id": "a", "text": "One\u2028two\x85three"}]}
    path.write_bytes(gzip.compress(f"{json.dumps(row, ensure_ascii=False)}\n\n".encode()))
    (found,) = read_questions(path)
    assert found.blocks[0].text == "One\u2028two\x85three"


def test_a_judge_needs_no_answers(tmp_path):
    (found,) = read(tmp_path, {**GOOD, "answer": None}, judged=True)
    assert found.answers == ()


TURN = {"qid": "1", "question": "?", "answer": "yes", "blocks": [], "conversation": "c"}


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (["{"], "line 1: Input data was truncated"),
        ([{"question": "?"}], "line 1: Object missing required field `qid`"),
        ([GOOD, {**GOOD, "qid": "q2", "answer": [1]}], r"line 2: Expected .*\$.answer"),
        ([GOOD, "", GOOD], r"line 3: qid 'q1' came before, in .*questions.jsonl, line 1"),
        ([{**GOOD, "question": " "}], "line 1: no question"),
        ([{**GOOD, "answer": " "}], "line 1: no answers; give some, or a judge"),
        ([{**GOOD, "context_ids": ["a"]}], "line 1: give blocks, or context_ids, not both"),
        ([{**GOOD, "blocks": None}], "line 1: give blocks, or context_ids, not neither"),
        ([{**GOOD, "blocks": None, "context_ids": ["a"]}], "line 1: context_ids need a file of blocks"),
        ([{**GOOD, "blocks": [TEXT, {"id": "a", "text": "Beta."}]}], "line 1: block 1 .* id 'a' came before"),
        ([{**GOOD, "blocks": [{"id": "a", "text": "x", "tokens": 0}]}], "line 1: block 'a': tokens"),
        ([], "holds no question"),
        ([TURN, {**GOOD, "qid": "2"}], r"line 2: no conversation, and .*line 1 has one; evaluate them apart"),
        ([{**TURN, "turn": 2}, {**TURN, "qid": "2", "turn": 2}], "line 2: turn 2 comes after turn 2"),
    ],
)
def test_what_cannot_be_used_is_named_with_its_place(tmp_path, rows, message):
    with pytest.raises(TraceError, match=f"questions.jsonl.*{message}"):
        read(tmp_path, *rows)


def test_a_turn_that_others_follow_needs_an_answer(tmp_path):
    rows = [{**TURN, "answer": None}, {**TURN, "qid": "2", "answer": None}]
    with pytest.raises(TraceError, match=r"line 1: no answer, and .*line 2 goes on"):
        read(tmp_path, *rows, judged=True)
    assert len(read(tmp_path, TURN, rows[1], judged=True)) == 2


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([TEXT, {"id": "a", "text": "Beta."}], "line 2: block 'a' came before with another text"),
        ([{"id": "a"}], "line 1: Object missing required field `text`"),
        ([{"id": "b", "text": "Beta."}], r"questions.jsonl, line 1: there is no block 'a'"),
    ],
)
def test_blocks_that_cannot_be_used_are_named(tmp_path, rows, message):
    blocks = lines(tmp_path / "blocks.jsonl", *rows)
    with pytest.raises(TraceError, match=message):
        read(tmp_path, {"qid": 1, "question": "?", "answer": "x", "context_ids": ["a"]}, blocks=blocks)


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(TraceError, match=r"cannot read .*missing.jsonl"):
        read_questions(tmp_path / "missing.jsonl")


def test_a_mark_of_the_byte_order_is_no_part_of_it_and_what_is_nested_too_deeply_is_named(tmp_path):
    path = tmp_path / "questions.jsonl"
    path.write_bytes(b'\xef\xbb\xbf{"qid": 1, "question": "?", "answer": "x", "blocks": [{"text": "t"}]}')
    assert read_questions(path)[0].id == "1"
    path.write_text('{"qid": 1, "more": ' + "[" * 100_000 + "]" * 100_000 + "}")
    with pytest.raises(TraceError, match=r"questions.jsonl, line 1: "):
        read_questions(path)


def test_a_sample_is_the_same_each_time_and_keeps_the_traffic():
    traffic = [question(name, [1], asked=name % 2 == 0) for name in range(40)]
    found = sampled(traffic, 5)
    assert [one.id for one in found] == [one.id for one in traffic]
    drawn = {one.id for one in found if one.asked}
    assert len(drawn) == 5
    assert all(int(name) % 2 == 0 for name in drawn)
    assert found == sampled(traffic, 5)
    assert sampled(traffic, 100) == traffic


def test_a_sample_of_conversations_is_of_whole_ones():
    traffic = [question(f"{name}-{turn}", [1], conversation=str(name)) for turn in range(4) for name in range(10)]
    drawn = [one.conversation for one in sampled(traffic, 8) if one.asked]
    assert sorted(map(drawn.count, set(drawn))) == [4, 4]
