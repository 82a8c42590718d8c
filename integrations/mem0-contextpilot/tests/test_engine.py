"""End to end with the demo's llama.cpp engine: a real model's cache, over HTTP."""

from __future__ import annotations

import pytest
from contextpilot_rag.errors import EngineUnavailable

from measure.table import SYSTEM
from measure.workload import QUESTIONS, USER
from mem0_contextpilot import ContextPilotMemory


@pytest.fixture
def llama():
    from contextpilot_rag.demo.llama import MODEL_NAME, LlamaEngine
    from openai import OpenAI

    try:
        engine = LlamaEngine().__enter__()
    except EngineUnavailable as error:
        pytest.skip(f"the demo's engine cannot run here: {error}")
    with OpenAI(base_url=engine.base_url, api_key="none", timeout=60) as client:
        yield client, MODEL_NAME
    engine.__exit__()


@pytest.mark.engine
def test_three_turns_of_a_conversation(filled, llama):
    client, model = llama
    memory = ContextPilotMemory(filled)

    def ask(messages, extra_body=None):
        response = client.chat.completions.create(
            model=model, messages=messages, max_tokens=4, temperature=0, extra_body=extra_body
        )
        return response, response.usage.prompt_tokens_details.cached_tokens

    without, history = [], []
    for question in QUESTIONS[:3]:
        found = filled.search(question, filters={"user_id": USER}, top_k=5)["results"]
        known = "\n".join(f"- {one['memory']}" for one in found)
        history.append({"role": "user", "content": question})
        response, cached = ask([{"role": "system", "content": f"{SYSTEM}\n\n{known}"}, *history])
        history.append({"role": "assistant", "content": response.choices[0].message.content})
        without.append(cached)

    with_us, sent = [], []
    for question in QUESTIONS[:3]:
        context = memory.context(question, user_id=USER, top_k=5, system=SYSTEM, conversation="evening")
        assert context.messages()[: len(sent)] == sent
        response, cached = ask(context.messages(), context.extra_body)
        usage = context.answer(response)
        assert usage.cached_tokens == cached
        sent = context.conversation.messages
        with_us.append(cached)

    assert sum(with_us) >= 2 * sum(without)
    assert memory.pilot.stats().reported_cached_tokens == sum(with_us)
