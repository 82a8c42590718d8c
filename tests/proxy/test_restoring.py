"""expand_body: whatever was left out of a request, of any format, is there again."""

from __future__ import annotations

import copy
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextpilot_rag.dedup.chunks import MAX_CHARACTERS
from contextpilot_rag.errors import BrokenHint
from contextpilot_rag.proxy.finding.find import find
from contextpilot_rag.proxy.finding.scanning import strings
from contextpilot_rag.proxy.formats.table import FORMATS
from contextpilot_rag.proxy.located import splice
from contextpilot_rag.proxy.repeating import Repeating
from contextpilot_rag.proxy.restoring import expand_body
from contextpilot_rag.proxy.words import Edit
from tests.proxy.bodies import CASES

PASSAGES = [
    "Returns are free for thirty days in all of our shops, and for sixty days for members. " * 2,
    "def area(width, height):\n    return width * height  # in square metres, never in square feet\n" * 2,
    'He said "no", twice, and left by the \\ door that leads to the garden behind the old house. ' * 2,
    "Die Prüfung ergab keine Mängel; alle Anlagen waren in gutem Zustand, wie schon im Vorjahr. " * 2,
]
LOOKALIKE = '[same text as in message 1 at 0: 5 characters from "hello"]'
pieces = st.one_of(st.sampled_from(PASSAGES), st.sampled_from(PASSAGES), st.text(max_size=12), st.just(LOOKALIKE))
plain = st.lists(pieces, max_size=4).map("\n".join)
items = st.sampled_from([*PASSAGES, *PASSAGES, LOOKALIKE, f"See {LOOKALIKE}", f"\\\\{LOOKALIKE}"])
wrapped = st.lists(items, min_size=2, max_size=4).map(
    lambda bodies: (
        "Given:\n<documents>\n"
        + "\n".join(f'<document index="{place}">{body}</document>' for place, body in enumerate(bodies, start=1))
        + "\n</documents>\n\nWhy?"
    )
)
listed = st.lists(pieces, min_size=2, max_size=4).map(
    lambda bodies: json.dumps({"results": [{"id": place, "text": body} for place, body in enumerate(bodies)]})
)
said = st.one_of(plain, wrapped)
results = st.one_of(plain, listed, wrapped)


def parts_of(kind, texts):
    image = st.just({"type": "image_url", "image_url": {"url": "data:,"}})
    return st.lists(st.one_of(texts.map(lambda text: {"type": kind, "text": text}), image), min_size=1, max_size=3)


def content_of(kind, texts):
    return st.one_of(texts, parts_of(kind, texts))


def message_of(role, kind, texts):
    return content_of(kind, texts).map(lambda content: {"role": role, "content": content})


chat_bodies = st.lists(
    st.one_of(
        message_of("system", "text", said),
        message_of("user", "text", said),
        message_of("assistant", "text", said),
        message_of("tool", "text", results),
        message_of("function", "text", results),
        message_of("critic", "text", said),
    ),
    min_size=1,
    max_size=6,
).map(lambda messages: {"messages": messages})
response_bodies = st.fixed_dictionaries(
    {
        "input": st.lists(
            st.one_of(
                message_of("user", "input_text", said),
                message_of("assistant", "output_text", said),
                content_of("input_text", results).map(
                    lambda output: {"type": "function_call_output", "output": output}
                ),
                st.just({"type": "reasoning", "summary": []}),
            ),
            min_size=1,
            max_size=6,
        )
    },
    optional={"instructions": said},
)
result_blocks = content_of("text", results).map(lambda content: {"type": "tool_result", "content": content})
message_bodies = st.fixed_dictionaries(
    {
        "messages": st.lists(
            st.one_of(
                message_of("user", "text", said),
                message_of("assistant", "text", said),
                st.lists(
                    st.one_of(result_blocks, said.map(lambda text: {"type": "text", "text": text})),
                    min_size=1,
                    max_size=3,
                ).map(lambda content: {"role": "user", "content": content}),
            ),
            min_size=1,
            max_size=6,
        )
    },
    optional={"system": content_of("text", said)},
)
requests = st.one_of(
    st.tuples(st.just("chat"), chat_bodies),
    st.tuples(st.just("completions"), said.map(lambda text: {"prompt": text})),
    st.tuples(st.just("responses"), response_bodies),
    st.tuples(st.just("messages"), message_bodies),
)


def shortened(api, body, level="blocks+chunks"):
    """A body as it is forwarded, but for the order of blocks; and how many hints are in it."""
    repeating = Repeating(level, False, MAX_CHARACTERS)
    changes = []
    for message in FORMATS[api].read(body).messages:
        for text in message.texts:
            groups = find(text)
            spans = [item.body for group in groups for item in group.items] or None
            quoted = strings(text.text) if text.role == "tool" else []
            sent = repeating.take(text, text.text, quoted or spans, bool(quoted))
            if sent != text.text:
                changes.append(Edit(text.path, sent))
    return json.loads(splice(json.dumps(body).encode(), changes)), repeating.replaced


@given(requests, st.sampled_from(["blocks", "blocks+chunks"]))
def test_whatever_is_left_out_comes_back(request_, level):
    api, body = request_
    sent, _ = shortened(api, body, level)
    before = copy.deepcopy(sent)
    assert expand_body(api, sent) == body
    assert sent == before


EXAMPLES = [
    (
        "chat",
        {
            "messages": [
                {"role": "user", "content": PASSAGES[0]},
                {
                    "role": "tool",
                    "tool_call_id": "a",
                    "content": [{"type": "image_url"}, {"type": "text", "text": PASSAGES[0]}],
                },
                {"role": "function", "name": "read", "content": PASSAGES[0]},
            ]
        },
        2,
    ),
    (
        "responses",
        {
            "instructions": PASSAGES[1],
            "input": [
                {"type": "function_call_output", "call_id": "a", "output": PASSAGES[1]},
                {
                    "type": "function_call_output",
                    "call_id": "b",
                    "output": [{"type": "input_text", "text": PASSAGES[1]}],
                },
            ],
        },
        2,
    ),
    (
        "messages",
        {
            "system": [{"type": "text", "text": "Be brief."}, {"type": "text", "text": PASSAGES[2]}],
            "messages": [
                {
                    "role": "user",
                    "content": [
                        {"type": "tool_result", "tool_use_id": "a", "content": PASSAGES[2]},
                        {"type": "tool_result", "tool_use_id": "b", "content": json.dumps([PASSAGES[3], PASSAGES[3]])},
                        {
                            "type": "text",
                            "text": f"<docs>\n<doc>{PASSAGES[2]}</doc>\n<doc>{PASSAGES[0]}</doc>\n</docs>\nWhy?",
                        },
                    ],
                }
            ],
        },
        3,
    ),
    (
        "completions",
        {"prompt": f"<docs>\n<doc>{PASSAGES[0]}</doc>\n<doc>New.\n{PASSAGES[0]}</doc>\n</docs>\nWhy?"},
        1,
    ),
]


@pytest.mark.parametrize(("api", "body", "hints"), EXAMPLES)
def test_each_format_has_something_to_leave_out(api, body, hints):
    sent, found = shortened(api, body)
    assert found == hints
    assert sent != body
    assert expand_body(api, sent) == body


@pytest.mark.parametrize(("api", "body", "expected"), CASES)
def test_a_body_without_hints_is_the_same(api, body, expected):
    restored = expand_body(api, body)
    assert restored == body
    assert restored is not body


def test_a_result_that_points_to_nothing_is_said():
    with pytest.raises(BrokenHint):
        expand_body("messages", {"messages": [{"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "a", "content": LOOKALIKE}
        ]}]})  # fmt: skip


def test_blocks_given_by_a_field_are_read_back_wherever_they_stand():
    given = f"<documents>\n[1] {PASSAGES[0].rstrip()}\n</documents>\n\nWhy?"
    again = "<documents>\n[1] (given above)\n</documents>\n\nAnd then?"
    body = {
        "messages": [
            {"role": "user", "content": given},
            {"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": "a", "content": "42"}, {"type": "text", "text": again},
            ]},
        ]
    }  # fmt: skip
    restored = expand_body("messages", body)
    assert restored["messages"][1]["content"][1]["text"] == given.replace("Why?", "And then?")
    assert restored["messages"][0] == body["messages"][0]


@given(requests)
def test_only_a_hint_to_nothing_is_ever_an_error(request_):
    api, body = request_
    before = copy.deepcopy(body)
    try:
        expand_body(api, body)
    except BrokenHint:
        assert "[same text as in message 1 at 0: 5 characters" in json.dumps(body)
    assert body == before


@pytest.mark.parametrize("last", [1, 3])
def test_lists_are_restored_whatever_their_hints_leave_of_their_lines(last):
    lines = [f"{n}. Either party may end clause {n} by a notice of {n} weeks or more, in writing.\n" for n in range(9)]
    first, second, new = "".join(lines[:4]), "".join(lines[4:8]), "Something else.\n" * last
    told = [
        "\n\n".join(f"Document {n}:\n{text.strip()}" for n, text in enumerate(some, 1))
        for some in ((first, second), (second, new))
    ]
    asked = FORMATS["chat"].read({"messages": [{"role": "user", "content": text} for text in told]})
    repeating = Repeating("blocks+chunks", True, MAX_CHARACTERS)
    lists = frozenset(["headed"])
    sent = []
    for message in asked.messages:
        (text,) = message.texts
        bodies = [item.body for group in find(text, lists) for item in group.items]
        assert bodies
        sent.append({"role": "user", "content": repeating.take(text, text.text, bodies)})
    assert "[same text as in message 1" in sent[1]["content"]
    assert [one["content"] for one in expand_body("chat", {"messages": sent}, lists)["messages"]] == told


def test_blocks_behind_what_looks_like_documents_of_ours_are_restored():
    passage = PASSAGES[0]
    told = [
        f"<docs>\n<doc>{passage}</doc>\n<doc>One.</doc>\n</docs>",
        f"<documents>\n[1] x\n</documents>\n\n<docs>\n<doc>{passage}</doc>\n<doc>Two.</doc>\n</docs>",
    ]
    asked = FORMATS["chat"].read({"messages": [{"role": "user", "content": text} for text in told]})
    repeating = Repeating("blocks+chunks", True, MAX_CHARACTERS)
    sent = []
    for message in asked.messages:
        (text,) = message.texts
        bodies = [item.body for group in find(text) for item in group.items]
        sent.append({"role": "user", "content": repeating.take(text, text.text, bodies)})
    assert "[same text as in message 1" in sent[1]["content"]
    assert [one["content"] for one in expand_body("chat", {"messages": sent})["messages"]] == told
