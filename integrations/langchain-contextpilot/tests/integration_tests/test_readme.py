"""The README: what is no doctest there is run here, and its figures and names are right."""

from __future__ import annotations

import platform
import re
from pathlib import Path

import pytest
from contextpilot_rag.settings import RequestOptions
from langchain_pipelines import measured, table
from langchain_stage import bm25

from langchain_contextpilot import ContextPilotCallbackHandler, ContextPilotMiddleware, ContextPilotRetriever

README = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")


def test_the_one_line_to_adopt_it():
    blocks = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    assert len(blocks) == 1
    names = {"ContextPilotRetriever": ContextPilotRetriever, "retriever": bm25()}
    exec(blocks[0], names)
    assert len(names["retriever"].invoke("What is a slice?")) == 8


def test_at_least_twice_as_much_is_cached_over_ten_questions():
    """As the endpoint reports it. With tools the same prompt is sent twice a turn, also without us: there it is what
    has to be computed that counts.
    """
    for name, cached, computed in measured():
        assert computed[1] * 1.5 <= computed[0]
        assert cached[1] >= 2 * cached[0] > 0 or (name.endswith("tool") and computed[1] * 2 <= computed[0])


def test_the_table_is_what_is_measured():
    """`python scripts/measure.py` writes it; another Python carries other documents."""
    if f"Python {platform.python_version()}:" not in README:
        pytest.skip("the table is of another Python's documentation")
    assert table() in README


def test_every_setting_has_its_row():
    documented = set(re.findall(r"`(\w+)`", README[README.index("## Settings") :]))
    fields = set(ContextPilotRetriever.model_fields) - {"name", "tags", "metadata"}
    assert fields | set(RequestOptions.__annotations__) | {"tools", "retriever", "remember"} <= documented
    assert ContextPilotMiddleware.__init__.__kwdefaults__.keys() <= documented
    assert ContextPilotCallbackHandler.__init__.__kwdefaults__.keys() <= documented
