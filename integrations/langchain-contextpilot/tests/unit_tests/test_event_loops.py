"""An index that is a service never keeps the event loop waiting."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest
from contextpilot_rag import ContextPilot, LocalIndex
from langchain_core.messages import AIMessage, HumanMessage
from langchain_hooks import answer, found, request, returning
from langchain_openai import ChatOpenAI
from langgraph.runtime import Runtime

from langchain_contextpilot import ContextPilotMiddleware


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
@pytest.mark.parametrize("salt", [False, True])
async def test_nothing_waits_for_it(fails, salt):
    index = Elsewhere(fails=fails)
    middleware = ContextPilotMiddleware(returning(found("slices", "steps")), pilot=ContextPilot(index), salt=salt)
    model = ChatOpenAI(model="m", base_url="http://localhost:1", api_key="none")
    bodies: list[Any] = []

    async def handler(asked: Any) -> Any:
        bodies.append(asked.model_settings.get("extra_body"))
        return answer(5)

    messages: list[Any] = []
    for number in range(2):
        state = {"messages": [*messages, HumanMessage("What?", id=f"message-{number}")]}
        update = await middleware.abefore_agent(state, Runtime(), {})
        messages = [*messages, *update["messages"]]
        await middleware.awrap_model_call(request(messages, model), handler)
        messages.append(AIMessage("Yes."))
    assert bodies == [{"cache_salt": "salt of "} if salt else None] * 2
    assert index.on_loop == []
    # Where the order was asked for in vain, the salt is not asked for; a later turn has no order to ask for.
    salts = salt * (1 if fails else 2)
    assert sorted(index.asked) == ["align"] + ["observe"] * 2 + ["salt"] * salts
    assert middleware.failures == fails * len(index.asked)
