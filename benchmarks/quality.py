"""Do answers stay as good? Orders, hints, echoes and de-duplication against the retriever's order, on a real engine.

    make test-engines                                   # makes .venv-engines, once
    python benchmarks/quality.py                        # goes on where it was interrupted; hours on two cores
    python benchmarks/quality.py --endpoint http://HOST:8000 --model NAME     # your engine
    python benchmarks/quality.py --report-only

Writes benchmarks/quality.md. Needs the recorded questions in ../shared/traces.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from quality_engine import started
from quality_sets import SETS, questions

from contextpilot_rag.engines.engine import Engine
from contextpilot_rag.engines.http import EngineHttp
from contextpilot_rag.evaluation.arms import SINGLE, TALKS
from contextpilot_rag.evaluation.asking import Asker, Scoring, Terms, scoring_of
from contextpilot_rag.evaluation.kept import Kept
from contextpilot_rag.evaluation.run import Cell, ask_all, cells

HERE = Path(__file__).resolve().parent
SECONDS = 600.0


def main() -> None:
    """Ask what is missing, then write the report."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--endpoint", help="an engine that runs (default: starts vLLM on the CPU)")
    parser.add_argument("--model", default="smollm2", help="the engine's name for its model (default: %(default)s)")
    parser.add_argument("--sets", nargs="+", default=list(SETS), choices=list(SETS))
    parser.add_argument("--questions", type=int, default=300, help="of each set (default: %(default)s)")
    parser.add_argument("--step", type=int, default=100, help="questions of one set before the next one's turn")
    parser.add_argument("--arms", nargs="+", help="only these, by name, beside the retriever's order")
    parser.add_argument("--concurrency", type=int, default=16)
    parser.add_argument("--results", type=Path, default=HERE.parent / "build" / "quality.jsonl")
    parser.add_argument("--report", type=Path, default=HERE / "quality.md")
    parser.add_argument("--report-only", action="store_true", help="ask nothing, report what was measured so far")
    options = parser.parse_args()
    options.results.parent.mkdir(parents=True, exist_ok=True)
    kept = Kept(options.results)
    if not options.report_only:
        with ExitStack() as stack:
            url = options.endpoint or stack.enter_context(started(options.model, 18124))
            http = EngineHttp(Engine(url), SECONDS, connections=options.concurrency)
            stack.callback(http.close)
            _ask(http, kept, options)


def _ask(http: EngineHttp, kept: Kept, options: argparse.Namespace) -> None:
    scoring = scoring_of(http, options.model)
    print(f"right answers are scored: {scoring}", flush=True)
    for count in range(options.step, options.questions + options.step, options.step):
        for name in options.sets:
            wanted = asked(name, min(count, options.questions), terms_of(options.model, name, scoring), options.arms)
            asker = Asker(http, terms_of(options.model, name, scoring))
            ask_all(wanted, asker, kept, concurrency=options.concurrency, progress=_Progress(f"{name}, {count}"))


def terms_of(model: str, name: str, scoring: Scoring) -> Terms:
    """What a set's answers depend on."""
    return Terms(model, SETS[name].max_tokens, scoring, most_scored=8)


def asked(name: str, count: int, terms: Terms, arms: Sequence[str] | None = None) -> list[Cell]:
    """A set's prompts in all its arms."""
    table = SINGLE if SETS[name].turns is None else TALKS
    chosen = [arm for place, arm in enumerate(table.values()) if arms is None or place == 0 or arm.name in arms]
    return cells(questions(name, count), chosen, str(terms))


class _Progress:
    """Says now and then how far it is."""

    def __init__(self, what: str) -> None:
        self._what, self._began, self._said = what, time.monotonic(), 0.0

    def __call__(self, through: int, total: int) -> None:
        now = time.monotonic()
        if now - self._said > 30 or through == total:
            self._said = now
            print(f"{self._what}: {through} of {total} prompts, {now - self._began:.0f} s", flush=True)


if __name__ == "__main__":
    main()
