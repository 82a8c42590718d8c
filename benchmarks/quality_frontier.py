"""The frontier of cache hits against answers, as a picture: one panel a set."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from contextpilot_rag.evaluation.verdict import Verdict

DEFAULT = "balanced"
COLOURS = {"safe": "tab:green", "open": "tab:gray", "worse": "tab:red"}


def draw(path: Path, verdicts: Mapping[str, Verdict], measure: str = "probability") -> None:
    """Draw hits (across) against what answers gain (up), with intervals; a star is the default."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    shown = {name: one for name, one in verdicts.items() if any(arm.share for arm in one.arms)}
    names = dict.fromkeys(arm.arm.name for one in shown.values() for arm in one.arms)
    numbers = {name: number for number, name in enumerate(names, 1)}
    figure, panels = plt.subplots(1, len(shown), figsize=(5.2 * len(shown), 5.4), squeeze=False)
    for panel, (name, of_set) in zip(panels[0], shown.items(), strict=True):
        panel.axhline(0, color="black", linewidth=0.6)
        panel.axhline(-100 * of_set.margin, color="black", linewidth=0.6, linestyle=":")
        for arm in of_set.arms:
            difference = arm.differences.get(measure)
            if arm.share is None or (difference is None and arm.arm.name != of_set.base):
                continue
            mean, low, high = (difference.mean, difference.low, difference.high) if difference else (0.0, 0.0, 0.0)
            across, colour = 100 * arm.share.ratio, COLOURS[arm.said]
            panel.vlines(across, 100 * low, 100 * high, color=colour, linewidth=0.8, alpha=0.5)
            panel.plot(across, 100 * mean, "*" if arm.arm.name == DEFAULT else ".", color=colour, markersize=9)
            at = (across, 100 * mean)
            panel.annotate(numbers[arm.arm.name], at, fontsize=7, xytext=(3, 3), textcoords="offset points")
        panel.set_title(name)
        panel.set_xlabel("hits, % of the prompts' tokens")
    said = "\n".join(f"{number:2}  {name}" for name, number in numbers.items())
    panels[0][-1].text(1.04, 1.0, said, transform=panels[0][-1].transAxes, fontsize=8, va="top")
    panels[0][0].set_ylabel(f"{measure} of the right answer, points against the retriever's order")
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None}, bbox_inches="tight")
    plt.close(figure)
