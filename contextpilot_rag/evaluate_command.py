"""``contextpilot-rag evaluate``: do your answers stay as good when blocks are aligned, and which setting is safe?"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

_MEASURES = ("f1", "contained", "accuracy", "probability", "judge")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command's arguments."""
    parser.description = (
        "Asks your questions, with the blocks that were retrieved for them, in the retriever's order and in others, "
        "and says with intervals which orders cost answers and which do not. Each question is compared with itself."
    )
    parser.add_argument(
        "questions",
        type=Path,
        metavar="QUESTIONS",
        help="JSON lines of {qid, question, answers, blocks: [{id, text}, ...]}, best first; .gz is fine",
    )
    parser.add_argument(
        "--endpoint", metavar="URL", help="an OpenAI-compatible engine; if it wants a key, OPENAI_API_KEY has it"
    )
    parser.add_argument("--model", metavar="NAME", help="the engine's name for its model (default: the first it lists)")
    parser.add_argument("--blocks", type=Path, metavar="FILE", help="JSON lines of {id, text}, for context_ids")
    parser.add_argument(
        "--traffic", type=Path, metavar="FILE", help="more requests, which are not asked but shape what is cached"
    )
    parser.add_argument(
        "--judge", metavar="MODULE:FUNCTION", help="says of (question, answer, right answers) how good it is, 0 to 1"
    )
    parser.add_argument(
        "--arms", nargs="+", metavar="ARM", help="which, by name, or all (default: those that differ most)"
    )
    parser.add_argument("--sample", type=int, metavar="N", help="ask N of the questions (default: all)")
    parser.add_argument("--system", metavar="TEXT", help="the system prompt; @FILE reads it from a file")
    parser.add_argument("--max-tokens", type=int, default=32, metavar="N", help="of an answer (default: %(default)s)")
    parser.add_argument(
        "--concurrency", type=int, default=8, metavar="N", help="prompts at a time (default: %(default)s)"
    )
    parser.add_argument("--results", type=Path, metavar="FILE", help="keep what is measured, and go on from there")
    parser.add_argument(
        "--measure",
        action="append",
        choices=_MEASURES,
        help="what decides; given more than once, all of them (default: judge, if there is one; else f1, and "
        "probability where the engine tells it)",
    )
    parser.add_argument(
        "--margin", type=float, default=0.01, metavar="SHARE", help="what answers may lose (default: %(default)s)"
    )
    parser.add_argument("--dry-run", action="store_true", help="only say what would be asked, and what is predicted")
    parser.add_argument("--json", action="store_true", help="print JSON instead of text")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write every answer with its marks, as JSON lines")


def run(options: argparse.Namespace, told: Callable[[str], None], aside: Callable[[str], None]) -> int:
    """Run the command.

    Args:
        options: its arguments.
        told: prints a text of the result.
        aside: prints a line that is not part of it.

    Returns:
        The exit status.

    Raises:
        InputError: a file, an arm, a judge or a number that cannot be used; the message says which.
        EngineError: the engine failed; what was measured by then is told before.
    """
    from .evaluation.session import EvaluateOptions, Session  # other commands need none of it

    given = {name: value for name, value in vars(options).items() if name != "run"}
    session = Session(EvaluateOptions(**given), told, aside)
    if options.dry_run:
        session.planned()
    else:
        session.measured()
    return 0
