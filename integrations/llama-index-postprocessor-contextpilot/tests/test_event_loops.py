"""An index that is a service never keeps the event loop waiting."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest
from contextpilot_rag import ContextPilot, LocalIndex
from li_support import Listed, pick

from llama_index.postprocessor.contextpilot import ContextPilotChatEngine


class Elsewhere:
    """An index that is elsewhere: notes what it was asked for in an event loop, which had to wait meanwhile."""

    def __init__(self, *, fails: bool = False) -> None:
        self.index = LocalIndex()
        self.fails = fails
        self.asked: list[str] = []
        self.on_loop: list[str] = []

    def _note(self, name: str) -> None:
        self.asked.append(name)
        with contextlib.suppress(RuntimeError):
            asyncio.get_running_loop()
            self.on_loop.append(name)
        if self.fails:
            raise OSError("gone")

    def align(self, request: Any) -> Any:
        self._note("align")
        return self.index.align(request)

    def observe(self, alignment: Any, usage: Any) -> None:
        self._note("observe")
        self.index.observe(alignment, usage)

    def cache_salt(self, namespace: Any, otherwise: str | None, *, ask: bool = False) -> str | None:
        if ask:
            self._note("salt")
        return f"salt of {namespace.tenant}"


@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize("send_salt", [False, None])
@pytest.mark.parametrize("streaming", [False, True])
async def test_nothing_waits_for_it(engine, llm, fails, send_salt, streaming):
    index = Elsewhere(fails=fails)
    chat = ContextPilotChatEngine.from_defaults(
        Listed(pick(0, 1), pick(1, 2)), llm=llm, pilot=ContextPilot(index), send_salt=send_salt
    )
    for question in ("What?", "And then?"):
        if streaming:
            response = await chat.astream_chat(question)
            writing = response.awrite_response_to_history_task
            async for _ in response.async_response_gen():
                pass
            await writing
        else:
            await chat.achat(question)
    assert [asked.cache_salt for asked in engine.requests] == [None if send_salt is False else "salt of "] * 2
    assert index.on_loop == []
    # Where the order was asked for in vain, the salt is not asked for; a later turn has no order to ask for.
    salts = 0 if send_salt is False else 1 if fails else 2
    reports = 0 if streaming else 2  # this llm asks for none in streams
    assert sorted(index.asked) == ["align"] + ["observe"] * reports + ["salt"] * salts
    assert chat.failures == fails * len(index.asked)
