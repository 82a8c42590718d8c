"""What must not be seen anywhere: the API key, and cache salts."""

from __future__ import annotations

import asyncio
import logging

import pytest

from contextpilot_rag import ContextPilot, RemoteIndex
from contextpilot_rag.errors import IndexFailed
from tests.remote.service import any_tenant
from tests.remote.stub import always, honestly, never, reply, stub

KEY = "cpk_abc_Secret-Value_0123456789"


def test_neither_keys_nor_salts_are_logged_or_shown(caplog):
    caplog.set_level(logging.DEBUG)
    for name in ("httpcore.connection", "httpcore.http11", "asyncio"):
        caplog.set_level(logging.DEBUG, name)
    shown = []
    with any_tenant() as service, ContextPilot(service.address, api_key=KEY, index_timeout=20) as pilot:
        prompt = pilot.align(["one", "two"], namespace="acme")
        assert prompt.salt
        asyncio.run(pilot.index.aalign(prompt.request))
        shown += [repr(pilot.index), repr(pilot.settings), repr(prompt), str(vars(pilot).keys())]
    answers = [never, always(b"nonsense", stays=False), always(reply(KEY.encode(), "401 Unauthorized"))]
    for answer in answers:
        with stub(answer) as service, RemoteIndex(service.address, api_key=KEY, timeout=0.05) as index:
            try:
                index.align(prompt.request)
            except Exception as error:  # noqa: BLE001
                shown += [str(error), repr(error), repr(error.__cause__)]
    text = "\n".join([*shown, *(f"{record.getMessage()} {record.args}" for record in caplog.records)])
    assert "httpcore" in {record.name.split(".")[0] for record in caplog.records}
    assert "Secret-Value" not in text
    assert prompt.salt not in text


def test_the_key_goes_to_the_service_and_nothing_of_the_callers_names_does():
    with stub(honestly) as service, ContextPilot(service.address, api_key=KEY, index_timeout=20) as pilot:
        pilot.align([("private id", "private text"), ("b", "c")], "private question", key="private key")
    asked = service.asked[0]
    assert f"authorization: Bearer {KEY}\r\n" in asked.head
    assert "private" not in asked.head + asked.body.decode()
    assert set(asked.json) <= {"blocks", "ticket", "namespace", "budget"}


def test_a_key_that_the_service_repeats_is_not_shown():
    said = {"title": "No", "status": 401, "detail": "x" * 280 + f"Bearer {KEY} is none of ours"}
    for answer in (reply(said, "401 Unauthorized"), f"HTTP/1.1 2000 {KEY}\r\n\r\n".encode()):
        with (
            stub(always(answer, stays=False)) as service,
            RemoteIndex(service.address, api_key=KEY, timeout=20) as index,
        ):
            with pytest.raises(IndexFailed) as raised:
                index.stats()
            assert KEY[:8] not in str(raised.value)
