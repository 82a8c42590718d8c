"""Breakpoints for Anthropic's cache and keys for OpenAI's: where they stand, and that nothing else changes."""

from __future__ import annotations

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextpilot_rag.proxy.breakpoints import LEAST_BYTES, MOST, Stable, breakpoints
from contextpilot_rag.proxy.cache_hints import prompt_cache_key
from contextpilot_rag.proxy.formats.messages import Messages
from contextpilot_rag.proxy.located import splice
from contextpilot_rag.proxy.restoring import expand_body
from contextpilot_rag.proxy.words import Edit
from contextpilot_rag.types import Namespace

OURS = {"type": "ephemeral"}
THEIRS = {"type": "ephemeral", "ttl": "5m"}  # told from ours, and as long
HOUR = {"type": "ephemeral", "ttl": "1h"}
LONG = "Slices count from zero. " * 200
QUESTION = "Where do slices start?"
CONTENT = ("messages", 0, "content")


def text(words, **more):
    return {"type": "text", "text": words, **more}


def marked(block, control=THEIRS):
    return {**block, "cache_control": control}


def sent(body, stable, texts=None):
    """The body with the changes, through its bytes."""
    asked = Messages().read(body)
    assert asked is not None
    return json.loads(splice(msgspec.json.encode(body), breakpoints(asked, texts or {}, stable)))


def user(content, **more):
    return {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": content}], **more}


def controls(value):
    """All breakpoints in a value, in its order."""
    if isinstance(value, list):
        return [one for inner in value for one in controls(inner)]
    if not isinstance(value, dict):
        return []
    own = [value["cache_control"]] if value.get("cache_control") else []
    return [one for name, inner in value.items() if name != "cache_control" for one in controls(inner)] + own


def in_prompt_order(body):
    return controls([body.get("tools"), body.get("system"), body["messages"]]) + [
        one for one in [body.get("cache_control")] if one
    ]


# Where they stand


def test_a_text_is_cut_where_its_stable_part_ends():
    body = user(LONG + QUESTION, system=LONG)
    done = sent(body, [Stable(CONTENT, [len(LONG)])])
    assert done["messages"][0]["content"] == [marked(text(LONG), OURS), text(QUESTION)]
    assert done["system"] == [marked(text(LONG), OURS)]
    assert {name: done[name] for name in ("model", "max_tokens")} == {"model": "m", "max_tokens": 9}


def test_both_stable_parts_have_one_and_no_piece_is_lost():
    done = sent(user(LONG + "a" + LONG + QUESTION), [Stable(CONTENT, [len(LONG), 2 * len(LONG) + 1])])
    assert done["messages"][0]["content"] == [
        marked(text(LONG), OURS),
        marked(text("a" + LONG), OURS),
        text(QUESTION),
    ]


def test_a_conversation_that_goes_on_has_one_at_its_end():
    body = user(LONG + QUESTION)
    body["messages"] += [{"role": "assistant", "content": "From zero."}, {"role": "user", "content": "Why?"}]
    done = sent(body, [Stable(CONTENT, [len(LONG)])])["messages"]
    assert done[2]["content"] == [marked(text("Why?"), OURS)]
    assert done[1] == body["messages"][1]
    # An answer that is begun for the model is no end yet.
    body["messages"].append({"role": "assistant", "content": "Because"})
    done = sent(body, [Stable(CONTENT, [len(LONG)])])["messages"]
    assert done[2]["content"] == [marked(text("Why?"), OURS)]
    assert done[3]["content"] == "Because"


def test_the_end_may_be_a_tools_result_but_no_thought():
    call = {"type": "tool_use", "id": "1", "name": "look_up", "input": {"n": 1.5}}
    result = {"type": "tool_result", "tool_use_id": "1", "content": "12"}
    thought = {"type": "thinking", "thinking": "Hm.", "signature": "x"}
    body = user(LONG + QUESTION)
    body["messages"] += [{"role": "assistant", "content": [thought, call]}, {"role": "user", "content": [result]}]
    done = sent(body, [Stable(CONTENT, [len(LONG)])])["messages"]
    assert done[1] == body["messages"][1]
    assert done[2]["content"] == [marked(result, OURS)]
    body["messages"][2]["content"].append(thought)
    assert sent(body, [Stable(CONTENT, [len(LONG)])])["messages"][2]["content"] == [marked(result, OURS), thought]


def test_a_stable_part_that_ends_with_its_text_needs_no_cut():
    blocks = [text(LONG + "\n"), text(QUESTION)]
    done = sent(user(blocks), [Stable((*CONTENT, 0, "text"), [len(LONG)])])
    assert done["messages"][0]["content"] == [marked(blocks[0], OURS), blocks[1]]
    result = {"type": "tool_result", "tool_use_id": "1", "content": [text("Found:"), text(LONG)]}
    done = sent(user([result, text(QUESTION)]), [Stable((*CONTENT, 0, "content", 1, "text"), [len(LONG)])])
    assert done["messages"][0]["content"] == [marked(result, OURS), text(QUESTION)]


@pytest.mark.parametrize(
    "content",
    [
        [text(LONG + QUESTION), text("More?")],
        [text(LONG + QUESTION), text(" ")],
        [text(LONG + QUESTION), {"type": "image", "source": {"type": "url", "url": "x"}}],
        [text(LONG + QUESTION, citations=None)],
    ],
    ids=["another text follows", "a blank one follows", "not texts alone", "a field that is not known"],
)
def test_texts_that_stay_whole(content):
    done = sent(user(content), [Stable((*CONTENT, 0, "text"), [len(LONG)])])
    assert done == user(content)


def test_no_block_is_blank():
    for words, offset in ((LONG + " \n ", len(LONG)), ("  \n" + LONG, 2)):
        (block,) = sent(user(words), [Stable(CONTENT, [offset, len(words)])])["messages"][0]["content"]
        assert block == marked(text(words), OURS)
    done = sent(user(LONG + "   " + QUESTION), [Stable(CONTENT, [len(LONG), len(LONG) + 3])])
    assert [block["text"] for block in done["messages"][0]["content"]] == [LONG, "   " + QUESTION]
    blank = user([text(LONG), text("  ")])
    blank["messages"] += [{"role": "assistant", "content": "?"}, {"role": "user", "content": [text("a"), text(" ")]}]
    done = sent(blank, [Stable((*CONTENT, 0, "text"), [len(LONG)])])
    assert done["messages"][2]["content"] == [marked(text("a"), OURS), text(" ")]


def test_what_is_too_short_for_the_cache_gets_none():
    short = "a" * (LEAST_BYTES - 1)
    assert sent(user(short, system="Be brief."), [Stable(CONTENT, [len(short)])]) != user(short, system="Be brief.")
    assert in_prompt_order(sent(user(short), [Stable(CONTENT, [len(short)])])) == []
    tools = [{"name": "look_up", "description": "a", "input_schema": {}}]
    assert in_prompt_order(sent(user(short, tools=tools), [Stable(CONTENT, [len(short)])])) == [OURS]
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "x" * LEAST_BYTES}}
    assert in_prompt_order(sent(user([image, text("a")]), [Stable((*CONTENT, 1, "text"), [1])])) == []


# What the client has set


def test_the_clients_own_are_kept_and_counted():
    tools = [marked({"name": "look_up", "input_schema": {}})]
    result = {"type": "tool_result", "tool_use_id": "1", "content": [marked(text("a"))]}
    body = user(LONG + QUESTION, system=[marked(text(LONG))], tools=tools)
    body["messages"] += [{"role": "assistant", "content": "?"}, {"role": "user", "content": [result, text("Why?")]}]
    done = sent(body, [Stable(CONTENT, [len(LONG), 100])])
    assert in_prompt_order(done) == [THEIRS, THEIRS, THEIRS, OURS]
    assert done["messages"][2]["content"] == [result, marked(text("Why?"), OURS)]
    assert [block["text"] for block in done["messages"][0]["content"]] == [LONG[:100], LONG[100:], QUESTION]


def test_one_that_the_cloud_sets_itself_counts_too():
    body = user(LONG + QUESTION, system=LONG, cache_control=THEIRS)
    body["messages"] += [{"role": "assistant", "content": "?"}, {"role": "user", "content": "Why?"}]
    done = sent(body, [Stable(CONTENT, [len(LONG)])])
    assert in_prompt_order(done) == [OURS, OURS, THEIRS]
    assert done["messages"][2] == body["messages"][2]
    body["system"] = [marked(text(LONG)), marked(text(LONG)), marked(text(LONG))]
    assert in_prompt_order(sent(body, [Stable(CONTENT, [len(LONG)])])) == [THEIRS] * MOST


def test_none_stands_before_one_that_lasts_longer():
    """A breakpoint for an hour behind one for five minutes is refused."""
    body = user([text(LONG), marked(text(LONG), HOUR), text(QUESTION)], system=LONG)
    body["messages"] += [{"role": "assistant", "content": "?"}, {"role": "user", "content": "Why?"}]
    assert in_prompt_order(sent(body, [Stable((*CONTENT, 0, "text"), [len(LONG)])])) == [HOUR, OURS]
    body = user(LONG + QUESTION, cache_control=HOUR)
    assert in_prompt_order(sent(body, [Stable(CONTENT, [len(LONG)])])) == [HOUR]


def test_a_block_that_is_cut_keeps_its_own_at_its_end():
    done = sent(user([marked(text(LONG + QUESTION))]), [Stable((*CONTENT, 0, "text"), [len(LONG)])])
    assert done["messages"][0]["content"] == [marked(text(LONG), OURS), marked(text(QUESTION))]
    done = sent(user([marked(text("Short. " + QUESTION))]), [Stable((*CONTENT, 0, "text"), [7])])
    assert done["messages"][0]["content"] == [text("Short. "), marked(text(QUESTION))]
    assert sent(user([{**text(LONG), "cache_control": None}]), [Stable((*CONTENT, 0, "text"), [len(LONG)])])[
        "messages"
    ][0]["content"] == [marked(text(LONG), OURS)]


# What is promised


def test_without_a_stable_part_only_texts_change():
    asked = Messages().read(user("a", system="b"))
    assert breakpoints(asked, {}, []) == []
    assert breakpoints(asked, {CONTENT: "c"}, []) == [Edit(CONTENT, "c")]


@st.composite
def requests(draw):
    """Bodies, texts that are to be sent otherwise, and stable parts, also where none can be."""
    words = st.sampled_from(["", " ", "\n\n", "a", "Ein Stück.", LONG, LONG + "é", " \n" + LONG + " "])
    control = st.sampled_from([None, None, None, THEIRS])

    def maybe(block):
        own = draw(control)
        return block if own is None else marked(block, own)

    def block():
        kind = draw(st.sampled_from(["text", "text", "text", "image", "tool_result", "thinking", "other"]))
        if kind == "text":
            return maybe(text(draw(words)))
        if kind == "tool_result":
            inner = draw(st.one_of(words, st.just([text(draw(words)), text("a")])))
            return maybe({"type": kind, "tool_use_id": "1", "content": inner})
        return {"type": kind, "n": 1.0}

    def content():
        return draw(words) if draw(st.booleans()) else [block() for _ in range(draw(st.integers(0, 3)))]

    roles = draw(st.lists(st.sampled_from(["user", "assistant"]), max_size=4))
    body = {"messages": [{"role": role, "content": content()} for role in ["user", *roles]]}
    if draw(st.booleans()):
        body["system"] = draw(words) if draw(st.booleans()) else [maybe(text(draw(words)))]
    if draw(st.booleans()):
        body["tools"] = [maybe({"name": "a", "description": LONG})]
    if draw(st.integers(0, 4)) == 0:
        body["cache_control"] = THEIRS
    found = [one for message in Messages().read(body).messages for one in message.texts]
    changed = draw(st.lists(st.sampled_from(found), max_size=2)) if found else []
    texts = {one.path: draw(words.filter(str.strip)) for one in changed}
    stable = []
    for one in draw(st.lists(st.sampled_from(found), max_size=2)) if found else []:
        length = len(texts.get(one.path, one.text))
        stable.append(Stable(one.path, draw(st.lists(st.integers(-1, length + 1), max_size=2))))
    return body, texts, stable


def as_blocks(content):
    return [text(content)] if isinstance(content, str) else content


def plain(content):
    """A content without breakpoints, with adjacent texts as one."""
    said = []
    for block in as_blocks(content):
        one = json.loads(json.dumps(block))
        if one.get("type") == "text" and said and said[-1].get("type") == "text":
            said[-1]["text"] += one["text"]
        else:
            said.append(one)
    return without_controls(said)


def without_controls(value):
    if isinstance(value, list):
        return [without_controls(one) for one in value]
    if isinstance(value, dict):
        return {name: without_controls(one) for name, one in value.items() if name != "cache_control"}
    return value


def with_texts(body, texts):
    done = json.loads(json.dumps(body))
    for path, words in texts.items():
        at = done
        for step in path[:-1]:
            at = at[step]
        at[path[-1]] = words
    return done


def every_content(body):
    return [body.get("system", ""), *(message["content"] for message in body["messages"])]


@given(requests())
def test_all_is_said_and_no_request_is_refused_for_it(request):
    body, texts, stable = request
    done, expected = sent(body, stable, texts), with_texts(body, texts)
    assert [plain(one) for one in every_content(done)] == [plain(one) for one in every_content(expected)]
    rest = {"system", "messages"}
    assert {name: done[name] for name in done if name not in rest} == {
        name: body[name] for name in body if name not in rest
    }
    theirs, everything = in_prompt_order(body), in_prompt_order(done)
    assert [one for one in everything if one != OURS] == theirs
    assert len(everything) <= max(MOST, len(theirs))
    if not stable:
        assert everything == theirs
    for before, after in zip(every_content(expected), every_content(done), strict=True):
        blank = [block for block in as_blocks(after) if block.get("type") == "text" and not block["text"].strip()]
        assert all(block.get("cache_control") != OURS for block in blank)
        assert len(blank) <= len([one for one in as_blocks(before) if not one.get("text", "a").strip()])


@given(requests(), st.sampled_from([THEIRS, None]))
def test_a_next_turn_begins_with_the_same_blocks(request, own):
    body, texts, stable = request
    more = [{"role": "assistant", "content": "Yes."}, {"role": "user", "content": [text("Why?")]}]
    if own is not None:
        more[1]["content"] = [marked(text("Why?"), own)]
    longer = {**body, "messages": [*body["messages"], *more]}
    first, second = every_content(sent(body, stable, texts)), every_content(sent(longer, stable, texts))
    assert [without_controls(as_blocks(one)) for one in first] == [
        without_controls(as_blocks(one)) for one in second[: len(first)]
    ]


@pytest.mark.parametrize("alone", [False, True])
def test_location_hints_are_read_through_a_cut(alone):
    """They count in the text as it was, whether it was the content or the only text in it."""
    said = QUESTION + LONG + "Slices end before their stop, and steps may be negative; so much for them. " + QUESTION
    place = "message 1, part 1" if alone else "message 1"
    hint = f'[same text as in {place} at {len(QUESTION + LONG)}: 74 characters from "Slices end"]'
    call = {"type": "tool_use", "id": "1", "name": "look_up", "input": {}}
    body = user([text(said)] if alone else said)
    body["messages"] += [
        {"role": "assistant", "content": [call]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "1", "content": f"Found: {hint}"}]},
    ]
    path = (*CONTENT, 0, "text") if alone else CONTENT
    done = sent(body, [Stable(path, [len(QUESTION) + len(LONG) + 40])])
    assert len(done["messages"][0]["content"]) == 2
    (result,) = expand_body("messages", done)["messages"][2]["content"]
    assert result["content"] == "Found: Slices end before their stop, and steps may be negative; so much for them."


# OpenAI's key


def test_requests_that_begin_alike_have_one_key():
    def key(secret="s", block=b"one", **names):
        return prompt_cache_key(Namespace(**names), block, secret)

    assert key(tenant="a") == key(tenant="a")
    others = [
        key(tenant="a"),
        key(tenant="b"),
        key(model="a"),
        key(head="a"),
        key(tenant="a", block=b"other"),
        key("other", tenant="a"),
    ]
    assert len(set(others)) == len(others)
    assert all(0 < len(one) <= 64 and "acme" not in one for one in [*others, key(tenant="acme")])
