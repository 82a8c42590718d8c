"""Repeating with the blocks that are really found: what is left out of them, `expand` finds again."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextpilot_rag.dedup.units import normal
from contextpilot_rag.expand import expand
from contextpilot_rag.proxy.finding.find import find
from contextpilot_rag.proxy.finding.scanning import strings
from contextpilot_rag.proxy.repeating import Repeating
from contextpilot_rag.proxy.words import Text
from tests.dedup.material import CODE, EMOJI, SENTENCES, TABLE, hostile, texts

bodies = st.one_of(texts, st.sampled_from((CODE, TABLE, SENTENCES, EMOJI, "Short.")), hostile)
FRAMES = (
    ("<documents>\n", '<document index="{}">\n{}\n</document>\n', "</documents>"),
    ("<context>\n", "<passage>{1}</passage>\n", "</context>\n\nWhy?"),
    (
        "Read:\n<search_results>\n",
        '<result id="{}"><source>a.txt</source><content>{}</content></result>\n',
        "</search_results>\n",
    ),
)


@st.composite
def messages(draw):
    role = draw(st.sampled_from(("system", "user", "assistant", "tool", "tool", "user")))
    found = draw(st.lists(bodies, min_size=1, max_size=3))
    if role == "tool" and draw(st.booleans()):
        rows = [{"id": place, "text": text} for place, text in enumerate(found)]
        return role, json.dumps({"results": rows}, ensure_ascii=draw(st.booleans()))
    if draw(st.booleans()):
        return role, "\n".join(found)
    before, item, after = draw(st.sampled_from(FRAMES))
    return role, before + "".join(item.format(place, text) for place, text in enumerate(found, start=1)) + after


def taken(given_messages, repeating):
    sent = []
    for number, (role, content) in enumerate(given_messages, start=1):
        text = Text(role, number, None, content, ("messages", number - 1, "content"))
        spans = [item.body for group in find(text) for item in group.items] or None
        inside = strings(content) if role == "tool" else []
        sent.append({"role": role, "content": repeating.take(text, content, inside or spans, quoted=bool(inside))})
    return sent


def bodies_of(role, text):
    return [item.body for group in find(Text(role, 1, None, text, ())) for item in group.items]


@given(st.lists(messages(), max_size=6), st.sampled_from(["blocks", "blocks+chunks"]), st.booleans())
def test_expand_gives_everything_back(given_messages, level, normalise):
    full = expand(taken(given_messages, Repeating(level, normalise, 10**6)), bodies_of)
    for (role, content), message in zip(given_messages, full, strict=True):
        if role == "user" and content.startswith("<documents>\n[1]"):
            continue  # looks like a message of the library's own, and is read as one
        assert normal(message["content"]) == normal(content) if normalise else message["content"] == content


@pytest.mark.parametrize("frame", FRAMES)
@pytest.mark.parametrize("level", ["blocks", "blocks+chunks"])
def test_blocks_of_later_messages_are_left_out(frame, level):
    before, item, after = frame
    content = before + "".join(item.format(place, text) for place, text in enumerate((TABLE, SENTENCES))) + after
    given_messages = [("user", content), ("tool", SENTENCES), ("user", content)]
    repeating = Repeating(level, False, 10**6)
    sent = taken(given_messages, repeating)
    assert sent[0]["content"] == content
    assert repeating.replaced == 3
    assert len(sent[2]["content"]) < 600
    assert [message["content"] for message in expand(sent, bodies_of)] == [content for _, content in given_messages]
