"""What the page on metrics names is there, and all alerts are on it."""

from __future__ import annotations

import re

import pytest
import yaml

from .shell import ROOT

PAGE = (ROOT / "docs" / "operating" / "metrics.md").read_text(encoding="utf-8")
REFERENCE = (ROOT / "docs" / "reference" / "metrics.md").read_text(encoding="utf-8")
ALERTS = yaml.safe_load((ROOT / "deploy" / "alerts.yml").read_text(encoding="utf-8"))["groups"][0]["rules"]


def test_every_metric_is_one_that_is_shown():
    """Also where only a name's end is written, behind a whole one: `_index_tokens`, of the proxy `_streams`."""
    shown = set(re.findall(r"`(contextpilot_[a-z_]+)`", REFERENCE))
    ends = {name.removeprefix(prefix) for name in shown for prefix in ("contextpilot", "contextpilot_proxy")}
    named = set(re.findall(r"\bcontextpilot_[a-z_]+", PAGE)) - {"contextpilot_rag"}
    assert len(named) > 25
    assert not {name for name in named if name not in shown}
    assert not set(re.findall(r"`(_[a-z_]+)(?:\{[a-z,]+\})?`", PAGE)) - ends


@pytest.mark.parametrize("alert", [rule["alert"] for rule in ALERTS])
def test_every_alert_has_its_row(alert):
    assert f"| `{alert}` |" in PAGE
