"""Conversations as lists of steps, and what must hold after each of them."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import strategies as st

from contextpilot_rag import ContextPilot
from contextpilot_rag.dedup.units import normal
from contextpilot_rag.errors import InputError
from contextpilot_rag.expand import expand, read_full
from contextpilot_rag.prompt.render import CLOSE, render_block, render_documents
from tests.dedup.material import CODE, HOSTILE, LINES, POOL, SAME, SENTENCES, TABLE, hostile, size, texts

LEVELS = ("off", "blocks", "blocks+chunks")
SHORT = ("Sets.", "(given above)", "", " ", "x" * 13, "x" * 14)
MIXED = tuple(f"{LINES[0]}\n{TABLE}{number}\n{CODE}{SENTENCES}" for number in range(2))
MOST = 50_000  # characters of one text


@dataclass
class Turn:
    blocks: list[str]
    question: str
    between: list[Any] = field(default_factory=list)  # what happens before the answer comes
    instead_of: list[Turn] = field(default_factory=list)  # turns that are never answered


@dataclass
class Tools:
    results: list[str]


@dataclass
class Say:
    text: str
    role: str = "user"


@dataclass
class Truncate:
    max_tokens: int


@dataclass
class Restart:
    pass


@dataclass
class Mistake:
    number: int


block_texts = st.one_of(
    st.builds(
        lambda text, change: change(text), st.sampled_from((*POOL, *MIXED, *SHORT, *HOSTILE)), st.sampled_from(SAME)
    ),
    texts,
)
questions = st.one_of(st.just("Why?"), st.just(""), st.sampled_from((*HOSTILE, TABLE)), hostile)
blocks = st.lists(block_texts, max_size=4)
turns = st.builds(Turn, blocks, questions)
retried = st.builds(lambda turn, others: replace(turn, instead_of=others), turns, st.lists(turns, max_size=2))
tools = st.builds(Tools, st.lists(block_texts, min_size=1, max_size=2))
says = st.builds(Say, questions, st.sampled_from(["user", "system", "assistant"]))
truncations = st.builds(Truncate, st.sampled_from([1, 50, 300, 1000, 3000]))
restarts = st.just(Restart())
mistakes = st.builds(Mistake, st.integers(0, 6))
interruptions = st.lists(st.one_of(mistakes, truncations), max_size=2)
interrupted = st.builds(
    Turn, blocks, questions, interruptions, st.lists(st.builds(Turn, blocks, questions, interruptions), max_size=1)
)


def steps(*kinds, most=7):
    """Steps of these kinds, turns above all."""
    return st.lists(st.one_of(turns, turns, tools, *kinds), max_size=most)


def pilot_for(level="blocks+chunks", normalise=True, **options):
    return ContextPilot(**{"order": "retrieved", "dedup": level, "normalise": normalise, "max_text": MOST, **options})


class Driver:
    """One conversation, step by step; after each step everything that was given can be found in what was sent.

    Args:
        pilot: whose it is.
        name: of the conversation.
        namespace: of the conversation.
        system: the system prompt.
    """

    def __init__(self, pilot, name=None, namespace=None, system="Answer from the documents."):
        self.pilot, self.namespace = pilot, namespace
        self.talk = pilot.conversation(name, namespace=namespace, system=system)
        self.given = [] if system is None else [None]  # for each message what was given in it
        self.prompts = []

    def take(self, *steps):
        for step in steps:
            getattr(self, type(step).__name__.lower())(step)
            self.check()
        return self.prompts

    def check(self):
        messages = self.talk.messages
        assert len(messages) == len(self.given)
        for full, given in zip(read_full(messages), self.given, strict=True):
            if isinstance(given, dict):
                found = {block.label: block.text for block in full.blocks}
                assert found.keys() == given.keys()
                assert all(self.same(found[label], text) for label, text in given.items())
            elif given is not None:
                assert self.same(full.message["content"], given)

    def turn(self, step):
        for other in step.instead_of:
            self.align(other)
        messages, texts = self.align(step)
        before = self.talk.messages
        self.talk.answer("Yes, see [1].\n[7] says no.")
        self.given += [texts or None, None]
        self.prompts.append(messages)
        assert self.talk.messages[:-2] == before
        assert self.talk.messages[-2] == messages[-1] or step.between

    def align(self, step):
        before, texts_of = self.talk.messages, dict(enumerate(step.blocks))
        prompt = self.talk.align(list(texts_of.items()), step.question)
        messages = prompt.messages()
        assert messages == [*before, {"role": "user", "content": prompt.user_message}], "append-only"
        assert prompt.user_message.endswith(step.question)
        assert self.talk.messages == before, "it counts as sent once it is answered"
        self.check_labels(prompt, messages, texts_of)
        if not self.pilot.settings.normalise:
            all_blocks = zip(prompt.numbers, prompt.blocks, strict=True)
            in_full = render_documents([render_block(number, block.text) for number, block in all_blocks])
            rest = prompt.user_message[prompt.user_message.find(CLOSE) + len(CLOSE) :]
            assert not texts_of or size(prompt.user_message) <= size(in_full + rest), "hints only where shorter"
        for one in step.between:
            self.take(one)
        return messages, {number: block.text for number, block in zip(prompt.numbers, prompt.blocks, strict=True)}

    def check_labels(self, prompt, messages, texts_of):
        full = list(read_full(messages))[-1]
        found = {block.label: block.text for block in full.blocks or () if texts_of}
        assert list(found) == list(prompt.numbers) == list(prompt.labels)
        assert sorted(name for ids in prompt.ids.values() for name in ids) == list(texts_of)
        content = expand(messages)[-1]["content"]
        for label, text in found.items():
            assert prompt.labels[label] == prompt.ids[label][0]
            assert all(self.same(text, texts_of[name]) for name in prompt.ids[label])
            assert f"[{label}] {text}" in content

    def tools(self, step):
        before = self.talk.messages
        call = {"role": "assistant", "content": None, "tool_calls": [{"id": "a", "type": "function", "function": {}}]}
        messages = [call, *({"role": "tool", "tool_call_id": "a", "content": text} for text in step.results)]
        given = copy.deepcopy(messages)
        for message in messages:
            self.talk.add(message)
        assert messages == given, "the caller's messages are not changed"
        assert self.talk.messages[: len(before)] == before
        self.given += [None, *step.results]
        self.prompts.append(self.talk.messages)

    def say(self, step):
        self.talk.add({"role": step.role, "content": step.text})
        assert self.talk.messages[-1] == {"role": step.role, "content": step.text}
        self.given.append(None)

    def truncate(self, step):
        before = self.talk.messages
        fell_out = self.talk.truncate(step.max_tokens)
        messages = self.talk.messages
        assert len(messages) == len(before) - fell_out
        head = next((place for place, message in enumerate(before) if message["role"] != "system"), len(before))
        assert messages[:head] == before[:head]
        self.given = self.given[:head] + self.given[head + fell_out :]
        if fell_out:
            assert messages[head : head + 1] == [] or messages[head]["role"] == "user"
            users = [message for message in messages if message["role"] == "user"]
            assert self.tokens(messages) <= step.max_tokens // 2 or len(users) <= 1

    def tokens(self, messages):
        return sum(self.pilot.count_tokens(message.get("content") or "") for message in messages)

    def restart(self, _):
        before = self.talk.messages
        self.talk = self.pilot.conversation(None, namespace=self.namespace, messages=before)
        assert self.talk.messages == before

    def mistake(self, step):
        before = self.talk.messages
        with pytest.raises(InputError):
            MISTAKES[step.number](self.talk)
        assert self.talk.messages == before

    def same(self, one, other):
        return normal(one) == normal(other) if self.pilot.settings.normalise else one == other


MISTAKES = (
    lambda talk: talk.align([("a", "one"), ("a", "two")]),
    lambda talk: talk.align([7], "Why?"),
    lambda talk: talk.align(["fine", "x" * (MOST + 1)]),
    lambda talk: talk.align(["fine"], "Why?", ordr="retrieved"),
    lambda talk: talk.add({"content": "no role"}),
    lambda talk: talk.add({"role": "tool", "content": "x" * (MOST + 1)}),
    lambda talk: talk.answer(object()),
)
