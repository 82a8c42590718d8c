"""An index that is a service never keeps the event loop waiting."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest
from contextpilot_rag import ContextPilot, LocalIndex

from mem0_contextpilot import AsyncContextPilotMemory

from .stage import LONG, AsyncNotes, reply


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
async def test_nothing_waits_for_it(fails):
    index = Elsewhere(fails=fails)
    memory = AsyncContextPilotMemory(AsyncNotes(reply(*LONG)), ContextPilot(index))
    answer = {"choices": [{"message": {"role": "assistant", "content": "Yes."}}], "usage": {"prompt_tokens": 9}}
    single = await memory.context("What?", user_id="alice")
    turns = []
    for _ in range(2):
        turns.append(await memory.context("What?", user_id="alice", conversation="c1"))
        turns[-1].answer(answer)
    single.observe(answer)
    bodies = [one.extra_body for one in (single, *turns)] + [await memory.aextra_body(user_id="alice")]
    assert all(body == bodies[0] and body["cache_salt"].startswith("salt of ") for body in bodies)
    await asyncio.get_running_loop().shutdown_default_executor()
    assert index.on_loop == []
    # Where the order was asked for in vain, the salt is not asked for; a later turn has no order to ask for.
    salts = 2 if fails else 4
    assert sorted(index.asked) == ["align"] * 2 + ["observe"] * 3 + ["salt"] * salts
    assert memory.failures == fails * len(index.asked)
