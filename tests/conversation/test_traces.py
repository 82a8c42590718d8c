"""Recorded conversations: `expand` gives every text back. The traces are not part of this repository."""

from __future__ import annotations

import gzip
import json
from functools import cache
from pathlib import Path

import pytest

from contextpilot_rag import ContextPilot
from contextpilot_rag.dedup.messages import deduplicate
from contextpilot_rag.dedup.units import normal
from contextpilot_rag.expand import expand, read_full
from tests.dedup.material import size

TRACES = Path(__file__).parents[3] / "shared" / "traces"

needs_traces = pytest.mark.skipif(
    not TRACES.exists(), reason="needs the recorded traces in ../shared/traces, next to this repository"
)
pytestmark = [needs_traces, pytest.mark.no_cover]  # they are not everywhere, so nothing counts that they alone cover


def lines(path):
    text = gzip.decompress(path.read_bytes()).decode() if path.suffix == ".gz" else path.read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


@cache
def trace(data, name):
    """Texts by id, and for each conversation its turns: ids and question."""
    corpus = next((TRACES / data).glob("corpus.jsonl*"))
    conversations = {}
    for turn in lines(TRACES / data / f"trace_{name}.jsonl"):
        conversations.setdefault(turn["conversation"], []).append((turn["context_ids"], turn["question"]))
    return {block["id"]: block["text"] for block in lines(corpus)}, list(conversations.values())


def replay(texts, turns, normalise):
    """One conversation, turn by turn: the UTF-8 bytes of all prompts, and of the same prompts with nothing left out."""
    pilot = ContextPilot(dedup="blocks+chunks", order="retrieved", normalise=normalise)
    talk = pilot.conversation(system="Answer from the documents.")
    sent = in_full = 0
    before = []
    for ids, question in turns:
        prompt = talk.align([(name, texts[name]) for name in dict.fromkeys(ids)], question)
        messages = prompt.messages()
        assert messages[: len(before)] == before
        full = list(read_full(messages))
        found = {block.label: block.text for block in full[-1].blocks or ()}
        for label, names in prompt.ids.items():
            for name in names:
                assert found[label] == texts[name] or (normalise and normal(found[label]) == normal(texts[name]))
        talk.answer("So.")
        before = talk.messages
        sent += sum(size(message["content"]) for message in messages)
        in_full += sum(size(one.message["content"]) for one in full)
    assert pilot.conversation(messages=before).messages == before
    return sent, in_full


@pytest.mark.parametrize("normalise", [True, False])
@pytest.mark.parametrize(
    ("data", "name", "every", "most"),
    [("mtrag", "bm25_prevcur_top15", 20, 0.75), ("locomo", "minilm_top15", 5, 0.65)],
)
def test_blocks_of_conversations(data, name, every, most, normalise):
    texts, conversations = trace(data, name)
    sizes = [replay(texts, turns[:25], normalise) for turns in conversations[::every]]
    assert sum(sent for sent, _ in sizes) < most * sum(in_full for _, in_full in sizes)


@pytest.mark.parametrize("normalise", [True, False])
def test_reads_of_agents(normalise):
    texts, conversations = trace("clawtasks", "reads")
    read = sent = 0
    for turns in conversations[::2]:
        messages = [{"role": "system", "content": "You read contracts."}]
        for ids, question in turns:
            messages.append({"role": "user", "content": question})
            messages += [{"role": "tool", "tool_call_id": name, "content": texts[name]} for name in ids]
            messages.append({"role": "assistant", "content": "Done."})
        sent_messages = deduplicate(messages, normalise=normalise)
        full = expand(sent_messages)
        assert len(full) == len(messages)
        for one, other in zip(full, messages, strict=True):
            assert normal(one["content"]) == normal(other["content"])
            assert normalise or one == other
        results = [place for place, message in enumerate(messages) if message["role"] == "tool"]
        read += sum(size(messages[place]["content"]) for place in results)
        sent += sum(size(sent_messages[place]["content"]) for place in results)
    assert sent < 0.5 * read


@pytest.mark.parametrize(("data", "name"), [("locomo", "minilm_top15"), ("mtrag", "bm25_prevcur_top15")])
def test_every_block_of_every_conversation_is_restored(data, name):
    texts, conversations = trace(data, name)
    for turns in conversations:
        talk = ContextPilot(dedup="blocks+chunks").conversation(system="Answer from the documents.")
        for ids, question in turns:
            talk.align([(one, texts[one]) for one in dict.fromkeys(ids)], question)
            talk.answer("So.")
        full = [normal(message["content"]) for message in expand(talk.messages) if message["role"] == "user"]
        for content, (ids, _) in zip(full, turns, strict=True):
            assert all(normal(texts[one]) in content for one in ids)
