"""scripts/screenshots*.py and what they made: the documentation's pictures."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path

import pytest

pytest.importorskip("matplotlib", reason="the dashboard's picture is drawn by it")

ROOT = Path(__file__).parents[1]
SCRIPTS = ROOT / "scripts"
BOARD = ROOT / "deploy" / "grafana.json"


@pytest.fixture(scope="module")
def panels():
    if not SCRIPTS.exists():
        pytest.skip("the scripts stand in the repository, not in this package")
    sys.path.insert(0, str(SCRIPTS))
    try:
        return importlib.import_module("screenshots_panels")
    finally:
        sys.path.remove(str(SCRIPTS))


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (0.2345, "percentunit", "23.4%"),
        (12345, "short", "12.3 K"),
        (0.0021, "s", "2.1 ms"),
        (75, "s", "75 s"),
        (4.25, "reqps", "4.25 req/s"),
        (0, "none", "0"),
    ],
)
def test_figures_are_written_with_their_unit(panels, value, unit, text):
    assert panels.shown(value, unit) == text


def test_each_panel_of_the_dashboard_is_drawn_in_its_place_with_what_its_queries_answer(panels):
    board = json.loads(BOARD.read_text(encoding="utf-8"))
    board["panels"] = [board["panels"][0], *board["panels"][4:6]]
    asked = []

    def answers(expression, legend):
        asked.append(expression)
        return [] if "reported" in legend else [(legend, [(0.0, 0.25), (60.0, float("nan")), (120.0, 0.75)])]

    figure = panels.draw(board, answers, 120.0, "A title")
    assert asked == [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    texts = [text.get_text() for axes in figure.axes for text in axes.texts]
    assert "75.0%" in texts
    assert "no data" in texts
    named = [axes.get_title(loc="left") for axes in figure.axes]
    assert [title for title in named if title] == [panel["title"] for panel in board["panels"]]
    stat, left, right = (axes.get_position() for axes in figure.axes if axes.get_title(loc="left"))
    assert left.x1 < right.x0
    assert left.y1 == right.y1 < stat.y0


@pytest.mark.parametrize("name", ["dashboard", "status"])
def test_the_pictures_are_small(name):
    picture = (ROOT / "docs" / "images" / f"{name}.png").read_bytes()
    assert picture.startswith(b"\x89PNG")
    assert len(picture) < 200_000
