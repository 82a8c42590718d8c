"""The audit log: one line an act, who and what, and nothing that is secret; nor is it anywhere else."""

from __future__ import annotations

import json
import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextpilot_rag.service.audit import audit
from contextpilot_rag.service.auth import Caller

ACME = Caller("acme", key_id="k1")


@pytest.fixture
def lines(caplog):
    caplog.set_level(logging.INFO, "contextpilot_rag.audit")
    return caplog


def test_an_act_is_one_line_with_its_fields(lines):
    audit("namespace forgotten", ACME, namespace="::handbook", forgotten=2, result="done")
    (record,) = lines.records
    assert (record.name, record.levelno) == ("contextpilot_rag.audit", logging.INFO)
    assert (
        record.getMessage()
        == 'namespace forgotten: tenant="acme" key="k1" namespace="::handbook" forgotten=2 result="done"'
    )
    assert record.audit == {
        "act": "namespace forgotten",
        "tenant": "acme",
        "key": "k1",
        "namespace": "::handbook",
        "forgotten": 2,
        "result": "done",
    }


def test_an_act_of_the_service_itself_names_nobody(lines):
    audit("service started", None)
    assert lines.records[0].getMessage() == "service started: -"


@given(st.text())
def test_nobody_writes_a_line_of_their_own(text):
    record = made("namespace forgotten", Caller(text, key_id="k1"), namespace=text)
    shown = record.getMessage()
    assert shown.isascii()
    assert shown.isprintable()
    assert shown.count(" key=") >= 1
    decoder = json.JSONDecoder()
    tenant, end = decoder.raw_decode(shown, shown.index("tenant=") + len("tenant="))
    assert tenant == text
    assert shown[end:].startswith(' key="k1" namespace=')


def test_values_are_plain_and_bounded():
    record = made("x", None, long="a" * 1_000_000, many=[1] * 1_000_000, some={"b", "a"}, other=object(), nothing=None)
    assert record.audit["some"] == ["a", "b"]
    assert record.audit["many"] == [1] * 200 + ["and 999800 more"]
    assert record.audit["other"] == "<object>"
    assert record.audit["nothing"] is None
    assert len(record.getMessage()) < 20_000
    json.dumps(record.audit)


def made(act, caller, **what):
    """The record that an act makes."""
    records = []
    handler = logging.Handler()
    handler.emit = records.append
    logger = logging.getLogger("contextpilot_rag.audit")
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        audit(act, caller, **what)
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
    (record,) = records
    return record
