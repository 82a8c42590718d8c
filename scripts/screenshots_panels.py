"""A Grafana dashboard's panels without Grafana: their queries answered by Prometheus, drawn by matplotlib."""

from __future__ import annotations

import json
import math
import re
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from tests.ports import free_port

SCRAPE_SECONDS = 5
RATE_INTERVAL = "60s"
WIDTH, COLUMNS, ROW = 14.0, 24, 0.33  # inches of the whole and of a row of Grafana's grid; how many columns it has
INK, FAINT = "#24292e", "#d8dce2"
COLOURS = ("#7eb26d", "#eab839", "#1f78c1", "#ef843c", "#ba43a9", "#6ed0e0", "#bf1b00", "#614d93", "#967302", "#2f575e")

Series = tuple[str, list[tuple[float, float]]]


@contextmanager
def prometheus(folder: Path, targets: Mapping[str, str]) -> Iterator[str]:
    """A Prometheus that scrapes services; its address.

    Args:
        folder: for its configuration and what it keeps.
        targets: addresses of services by the name that is to stand in the label ``instance``.
    """
    jobs = [
        {"targets": [urllib.parse.urlsplit(address).netloc], "labels": {"instance": name}}
        for name, address in targets.items()
    ]
    config = folder / "prometheus.json"
    scraping = {"job_name": "contextpilot-rag", "scrape_interval": f"{SCRAPE_SECONDS}s", "static_configs": jobs}
    config.write_text(json.dumps({"scrape_configs": [scraping]}), encoding="utf-8")  # JSON is YAML, too
    listening = f"127.0.0.1:{free_port()}"
    options = [f"--config.file={config}", f"--storage.tsdb.path={folder / 'tsdb'}", "--log.level=error"]
    process = subprocess.Popen(["prometheus", *options, f"--web.listen-address={listening}"])  # noqa: S607
    try:
        _until_ready(f"http://{listening}/-/ready", process)
        yield f"http://{listening}"
    finally:
        process.terminate()
        process.wait()


def _until_ready(url: str, process: subprocess.Popen[bytes]) -> None:
    ends = time.monotonic() + 60
    while time.monotonic() < ends and process.poll() is None:
        try:
            urllib.request.urlopen(url).close()  # noqa: S310  our own
        except urllib.error.URLError:
            time.sleep(0.2)
        else:
            return
    raise SystemExit("Prometheus did not start")


def query(server: str, expression: str, legend: str, start: float, end: float) -> list[Series]:
    """What Grafana would ask for a panel's target, and how it would name the answers.

    Args:
        server: Prometheus' address.
        expression: with Grafana's variables.
        legend: with labels in double braces.
        start: seconds since the epoch.
        end: likewise.
    """
    plain = expression.replace("$instance", ".*").replace("$__rate_interval", RATE_INTERVAL)
    asked = urllib.parse.urlencode({"query": plain, "start": start, "end": end, "step": SCRAPE_SECONDS})
    with urllib.request.urlopen(f"{server}/api/v1/query_range?{asked}") as response:  # noqa: S310  our own
        found = json.load(response)["data"]["result"]
    return [
        (
            re.sub(r"\{\{(\w+)\}\}", lambda label, metric=one["metric"]: metric.get(label[1], ""), legend)
            or one["metric"].get("instance", ""),
            [(at - start, float(value)) for at, value in one["values"]],
        )
        for one in found
    ]


def draw(board: dict[str, Any], answers: Callable[[str, str], list[Series]], seconds: float, title: str) -> Figure:
    """All panels in their places.

    Args:
        board: Grafana's JSON.
        answers: the series for an expression and a legend.
        seconds: how long they are.
        title: stands above.
    """
    rows = max(panel["gridPos"]["y"] + panel["gridPos"]["h"] for panel in board["panels"])
    height = rows * ROW + 0.6
    figure = Figure(figsize=(WIDTH, height), facecolor="#f4f5f8")
    figure.text(0.008, 1 - 0.3 / height, title, color=INK, fontsize=9, va="center")
    for panel in board["panels"]:
        place = panel["gridPos"]
        left, width = place["x"] / COLUMNS, place["w"] / COLUMNS
        bottom, tall = 1 - (0.6 + (place["y"] + place["h"]) * ROW) / height, place["h"] * ROW / height
        frame = figure.add_axes((left + 0.003, bottom + 0.06 / height, width - 0.006, tall - 0.12 / height))
        frame.set(xticks=[], yticks=[], facecolor="white")
        for side in frame.spines.values():
            side.set_color(FAINT)
        frame.set_title(panel["title"], fontsize=8, fontweight="bold", color=INK, loc="left", x=0.015, y=1, pad=-11)
        series = [
            one for target in panel["targets"] for one in answers(target["expr"], target["legendFormat"]) if one[1]
        ]
        unit = panel["fieldConfig"]["defaults"].get("unit", "short")
        if panel["type"] == "stat":
            frame.set_xlim(0, seconds)
            _stat(frame, series, unit)
            continue
        inner = figure.add_axes(
            (left + 0.045, bottom + 0.62 / height, width - 0.065, tall - 1.02 / height), facecolor="white"
        )
        inner.set_xlim(0, seconds / 60)
        _lines(inner, series, unit, panel["fieldConfig"]["defaults"].get("max"))
    return figure


def _stat(frame: Axes, series: Sequence[Series], unit: str) -> None:
    """One large figure, and its course behind it."""
    points = [(at, value) for at, value in series[0][1] if math.isfinite(value)] if series else []
    if points:
        times, values = zip(*points, strict=True)
        frame.fill_between(times, values, color=COLOURS[0], alpha=0.25, linewidth=0)
        frame.set_ylim(0, 2.6 * max(values) or 1)
    text = shown(points[-1][1], unit) if points else "no data"
    frame.text(0.5, 0.52, text, transform=frame.transAxes, ha="center", va="center", fontsize=20, color="#37872d")


def _lines(axes: Axes, series: Sequence[Series], unit: str, top: float | None) -> None:
    for number, (name, points) in enumerate(series):
        times, values = zip(*points, strict=True)
        axes.plot([at / 60 for at in times], values, color=COLOURS[number % len(COLOURS)], linewidth=1.1, label=name)
    axes.set_ylim(bottom=0, top=top)
    axes.yaxis.set_major_locator(MaxNLocator(5))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: shown(value, unit)))
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.0f} min"))
    axes.tick_params(labelsize=6.5, colors=INK, length=0)
    axes.grid(color=FAINT, linewidth=0.5)
    for side in axes.spines.values():
        side.set_visible(False)
    if series:
        columns = min(len(series), 4 if axes.get_position().width > 0.3 else 3)
        axes.legend(
            loc="upper left", bbox_to_anchor=(-0.08, -0.1), ncols=columns, fontsize=6.5, frameon=False, handlelength=1,
            columnspacing=1, labelspacing=0.2, borderpad=0.2,
        )  # fmt: skip
    else:
        axes.text(0.5, 0.5, "no data", transform=axes.transAxes, ha="center", va="center", fontsize=8, color=INK)


def shown(value: float, unit: str) -> str:
    """A figure as Grafana writes it, about.

    >>> shown(0.2345, "percentunit"), shown(12345, "short"), shown(0.0021, "s"), shown(4.25, "reqps")
    ('23.4%', '12.3 K', '2.1 ms', '4.25 req/s')
    """
    if unit == "percentunit":
        return f"{value:.1%}"
    if unit == "s":
        return f"{1000 * value:.3g} ms" if abs(value) < 1 else f"{value:.3g} s"
    for large, letter in ((1e9, " G"), (1e6, " M"), (1e3, " K")):
        if abs(value) >= large:
            return f"{value / large:.3g}{letter}"
    return f"{value:.3g}" + (" req/s" if unit == "reqps" else "")
