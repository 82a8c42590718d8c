"""Logs: what the service says, as text for people or as JSON for machines; one line a record, whatever it holds.

Nothing in this library logs a key or a salt. Should one ever stand in a message, it does not get out here.
"""

from __future__ import annotations

import json
import logging
import re
import sys
import time
from typing import TYPE_CHECKING, TextIO

from ..errors import SettingsError

NAME = "contextpilot_rag"
FORMATS = ("text", "json")
_KEY = re.compile(r"cpk_([A-Za-z0-9]{1,64})_[A-Za-z0-9_-]{16,}")  # an API key: its id may be seen, the rest may not
_BREAKS = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_OURS = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName", "color_message"}


def configure(log_format: str, *, whole: bool = False, stream: TextIO | None = None) -> logging.Handler:
    """Send this library's log to stderr. Done twice, the second one counts.

    Args:
        log_format: "text" or "json".
        whole: also what other libraries log, from warnings on. For a process of our own: in somebody else's the root
            logger is theirs.
        stream: instead of stderr.

    Raises:
        SettingsError: another format.
    """
    handler = _Handler(sys.stderr if stream is None else stream)
    handler.setFormatter(formatter(log_format))
    ours = logging.getLogger(NAME)
    _replace(ours, handler)
    ours.setLevel(logging.INFO)
    ours.propagate = False
    if whole:
        _replace(logging.getLogger(), handler)
    return handler


def formatter(log_format: str) -> logging.Formatter:
    """What makes lines of records.

    Raises:
        SettingsError: another format than "text" or "json".
    """
    if log_format not in FORMATS:
        raise SettingsError(f"--log-format: {log_format!r} is neither 'json' nor 'text'")
    return JsonLines() if log_format == "json" else TextLines()


class TextLines(logging.Formatter):
    """Time, level, logger, message; a traceback on lines of its own."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)-7s %(name)s  %(message)s")
        self.converter = time.gmtime
        self.default_msec_format = "%s.%03dZ"

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802  the library's name
        """One line: a message can start none of its own."""
        return _on_one_line(_without_keys(super().formatMessage(record)))

    def formatException(self, ei: object) -> str:  # noqa: N802
        """A traceback, indented: what was sent cannot pass for a line of the log."""
        lines = _without_keys(super().formatException(ei)).splitlines()  # type: ignore[arg-type]
        return "\n".join("    " + _BREAKS.sub("?", line) for line in lines)


class JsonLines(logging.Formatter):
    """One JSON object a line: time, level, logger, message, and whatever the record has besides."""

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        line: dict[str, object] = {
            "time": f"{stamp}.{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        line |= {str(name): value for name, value in vars(record).items() if name not in _OURS and name not in line}
        if record.exc_info and record.exc_info[0] is not None:
            line["exception"] = self.formatException(record.exc_info)
        try:
            text = json.dumps(line, default=_shown, skipkeys=True, allow_nan=False)
        except ValueError:  # a NaN, or something that holds itself: no JSON
            text = json.dumps({name: str(value) for name, value in line.items()})
        return _without_keys(text)


if TYPE_CHECKING:
    _Stream = logging.StreamHandler[TextIO]
else:
    _Stream = logging.StreamHandler  # Python 3.10 cannot be told of what


class _Handler(_Stream):
    """Ours, to be found again."""


def _replace(logger: logging.Logger, handler: logging.Handler) -> None:
    for old in [old for old in logger.handlers if isinstance(old, _Handler)]:
        logger.removeHandler(old)
    logger.addHandler(handler)


def _without_keys(text: str) -> str:
    """The text, without API keys.

    >>> _without_keys("no cpk_a1_0123456789abcdefgh here")
    'no cpk_a1_*** here'
    """
    return _KEY.sub(r"cpk_\1_***", text)


def _on_one_line(text: str) -> str:
    r"""The text with what could break a line, or colour it, written out.

    >>> _on_one_line("a\nb")
    'a\\nb'
    """
    return _BREAKS.sub(lambda found: found.group().encode("unicode_escape").decode("ascii"), text)


def _shown(value: object) -> str:
    return f"<{type(value).__name__}>"
