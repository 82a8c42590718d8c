"""With a real engine: llama.cpp and a small model, as the demo uses them."""

from __future__ import annotations

import pytest
from contextpilot_rag.demo.llama import LlamaEngine
from contextpilot_rag.errors import EngineUnavailable
from li_support import Listed, llm_of, scored
from llama_index.core.query_engine import RetrieverQueryEngine

from llama_index.postprocessor.contextpilot import (
    ContextPilotChatEngine,
    ContextPilotPostprocessor,
    ContextPilotSynthesizer,
    observe_usage,
)

QUESTIONS = ("May I keep the bicycle over the weekend?", "Who repairs a flat tyre?")
TEXTS = """\
A bicycle that is borrowed on a Friday after noon has to be back on Monday at nine. Who brings it back later pays five
crowns for each day, and may not borrow another one in the same month.
---
The workshop in the yard repairs tyres, chains and brakes for nothing. Lamps and locks are replaced by the office, which
keeps a list of all that was lost, and asks for half of the price.
---
Helmets hang beside the door, by size. Children under twelve wear one always; others are asked to. A helmet that was in
an accident is thrown away, also if nothing can be seen.
""".split("---\n")


@pytest.mark.engine
def test_a_real_engine_finds_more_in_its_cache():
    try:
        engine = LlamaEngine()
    except EngineUnavailable as error:
        pytest.skip(str(error))
    # The same three nodes for two questions, in differing order; a small model on a slow processor reads slowly.
    found = scored(*TEXTS)
    lists = [found, found[::-1]]
    reported = []
    try:
        for ours in (False, True):
            with engine as running:
                llm = llm_of(running, model="SmolLM2-135M-Instruct", max_tokens=4, temperature=0, timeout=100)
                postprocessor = ContextPilotPostprocessor(order="throughput" if ours else "retrieved")
                query = RetrieverQueryEngine(
                    Listed(*lists),
                    response_synthesizer=ContextPilotSynthesizer(llm=llm),
                    node_postprocessors=[postprocessor],
                )
                with observe_usage(postprocessor):
                    for question in QUESTIONS:
                        assert str(query.query(question))
                stats = postprocessor.adapter.pilot.stats()
                assert stats.reported_prompt_tokens > 0
                reported.append(stats.reported_cached_tokens)
                if ours:
                    chat = ContextPilotChatEngine.from_defaults(Listed(found[:1]), llm=llm, system_prompt="Be brief.")
                    for question in QUESTIONS:
                        assert chat.chat(question).response
                    chatted = chat.adapter.pilot.stats()
                    assert chatted.reported_cached_tokens > 0.4 * chatted.reported_prompt_tokens
    except EngineUnavailable as error:
        pytest.skip(str(error))
    assert reported[1] >= 2 * reported[0] > 0
