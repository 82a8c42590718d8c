"""docs/security.md and SECURITY.md name tests and limits that are there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from contextpilot_rag.proxy.held import MOST
from contextpilot_rag.proxy.settings import ProxySettings
from contextpilot_rag.service.settings import ServiceSettings

ROOT = Path(__file__).resolve().parents[1]
MODEL = ROOT / "docs" / "security.md"
TEXT = MODEL.read_text(encoding="utf-8")


def test_every_test_that_is_named_is_there():
    named = set(re.findall(r"`((?:\w+/)*test_\w+\.py)`", TEXT))
    assert len(named) > 30
    assert {name for name in named if not (ROOT / "tests" / name).is_file()} == set()


def test_every_threat_names_a_test():
    rows = re.findall(r"^\|(.*)\|$", TEXT.partition("## Threats")[2].partition("\n## ")[0], re.MULTILINE)[2:]
    assert len(rows) > 15
    assert [row for row in rows if "test_" not in row.split("|")[3]] == []


def bound(start):
    """A row's figures for the service and for the proxy."""
    found = re.search(rf"^\| {re.escape(start)}[^|]*\|([^|]*)\|([^|]*)\|$", TEXT, re.MULTILINE)
    assert found is not None, start
    return found.groups()


def test_the_bounds_are_those_of_the_settings():
    service, proxy = ServiceSettings(), ProxySettings()
    mebibyte = 2**20
    expected = [
        ("bytes of a body", [service.max_body // mebibyte, service.max_plan_body // mebibyte]),
        ("blocks, requests", [service.max_blocks, service.max_batch, service.max_plan]),
        ("connections", [service.max_connections]),
        ("seconds for a head", [service.header_seconds, service.body_seconds, service.idle_seconds]),
        (
            "what is remembered",
            [
                service.tenant_blocks,
                service.tenant_namespaces,
                service.tenant_conversations,
                service.tenant_tickets,
                service.tenant_plans,
            ],
        ),
    ]
    for start, values in expected:
        assert numbers(bound(start)[0]) == [int(value) for value in values], start
    assert numbers(bound("connections")[1]) == [proxy.max_connections, proxy.upstream_connections]
    assert numbers(bound("seconds for a head")[1]) == [
        int(value) for value in (proxy.header_seconds, proxy.body_seconds, proxy.idle_seconds)
    ]
    assert numbers(bound("bytes of a body")[1]) == [proxy.max_inspected // mebibyte]
    assert numbers(bound("bodies on their way")[1])[:1] == [MOST // 2**30]
    assert proxy.rate == service.rate == 0
    assert proxy.max_body is None


def numbers(text):
    return [int(number.replace(",", "")) for number in re.findall(r"\d[\d,]*\d|\d", text)]


@pytest.mark.parametrize("name", ["SECURITY.md", "docs/security.md"])
def test_links_lead_somewhere(name):
    page = ROOT / name
    for link in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text(encoding="utf-8")):
        assert link.startswith("http") or (page.parent / link).exists(), link
