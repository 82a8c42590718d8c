"""What alignment saves on a real engine: vLLM on the CPU, time to the first token and cached tokens.

    make test-engines                                        # makes .venv-engines, once
    .venv-engines/bin/python benchmarks/engines.py            # everything; goes on where it was interrupted
    .venv-engines/bin/python benchmarks/engines.py --questions 20 --rounds 1 --models random --results /tmp/try.jsonl

Writes benchmarks/engines.md. Needs the recorded questions in ../shared/traces, and a machine that does nothing else.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import engines_models
import openai
from engines_report import write

from contextpilot_rag import ContextPilot
from contextpilot_rag.index.window import Window
from contextpilot_rag.prompt.prompt import AlignedPrompt
from tests.live.traffic import SYSTEM, Question, recorded
from tests.live.under_test import BLOCK
from tests.live.vllm_engine import VllmEngine

HERE = Path(__file__).resolve().parent
TOP = 10
CACHES = {"small": 4, "large": 50}  # prompts
WINDOW = 16
WAIT = 30.0


@dataclass(frozen=True, slots=True)
class Arm:
    """A way of ordering.

    Args:
        name: in the report.
        order: of the pilot; "retrieved" leaves all as it was.
        window: so many requests wait, and the one with the longest cached prefix goes next.
    """

    name: str
    order: str
    window: int = 1


ARMS = (
    Arm("as retrieved", "retrieved"),
    Arm("aligned, balanced", "balanced"),
    Arm("aligned, throughput", "throughput"),
    Arm(f"aligned, balanced, window of {WINDOW}", "balanced", WINDOW),
)


@dataclass(frozen=True, slots=True)
class Run:
    """One arm's requests, in the order in which they were sent.

    Args:
        model: which.
        cache: a name in `CACHES`.
        capacity: KV blocks.
        arm: its name.
        round: from 0.
        questions: how many.
        ttft: milliseconds from sending to the first token, of each request.
        tokens: of each prompt.
        cached: tokens that the engine reported.
        expected: that the pilot had expected; -1: it did not know.
        aligned: milliseconds that the pilot took for each.
    """

    model: str
    cache: str
    capacity: int
    arm: str
    round: int
    questions: int
    ttft: list[float]
    tokens: list[int]
    cached: list[int]
    expected: list[int]
    aligned: list[float]

    @property
    def name(self) -> tuple[str, str, str, int, int]:
        """What makes it the same run."""
        return self.model, self.cache, self.arm, self.round, self.questions


def main() -> None:
    """Run what is missing, then write the report."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--questions", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=3, help="of the random model; the other one has a third of them")
    parser.add_argument("--models", nargs="+", default=["random", "smollm2"], choices=["random", "smollm2"])
    parser.add_argument("--caches", nargs="+", default=list(CACHES), choices=list(CACHES))
    parser.add_argument("--results", type=Path, default=HERE.parent / "build" / "engines.jsonl")
    parser.add_argument("--report", type=Path, default=None, help="default: benchmarks/engines.md, for a full run")
    parser.add_argument("--report-only", action="store_true", help="run nothing, report what was measured so far")
    options = parser.parse_args()
    options.results.parent.mkdir(parents=True, exist_ok=True)
    questions = recorded(options.questions, TOP)
    with tempfile.TemporaryDirectory() as folder:
        for model in [] if options.report_only else options.models:
            rounds = options.rounds if model == "random" else max(1, options.rounds // 3)
            for cache in options.caches:
                missing = [
                    (round_, arm)
                    for round_ in range(rounds)
                    for arm in rotated(ARMS, round_)
                    if (model, cache, arm.name, round_, len(questions)) not in done(options.results)
                ]
                if missing:
                    run_all(Path(folder), model, cache, missing, questions, options.results)
    runs = [run for run in read(options.results) if run.questions == len(questions)]
    if not runs:
        sys.exit(f"{options.results} has no runs with so many questions")
    report = options.report or (HERE / "engines.md" if options.questions >= 200 else options.results.with_suffix(".md"))
    write(report, runs, [arm.name for arm in ARMS], CACHES)
    print(f"wrote {report}")


def rotated(arms: Sequence[Arm], by: int) -> Sequence[Arm]:
    """Another one begins in each round, so that no arm has the machine at its best, or worst, each time."""
    by %= len(arms)
    return [*arms[by:], *arms[:by]]


def run_all(
    folder: Path,
    model: str,
    cache: str,
    missing: Iterable[tuple[int, Arm]],
    questions: Sequence[Question],
    results: Path,
) -> None:
    """Start an engine and run arms on it; each is written when it is through."""
    at = engines_models.made(model, folder)
    tokens = engines_models.prompt_tokens(at, [render(question) for question in questions])
    capacity = max(CACHES[cache] * tokens // BLOCK, 2 * max(tokens, 1) // BLOCK)
    engine = VllmEngine(at, capacity, gigabytes=4, dummy=model == "random")
    try:
        engine.start()
        for round_, arm in missing:
            print(f"{model}, {cache} cache ({capacity} KV blocks), round {round_ + 1}: {arm.name} ...", flush=True)
            run = run_arm(engine, model, cache, capacity, arm, round_, questions)
            with results.open("a", encoding="utf-8") as file:
                file.write(json.dumps(asdict(run)) + "\n")
            share = sum(run.cached) / sum(run.tokens)
            print(f"  {share:.1%} cached, {sum(run.ttft) / len(run.ttft):.0f} ms on average", flush=True)
    finally:
        engine.close()


def render(question: Question) -> str:
    """A prompt's text, near enough to count its tokens."""
    return "\n\n".join([SYSTEM, *(text for _, text in question.blocks), question.text])


def run_arm(
    engine: VllmEngine, model: str, cache: str, capacity: int, arm: Arm, round_: int, questions: Sequence[Question]
) -> Run:
    """Send all questions, one after another, to an engine whose cache is empty."""
    engine.reset()
    # The first request also tells of the reset, and whatever is slow the first time is slow now.
    engine.chat("Good morning. " * 40, salt=f"warm-{round_}-{time.monotonic_ns()}")
    run = Run(model, cache, capacity, arm.name, round_, len(questions), [], [], [], [], [])
    with (
        ContextPilot(engines=[engine.followed()], order=arm.order) as pilot,
        openai.OpenAI(base_url=engine.base_url, api_key="none", max_retries=0, timeout=600) as client,
    ):
        deadline = time.monotonic() + WAIT
        while next(iter(pilot.engines)).level != "events":
            if time.monotonic() > deadline:
                sys.exit(f"the engine's events do not come: {next(iter(pilot.engines))}")
            time.sleep(0.05)
        for prompt, took in in_turn(pilot, arm, questions):
            ask(client, engine.model, pilot, prompt, run)
            run.aligned.append(1e3 * took)
    return run


def in_turn(pilot: ContextPilot, arm: Arm, questions: Sequence[Question]) -> Iterator[tuple[AlignedPrompt, float]]:
    """The prompts in the order of sending, and the seconds that it took to decide each."""
    window: Window[AlignedPrompt] = Window(arm.window)
    coming = iter(questions)
    while True:
        began = time.perf_counter()
        while not window.full and (question := next(coming, None)) is not None:
            window.add(pilot.prepare(question.blocks, question.text))
        if not len(window):
            return
        prompt = pilot.decide(window.pop(pilot.predict))
        yield prompt, time.perf_counter() - began


def ask(client: openai.OpenAI, model: str, pilot: ContextPilot, prompt: AlignedPrompt, run: Run) -> None:
    """One request."""
    messages = prompt.messages(SYSTEM)
    began, first, last = time.perf_counter(), None, None
    for chunk in client.chat.completions.create(
        model=model,
        messages=messages,
        max_tokens=1,
        temperature=0,
        stream=True,
        stream_options={"include_usage": True},
        extra_body=prompt.extra_body,
    ):
        first = time.perf_counter() if first is None else first
        last = chunk
    usage = pilot.observe(prompt, last)
    if first is None or usage is None or usage.prompt_tokens is None or usage.cached_tokens is None:
        sys.exit("the engine did not report what it had cached")
    run.ttft.append(1e3 * (first - began))
    run.tokens.append(usage.prompt_tokens)
    run.cached.append(usage.cached_tokens)
    run.expected.append(-1 if prompt.expected_cached_tokens is None else prompt.expected_cached_tokens)


def read(results: Path) -> list[Run]:
    """The runs that are through."""
    if not results.exists():
        return []
    return [Run(**json.loads(line)) for line in results.read_text(encoding="utf-8").splitlines()]


def done(results: Path) -> set[tuple[str, str, str, int, int]]:
    """What they are."""
    return {run.name for run in read(results)}


if __name__ == "__main__":
    main()
