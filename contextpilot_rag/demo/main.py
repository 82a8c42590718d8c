"""The demo from end to end: documents, questions, retrieval, two arms, a table, one example, a report."""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, fields
from pathlib import Path

from rich import box
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from ..errors import SettingsError
from ..pilot import ContextPilot
from ..retrieval.bm25 import BM25Retriever
from ..retrieval.faiss import FaissRetriever
from ..retrieval.fusion import fuse
from ..retrieval.lsa import LsaEmbedding
from ..settings import Order
from ..types import Block, Context
from .corpus import BLOCK_TOKENS, folder, python_documentation
from .engines import FAKE_PREFILL, DemoEngine, choose_engine
from .questions import packaged_questions, questions_from
from .report import report_files, save_report
from .run import Arm, Session, run_in_turns, warm_up

DEFAULT_LIMIT = 40
FEW = 20
_FUSED = 3  # a fused retriever looks at this many times top_k of each ranking


@dataclass(frozen=True, slots=True)
class DemoOptions:
    """How to run the demo; the command line's options by name."""

    docs: Path | None = None
    questions: Path | None = None
    block_tokens: int = BLOCK_TOKENS
    top_k: int = 10
    retriever: str = "hybrid"
    endpoint: str | None = None
    model: str | None = None
    engine: str = "auto"
    order: Order = "balanced"
    limit: int | None = None
    max_tokens: int = 16
    out: Path = Path("demo-report")


def run_demo(options: DemoOptions, console: Console) -> tuple[Arm, Arm]:
    """Run the demo and show it.

    Args:
        options: how.
        console: where to.

    Returns:
        The arm as retrieved and the arm through ContextPilot.

    Raises:
        ContextPilotError: documents, questions, settings or the engine cannot be used; the message says why.
    """
    _check(options)
    pilots = ContextPilot("embedded", order="retrieved"), ContextPilot("embedded", order=options.order)
    questions = packaged_questions() if options.questions is None else questions_from(options.questions)
    engine, why = choose_engine(options.endpoint, options.model, options.engine)
    blocks = (
        python_documentation(options.block_tokens)
        if options.docs is None
        else folder(options.docs, options.block_tokens)
    )
    say = _Speaker(console, "" if engine.real else "[FakeEngine, no model: times are invented] ")
    if why is not None:
        say(f"The built-in FakeEngine stands in for a real engine: {why}.")
    say(f"Engine: {engine.name}.")
    say(f"Documents: {len(blocks):,} blocks from {options.docs or 'the documentation that Python carries'}.")
    retrieve = retriever(options.retriever, blocks)
    limit = options.limit or (DEFAULT_LIMIT if engine.seconds else len(questions))
    say(f"Retrieval: {options.retriever}, the {options.top_k} best blocks for each question.")
    contexts = [retrieve(question, options.top_k) for question in questions[:limit]]
    arms = _measure(engine, contexts, pilots, options, say)

    asked = len(arms[0].sent)
    slow = " (as many as this machine answers in a few minutes; --limit N asks more or fewer)"
    say(
        f"Asked the first {asked} of {len(questions)} questions{slow if options.limit is None else ''}."
        if asked < len(questions)
        else f"Asked all {asked} questions."
    )
    if asked < FEW:
        say(f"Fewer than {FEW} questions show little: the cache has to fill first.")
    say.show(_table(arms))
    say(_verdict(arms))
    _show_example(arms[1], say)
    setup = {field.name: getattr(options, field.name) for field in fields(options)}
    setup["settings"] = str(pilots[1].settings)
    if not engine.real:
        setup["fake_prefill_tokens_per_second"] = FAKE_PREFILL
    files = save_report(
        options.out, arms, engine.name if engine.real else f"{engine.name} (no model, times invented)", setup
    )
    say(f"Report: {files[0]} (every request), {files[1]} (plot).")
    return arms


def _check(options: DemoOptions) -> None:
    """Refuse what cannot work before anything slow begins."""
    for name in ("limit", "top_k", "block_tokens", "max_tokens"):
        value = getattr(options, name)
        if value is not None and value < 1:
            raise SettingsError(f"{name.replace('_', '-')} must be at least 1, not {value}")
    if options.endpoint is None and options.model is not None:
        raise SettingsError("model names an endpoint's model; give the endpoint too")
    folder_out = options.out.absolute().parent
    if not options.out.name or not (folder_out.is_dir() and os.access(folder_out, os.W_OK)):
        raise SettingsError(
            f"the report cannot be written to {str(options.out)!r}: no such folder, or no right to write"
        )
    for file in report_files(options.out):
        if file.exists() and not file.is_file():
            raise SettingsError(f"the report cannot be written: {str(file)!r} is in the way")


def retriever(kind: str, blocks: Sequence[Block]) -> Callable[[str, int], Context]:
    """A function from (question, k) to a context.

    Args:
        kind: "bm25", "faiss" (TF-IDF vectors reduced by a truncated SVD) or "hybrid" (both, by reciprocal rank fusion).
        blocks: the corpus.

    Raises:
        SettingsError: another kind.
    """
    if kind == "bm25":
        return BM25Retriever(blocks).retrieve
    if kind == "faiss":
        return FaissRetriever(blocks, LsaEmbedding([block.text for block in blocks])).retrieve
    if kind == "hybrid":
        parts = retriever("bm25", blocks), retriever("faiss", blocks)
        return lambda question, k: fuse([part(question, _FUSED * k) for part in parts], k)
    raise SettingsError(f"retriever must be bm25, faiss or hybrid, not {kind!r}")


def _measure(
    engine: DemoEngine,
    contexts: Sequence[Context],
    pilots: tuple[ContextPilot, ContextPilot],
    options: DemoOptions,
    say: _Speaker,
) -> tuple[Arm, Arm]:
    """Both arms over the same questions: in turns where two engines can run, else one after the other."""
    columns = (
        TextColumn(say.prefix + "{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    names = ("as retrieved", "ContextPilot")
    with Progress(*columns, console=say.console) as progress, ExitStack() as stack:
        tasks = {name: progress.add_task(name, total=len(contexts)) for name in names}

        def opened(name: str, pilot: ContextPilot, until: ExitStack) -> Session:
            endpoint, system = until.enter_context(engine.fresh())
            warm_up(endpoint)
            return Session(name, endpoint, pilot, system, options.max_tokens)

        def advance(session: Session) -> None:
            progress.advance(tasks[session.name])

        if engine.seconds is not None:
            sessions = opened(names[0], pilots[0], stack), opened(names[1], pilots[1], stack)
            seconds = engine.seconds if options.limit is None else math.inf
            run_in_turns(sessions, contexts, seconds, advance)
            for session in sessions:
                progress.update(tasks[session.name], total=len(session.arm.sent))
            return sessions[0].arm, sessions[1].arm

        arms = []
        for name, pilot in zip(names, pilots, strict=True):
            with ExitStack() as until:
                session = opened(name, pilot, until)
                for context in contexts:
                    session.ask(context)
                    advance(session)
            arms.append(session.arm)
        return arms[0], arms[1]


def _table(arms: Sequence[Arm]) -> Table:
    table = Table(box=box.SIMPLE_HEAD)
    table.add_column("", no_wrap=True)
    for heading in ("requests", "prompt tokens", "cached tokens", "TTFT mean", "p50", "p95"):
        table.add_column(heading, justify="right")
    for arm in arms:
        cached, prompt = arm.cached_tokens, arm.prompt_tokens
        share = "" if cached is None or not prompt else f" ({cached / prompt:.1%})"
        table.add_row(
            arm.name,
            str(len(arm.sent)),
            f"{prompt:,}",
            "not reported" if cached is None else f"{cached:,}{share}",
            *(_time(seconds) for seconds in (arm.mean_ttft, arm.ttft(50), arm.ttft(95))),
        )
    return table


def _time(seconds: float) -> str:
    return f"{seconds:.2f} s" if seconds >= 1 else f"{1000 * seconds:.0f} ms"


def _verdict(arms: tuple[Arm, Arm]) -> str:
    before, after = arms
    change = after.mean_ttft / before.mean_ttft - 1
    time = f"mean TTFT {abs(change):.0%} {'shorter' if change < 0 else 'longer'}"
    if not any(one.alignment.changed for one in after.sent):
        time = "both arms sent the same, so their times differ by chance alone"
    if before.cached_tokens is None or after.cached_tokens is None:
        switch = "vLLM: --enable-prompt-tokens-details, SGLang: --enable-cache-report"
        return f"This engine reports no cached tokens ({switch}); {time}."
    if not before.cached_tokens:
        return f"Cached tokens: {after.cached_tokens:,}, where the retriever's order had none; {time}."
    ratio = after.cached_tokens / before.cached_tokens
    return f"Cached tokens: {ratio:.1f} times those of the retriever's order; {time}."


def _show_example(arm: Arm, say: _Speaker) -> None:
    """The context that gained most, before and after."""
    changed = [one for one in arm.sent if one.alignment.changed]
    if not changed:
        rules = Counter(one.alignment.rule.value for one in arm.sent)
        counted = ", ".join(f"{count} {rule}" for rule, count in rules.most_common())
        say(f"No context was reordered ({counted}).")
        return
    best = max(changed, key=lambda one: one.alignment.predicted_cached_tokens)
    alignment = best.alignment
    say(f"One question: {alignment.question}")
    table = Table(box=box.SIMPLE_HEAD)
    table.add_column("as retrieved, best first")
    table.add_column("as sent")
    for place, (before, after) in enumerate(zip(alignment.retrieved, alignment.blocks, strict=True)):
        mark = "cached" if place < alignment.cached_blocks else ""
        table.add_row(Text(str(before.id)), Text(f"[{place + 1}] {after.id}  {mark}".rstrip()))
    say.show(table)
    say(f"Why: {alignment.reason}.")
    if alignment.order_hint is not None:
        say(f"Order hint, after the last block: {alignment.order_hint}")


class _Speaker:
    """Says things on a console, each line with a prefix (which is how a stand-in engine shows on every line)."""

    def __init__(self, console: Console, prefix: str) -> None:
        self.console = console
        self.prefix = prefix

    def __call__(self, line: str) -> None:
        self.console.print(Text(self.prefix + line), soft_wrap=True)

    def show(self, table: Table) -> None:
        if self.prefix:
            with self.console.capture() as capture:
                self.console.print(table)
            for line in capture.get().splitlines():
                self(line)
        else:
            self.console.print(table)
