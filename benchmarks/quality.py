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
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from quality_engine import started
from quality_frontier import draw
from quality_report import judged, summarise, write
from quality_sets import SETS, Shares, questions

from contextpilot_rag.engines.engine import Engine
from contextpilot_rag.engines.http import EngineHttp
from contextpilot_rag.evaluation.arms import BASE, SINGLE, TALKS
from contextpilot_rag.evaluation.asking import Asker, Scoring, Terms, salted_by, scoring_of
from contextpilot_rag.evaluation.kept import Kept
from contextpilot_rag.evaluation.marking import marks
from contextpilot_rag.evaluation.run import Cell, ask_all, cells
from contextpilot_rag.evaluation.words import Arm, Case

HERE = Path(__file__).resolve().parent
REPORT, GUIDE = HERE / "quality.md", HERE.parent / "docs" / "quality.md"
SECONDS = 600.0
FEWEST = 20  # questions; arms are shown with a multiple of it
ABOUT = "vLLM on the CPU served SmolLM2-135M-Instruct in bfloat16."
SCORED = {
    "forced": "the engine's log-probability of each of its first 8 tokens, each given those before (teacher forcing)",
    "prompt": "the engine's log-probabilities of a prompt that ends with its first 8 tokens (teacher forcing)",
    "none": "nothing: this engine gives no log-probabilities",
}


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
    parser.add_argument("--report", type=Path, default=REPORT)
    parser.add_argument("--about", default=ABOUT, help="the engine and its model, in a sentence, for the report")
    parser.add_argument("--report-only", action="store_true", help="ask nothing, report what was measured so far")
    parser.add_argument("--no-report", action="store_true", help="ask only")
    options = parser.parse_args()
    options.results.parent.mkdir(parents=True, exist_ok=True)
    kept = Kept(options.results)
    scoring: Scoring = "forced"
    if not options.report_only:
        with ExitStack() as stack:
            url = options.endpoint or stack.enter_context(started(options.model, 18124))
            http = EngineHttp(Engine(url), SECONDS, connections=options.concurrency)
            stack.callback(http.close)
            scoring = scoring_of(http, options.model)
            _ask(http, kept, options, scoring)
    if not options.no_report:
        _report(kept, options, scoring)


def _ask(http: EngineHttp, kept: Kept, options: argparse.Namespace, scoring: Scoring) -> None:
    salt = "evaluate" if salted_by(http, options.model) else None
    print(f"right answers are scored: {scoring}; the cache is told apart: {'yes' if salt else 'no'}", flush=True)
    for count in range(options.step, options.questions + options.step, options.step):
        for name in options.sets:
            wanted = asked(name, min(count, options.questions), terms_of(options.model, name, scoring), options.arms)
            asker = Asker(http, terms_of(options.model, name, scoring), retries=5)
            ask_all(
                wanted, asker, kept, salt=salt, concurrency=options.concurrency, progress=_Progress(f"{name}, {count}")
            )


def _report(kept: Kept, options: argparse.Namespace, scoring: Scoring) -> None:
    """Of all arms of which something is known; each with the questions that it has been asked."""
    found, shares = {}, Shares(options.results.with_suffix(".shares.json"))
    predicted = {}
    for name in options.sets:
        wanted = asked(name, options.questions, terms_of(options.model, name, scoring))
        cases = _whole(name, wanted, kept, options.questions)
        if cases:
            found[name] = cases
            predicted[name] = shares.of(name, questions(name, options.questions), list(table(name).values()))
    verdicts = judged(found, predicted, BASE)
    write(options.report, verdicts, found, options.about, SCORED[scoring])
    if options.report == REPORT:
        summarise(GUIDE, verdicts)
    draw(options.report.with_suffix(".svg"), verdicts)
    print(f"wrote {options.report}")


def _whole(name: str, wanted: Sequence[Cell], kept: Kept, most: int) -> list[Case]:
    """What is known of each arm, of the first questions drawn, as many as it has been asked all of.

    Questions that happen to be known because another arm has the same prompt would say that nothing changes.
    """
    drawn = {
        count: {one.id for one in questions(name, count) if one.asked} for count in range(FEWEST, most + 1, FEWEST)
    }
    cases = []
    for arm in dict.fromkeys(cell.arm for cell in wanted):
        row = {cell.question.id: (cell, kept.get(cell.key)) for cell in wanted if cell.arm is arm}
        for ids in reversed(drawn.values()):
            known = [(cell, outcome) for cell, outcome in row.values() if cell.question.id in ids and outcome]
            if len(known) == len(ids):
                cases += [Case(one.question, arm, one.prompted, said, marks(one.question, said)) for one, said in known]
                break
    return cases


def table(name: str) -> Mapping[str, Arm]:
    """The arms of a set."""
    return SINGLE if SETS[name].turns is None else TALKS


def terms_of(model: str, name: str, scoring: Scoring) -> Terms:
    """What a set's answers depend on."""
    return Terms(model, SETS[name].max_tokens, scoring, most_scored=8)


def asked(name: str, count: int, terms: Terms, arms: Sequence[str] | None = None) -> list[Cell]:
    """A set's prompts in all its arms."""
    chosen = [arm for place, arm in enumerate(table(name).values()) if arms is None or place == 0 or arm.name in arms]
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
