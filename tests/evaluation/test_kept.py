from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor

import pytest

from contextpilot_rag.errors import TraceError
from contextpilot_rag.evaluation.kept import Kept
from contextpilot_rag.evaluation.words import Outcome

ONE = Outcome("a", "An answer.\u2028Of two \x85 lines.", 10, 4, -1.5, 3)
TWO = Outcome("b", "", 10)


def test_what_was_kept_is_there_again(tmp_path):
    path = tmp_path / "results.jsonl"
    kept = Kept(path)
    assert (len(kept), kept.get("a")) == (0, None)
    kept.add(ONE)
    kept.add(TWO)
    again = Kept(path)
    assert (again.get("a"), again.get("b"), len(again)) == (ONE, TWO, 2)


def test_a_line_that_was_being_written_is_taken_away(tmp_path):
    path = tmp_path / "results.jsonl"
    Kept(path).add(ONE)
    with path.open("a") as file:
        file.write('{"key": "b", "te')
    kept = Kept(path)
    assert (len(kept), kept.get("a")) == (1, ONE)
    kept.add(TWO)
    assert Kept(path).get("b") == TWO


def test_without_a_file_it_is_kept_for_the_while():
    kept = Kept()
    kept.add(ONE)
    assert kept.get("a") == ONE


def test_many_threads_lose_nothing(tmp_path):
    path = tmp_path / "results.jsonl"
    kept = Kept(path)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: kept.add(Outcome(str(number), "x" * 5_000, 1)), range(200)))
    assert len(Kept(path)) == len(kept) == 200


def test_another_file_is_refused(tmp_path):
    path = tmp_path / "results.jsonl"
    Kept(path).add(ONE)
    with path.open("a") as file:
        file.write(json.dumps({"qid": "q"}) + "\n")
    with pytest.raises(TraceError, match=r"results.jsonl, line 2: .*key.*not written by an evaluation"):
        Kept(path)
    with pytest.raises(TraceError, match="cannot read"):
        Kept(tmp_path)


def test_a_file_that_cannot_be_written_is_named(tmp_path):
    with pytest.raises(TraceError, match="cannot write"):
        Kept(tmp_path / "missing" / "results.jsonl").add(ONE)


def test_a_file_of_the_users_is_refused_and_stays_as_it_is(tmp_path):
    path = tmp_path / "questions.jsonl"
    for text in ('{"qid": "q1", "answer": "y"}', '{"key": "b", "answer": "y"}', '{"qid": "q'):  # no line ends
        path.write_text(text)
        with pytest.raises(TraceError, match="not written by an evaluation"):
            Kept(path)
        assert path.read_text() == text


def test_looking_at_a_file_that_another_process_writes_changes_nothing(tmp_path):
    path = tmp_path / "results.jsonl"
    Kept(path).add(ONE)
    begun = path.read_bytes() + b'{"key": "b", "te'
    path.write_bytes(begun)
    assert len(Kept(path)) == 1
    assert path.read_bytes() == begun


def test_two_that_write_to_one_file_both_keep_what_they_measure(tmp_path):
    path = tmp_path / "results.jsonl"
    one, other = Kept(path), Kept(path)
    one.add(Outcome("long", "x" * 200_000, 1))
    other.add(TWO)
    with path.open("ab") as file:
        file.write(b'{"key": "c", "text": "' + b"y" * 200_000)  # killed
    one.add(ONE)
    with path.open("ab") as file:
        file.write(b'{"key": "d", "text": "", "prompt_tokens": 1}')  # killed before the line's end
    assert Kept(path).get("d") == Outcome("d", "", 1)
    other.add(Outcome("e", "", 1))
    again = Kept(path)
    assert [again.get(key) is not None for key in ("long", "a", "b", "c", "d", "e")] == [True] * 3 + [False, True, True]


def test_half_a_character_of_an_answer_is_kept(tmp_path):
    path = tmp_path / "results.jsonl"
    half = Outcome("a", "half \ud83d", 3)
    Kept(path).add(half)
    assert Kept(path).get("a") == half
