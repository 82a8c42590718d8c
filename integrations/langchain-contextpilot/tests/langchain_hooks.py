"""The middleware's hooks, called one by one as an agent would."""

from __future__ import annotations

from langchain.agents.middleware.types import ModelRequest, ModelResponse
from langchain_core.documents import Document
from langchain_core.language_models import FakeListChatModel
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.runnables import RunnableLambda
from langgraph.runtime import Runtime

LONG = {name: f"{name.capitalize()} are explained here. " * 12 for name in ("slices", "steps", "copies", "sets")}


def returning(*lists):
    left = list(lists)
    return RunnableLambda(lambda _: left.pop(0) if len(left) > 1 else left[0])


def found(*names):
    return [Document(LONG.get(name, name), id=f"id-{name}", metadata={"page": 7}) for name in names]


def turn(middleware, messages, question, config=None):
    """The state's messages after ``before_agent``."""
    asked = question if isinstance(question, HumanMessage) else HumanMessage(question)
    asked.id = f"message-{len(messages)}"
    update = middleware.before_agent({"messages": [*messages, asked]}, Runtime(), config) or {}
    return [*messages, *(update.get("messages") or [asked])]


def request(messages, model=None, state=None, system_prompt=None, model_settings=None):
    return ModelRequest(
        model=model or FakeListChatModel(responses=["x"]),
        messages=messages,
        system_prompt=system_prompt,
        tool_choice=None,
        tools=[],
        response_format=None,
        state=state or {"messages": []},
        runtime=Runtime(),
        model_settings=model_settings or {},
    )


def sent(middleware, messages, **options):
    """What the model is sent."""
    seen = []
    middleware.wrap_model_call(request(messages, **options), lambda asked: seen.append(asked) or answer())
    return seen[0]


def answer(cached=None, prompt=90):
    details = {} if cached is None else {"input_token_details": {"cache_read": cached}}
    told = {"input_tokens": prompt, "output_tokens": 1, "total_tokens": prompt + 1, **details}
    return ModelResponse(result=[AIMessage("x", usage_metadata=told)])
