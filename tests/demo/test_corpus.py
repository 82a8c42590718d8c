from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextpilot_rag.demo.corpus import cut, folder, python_documentation
from contextpilot_rag.demo.questions import packaged_questions, questions_from
from contextpilot_rag.errors import CorpusError


def test_pythons_own_documentation():
    blocks = python_documentation()
    sizes = sorted(len(block.text) / 4 for block in blocks)
    assert len(blocks) > 1_500
    assert 60 < sizes[len(sizes) // 2] < 180
    assert len({block.id for block in blocks}) == len(blocks) == len({block.text for block in blocks})
    assert any("with statement" in block.text for block in blocks)


def test_block_length_is_followed():
    assert len(python_documentation(60)) > 1.5 * len(python_documentation(240))


@given(st.lists(st.text(alphabet="ab .\n", max_size=300).map(str.strip).filter(bool), max_size=6), st.integers(1, 60))
def test_cutting_keeps_every_letter_in_order(paragraphs, tokens):
    pieces = list(cut(paragraphs, tokens))
    assert "".join("".join(pieces).split()) == "".join("".join(paragraphs).split())
    assert all(len(piece) <= 4 * tokens * 1.4 for piece in pieces)


def test_a_block_needs_a_token():
    with pytest.raises(CorpusError, match="at least one token"):
        list(cut(["x"], 0))


def test_a_folder_of_files(tmp_path):
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "a.md").write_text("# Title\n\nText.")
    (tmp_path / "b.txt").write_bytes(b"caf\xe9 is no UTF-8")
    (tmp_path / "c.pdf").write_text("not read")
    blocks = folder(tmp_path)
    assert [block.id for block in blocks] == ["b.txt#0", "sub/a.md#0"]
    assert blocks[1].text == "sub/a.md\n# Title\n\nText."
    assert folder(tmp_path / "b.txt")[0].id == "b.txt#0"


def test_folders_with_nothing_to_read(tmp_path):
    with pytest.raises(CorpusError, match="no text in"):
        folder(tmp_path)
    with pytest.raises(CorpusError, match="no file or folder"):
        folder(tmp_path / "missing")


def test_file_names_may_be_any_bytes(tmp_path):
    (tmp_path / os.fsdecode(b"caf\xe9.txt")).write_text("text")
    block = folder(tmp_path)[0]
    assert block.text.encode("utf-8").endswith(b".txt\ntext")


@pytest.mark.parametrize("name", ["x" * 300, "\x00"])
def test_names_that_cannot_be(name):
    with pytest.raises(CorpusError):
        folder(Path(name))


def test_one_endless_line_is_cut_in_passing():
    """Going over the rest again for every piece would take hours."""
    pieces = list(cut(["word " * 2_000_000], 120))
    assert sum(len(piece.split()) for piece in pieces) == 2_000_000


def test_a_huge_file_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("contextpilot_rag.demo.corpus.MAX_FILE_BYTES", 10)
    (tmp_path / "big.txt").write_text("x" * 11)
    with pytest.raises(CorpusError, match=r"big\.txt.*larger than 10 bytes"):
        folder(tmp_path)


def test_packaged_questions():
    questions = packaged_questions()
    assert len(questions) == len(set(questions)) == 120


def test_questions_from_a_file(tmp_path):
    file = tmp_path / "q.txt"
    file.write_text("One?\n\n  Two? \n")
    assert questions_from(file) == ["One?", "Two?"]
    file.write_text("\n \n")
    with pytest.raises(CorpusError, match="no question in"):
        questions_from(file)
    file.write_bytes(b"\xff\xfe")
    with pytest.raises(CorpusError, match="cannot read questions"):
        questions_from(file)
    with pytest.raises(CorpusError, match="cannot read questions"):
        questions_from(tmp_path / "missing")
