"""A judge of the user's: a function that says how good an answer is, asked once for each answer."""

from __future__ import annotations

import hashlib
import importlib
import json
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..errors import InputError, SettingsError
from ..intake import share_of
from ..types import short
from .kept import append, rows_of
from .words import Question

JudgeFunction = Callable[[str, str, Sequence[str]], float]
"""Takes the question, the answer and the right answers (none, if there are none); says how good it is, 0 to 1."""


@dataclass(frozen=True, slots=True)
class Mark:
    """What a judge said.

    Args:
        key: names judge, question and answer.
        mark: from 0 to 1.
    """

    key: str
    mark: float


class Judging:
    """A judge who remembers. What it said of an answer holds for every arm that got the same one.

    Args:
        name: of the judge; whose marks are whose.
        function: the judge.
        path: file that marks are kept in; None: they are gone with this object.

    Raises:
        TraceError: the file cannot be read, or is another one.
    """

    def __init__(self, name: str, function: JudgeFunction, path: Path | None = None) -> None:
        self.name, self._function, self._path = name, function, path
        self._marks = {} if path is None else {row.key: row.mark for row in rows_of(path, Mark)}

    def __call__(self, question: Question, text: str) -> float:
        """How good an answer is.

        Raises:
            InputError: the judge failed, or said something else than a number from 0 to 1; the message names it.
        """
        asked = json.dumps([self.name, question.text, question.answers, text])
        key = hashlib.sha256(asked.encode()).hexdigest()[:32]
        if key not in self._marks:
            self._marks[key] = self._asked(question, text)
            if self._path is not None:
                append(self._path, Mark(key, self._marks[key]))
        return self._marks[key]

    def _asked(self, question: Question, text: str) -> float:
        where = f"judge {self.name}, question {question.id}"
        try:
            mark = self._function(question.text, text, list(question.answers))
        except Exception as error:  # it is the user's code
            raise InputError(f"{where}: {type(error).__name__}: {error}") from error
        share = share_of(mark)
        if share is None:
            raise InputError(f"{where}: it must say a number from 0 to 1, not {short(mark)}")
        return share


def judge_called(name: str) -> JudgeFunction:
    """The function that ``module:function`` names. Modules of the current folder are found, too.

    Raises:
        SettingsError: there is none.
    """
    module, _, function = name.partition(":")
    if not module or not function:
        raise SettingsError(f"a judge is named as module:function, not {short(name)}")
    sys.path.insert(0, os.getcwd())  # noqa: PTH109  sys.path has texts
    try:
        found = getattr(importlib.import_module(module), function, None)
    except Exception as error:  # importing runs the user's code
        raise SettingsError(f"judge {name}: {module} cannot be imported: {type(error).__name__}: {error}") from error
    finally:
        sys.path.pop(0)
    if not callable(found):
        raise SettingsError(f"judge {name}: {module} has no function {function!r}")
    judge: JudgeFunction = found
    return judge
