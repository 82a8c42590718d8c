"""The demo's questions: about 120 on Python that come with the package, or a file with one a line.

The packaged ones were written for this project as a help desk sees them: many users ask about the same few things in
other words. Popular needs come more often among the first forty than later.
"""

from __future__ import annotations

import json
from importlib import resources
from pathlib import Path

from ..errors import CorpusError


def packaged_questions() -> list[str]:
    """The questions on Python, in order of arrival."""
    lines = resources.files(__package__).joinpath("questions.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line)["question"] for line in lines]


def questions_from(path: Path) -> list[str]:
    """Questions from a text file, one a line; blank lines are passed over.

    Raises:
        CorpusError: there is no such file, or no question in it, or it is no UTF-8 text.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise CorpusError(f"cannot read questions from {str(path)!r}: {error}") from error
    questions = [line.strip() for line in lines if line.strip()]
    if not questions:
        raise CorpusError(f"no question in {str(path)!r}: it must hold one a line")
    return questions
