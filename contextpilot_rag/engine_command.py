"""``contextpilot-rag engine``: can an engine be followed, and if not, what is missing?"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from dataclasses import asdict
from typing import get_args

from .engines.checkup import SECONDS, Checkup, check_up
from .engines.engine import Engine, Level, engine_of
from .engines.shown import shown_url

_LEVELS: tuple[Level, ...] = get_args(Level)
_MARKS = {True: "ok", False: "no", None: "--"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command's arguments."""
    parser.description = (
        "Tries out all that is needed to follow an engine's cache, says what is missing, and which level a pilot would "
        "get. Exit status 0 if that is the level asked for."
    )
    parser.add_argument("url", metavar="URL", help="its address, http://HOST:PORT")
    parser.add_argument(
        "settings",
        nargs="*",
        metavar="NAME=VALUE",
        help="as in CONTEXTPILOT_ENGINES: events=tcp://HOST:PORT, replay=, topic=, listen=yes, api_key=, ...",
    )
    parser.add_argument(
        "--level", choices=_LEVELS, help="what is asked for (default: events if events= is given, else model)"
    )
    parser.add_argument(
        "--no-request", action="store_true", help="do not ask it for answers (two of one token), so less can be told"
    )
    parser.add_argument(
        "--seconds", type=_seconds, default=SECONDS, metavar="N", help="that each step may take (default: %(default)g)"
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of text")


def run(options: argparse.Namespace, told: Callable[[str], None]) -> int:
    """Run the command.

    Args:
        options: its arguments.
        told: prints a line.

    Returns:
        The exit status: 0 if the level is reached, else 1.

    Raises:
        SettingsError: an engine that cannot be.
    """
    engine = engine_of(" ".join([options.url, *options.settings]))
    asked: Level = options.level or ("events" if engine.events else "model")
    found = check_up(engine, request=not options.no_request, seconds=options.seconds)
    reached = found.level is not None and _LEVELS.index(found.level) >= _LEVELS.index(asked)
    if options.json:
        told(json.dumps(_plain(engine, found, asked, reached=reached)))
    else:
        for one in found.findings:
            told(f"{_MARKS[one.ok]}  {one.check:<8} {one.said}")
        missed = "" if reached else f"; {asked} was asked for"
        told(f"level: {found.level or 'none, it does not answer'}{missed}")
    return 0 if reached else 1


def _seconds(text: str) -> float:
    value = float(text)
    if not 0 < value < 86_400:
        raise ValueError
    return value


def _plain(engine: Engine, found: Checkup, asked: Level, *, reached: bool) -> dict[str, object]:
    return {
        "engine": engine.name,
        "url": shown_url(engine.url),
        "level": found.level,
        "asked": asked,
        "reached": reached,
        "checks": [asdict(one) for one in found.findings],
    }
