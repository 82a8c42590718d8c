"""Requests of each format, and what is read of them: number and role of each message, and its texts."""

from __future__ import annotations

import pytest

from contextpilot_rag.proxy.formats.table import FORMATS

CALL = {"id": "a", "type": "function", "function": {"name": "read", "arguments": "{}"}}
IMAGE = {"type": "image_url", "image_url": {"url": "data:,"}}


def shown(api, body):
    """Messages as number and role, with their texts as role, part and text."""
    asked = FORMATS[api].read(body)
    if asked is None:
        return None
    return [
        (message.number, message.role, *((text.role, text.part, text.text) for text in message.texts))
        for message in asked.messages
    ]


CHAT = [
    (
        "plain texts",
        {
            "messages": [
                {"role": "system", "content": "s"},
                {"role": "developer", "content": "d"},
                {"role": "user", "content": "u", "name": "someone"},
                {"role": "assistant", "content": "a", "tool_calls": None, "refusal": None, "annotations": []},
            ]
        },
        [
            (1, "system", ("system", None, "s")),
            (2, "system", ("system", None, "d")),
            (3, "user", ("user", None, "u")),
            (4, "assistant", ("assistant", None, "a")),
        ],
    ),
    (
        "calls and their results",
        {
            "messages": [
                {"role": "assistant", "content": None, "tool_calls": [CALL]},
                {"role": "tool", "tool_call_id": "a", "content": "42"},
                {"role": "assistant", "tool_calls": [CALL]},
                {"role": "tool", "tool_call_id": "a", "content": [{"type": "text", "text": "4"}]},
                {"role": "function", "name": "read", "content": "43"},
                {"role": "function", "name": "read", "content": None},
            ]
        },
        [
            (1, "assistant"),
            (2, "tool", ("tool", None, "42")),
            (3, "assistant"),
            (4, "tool", ("tool", 1, "4")),
            (5, "tool", ("tool", None, "43")),
            (6, "tool"),
        ],
    ),
    (
        "parts that are no texts are kept and counted",
        {
            "messages": [
                {
                    "role": "user",
                    "content": [
                        IMAGE,
                        {"type": "text", "text": "one"},
                        {"type": "input_audio", "input_audio": {"data": "", "format": "wav"}},
                        {"type": "file", "file": {"file_id": "f"}},
                        {"type": "new", "text": "unknown"},
                        {"type": "text", "text": None},
                        {"type": ["text"], "text": "odd"},
                        "a part that is none",
                        {"type": "input_text", "text": "two"},
                    ],
                },
                {"role": "assistant", "content": [{"type": "refusal", "refusal": "no"}]},
            ]
        },
        [(1, "user", ("user", 2, "one"), ("user", 9, "two")), (2, "assistant")],
    ),
    (
        "unknown roles have no texts",
        {"messages": [{"role": "critic", "content": "c"}, {"content": "c"}, {"role": ["user"], "content": "c"}, {}]},
        [(1, "assistant"), (2, "assistant"), (3, "assistant"), (4, "assistant")],
    ),
    ("content of another kind", {"messages": [{"role": "user", "content": {"text": "x"}}]}, [(1, "user")]),
    ("no messages", {"messages": []}, None),
    ("messages that are no list", {"messages": {"role": "user"}}, None),
    ("a message that is no mapping", {"messages": [{"role": "user", "content": "x"}, "y"]}, None),
    ("nothing", {}, None),
]
COMPLETIONS = [
    ("a text", {"prompt": "p", "suffix": "s"}, [(1, "user", ("user", None, "p"))]),
    ("one text in a list", {"prompt": ["p"]}, [(1, "user", ("user", None, "p"))]),
    ("several prompts", {"prompt": ["p", "q"]}, None),
    ("token ids", {"prompt": [1, 2]}, None),
    ("one token id", {"prompt": [1]}, None),
    ("lists of token ids", {"prompt": [[1, 2]]}, None),
    ("no prompts", {"prompt": []}, None),
    ("no prompt", {"prompt": None}, None),
    ("nothing", {}, None),
]
RESPONSES = [
    ("a text", {"input": "i"}, [(1, "user", ("user", None, "i"))]),
    (
        "instructions first",
        {"instructions": "s", "input": "i"},
        [(1, "system", ("system", None, "s")), (2, "user", ("user", None, "i"))],
    ),
    ("instructions alone", {"instructions": "s", "prompt": {"id": "p"}}, [(1, "system", ("system", None, "s"))]),
    ("none of either", {"instructions": None, "input": None, "previous_response_id": "r"}, None),
    (
        "items of all kinds",
        {
            "instructions": None,
            "input": [
                {"role": "developer", "content": "d"},
                {
                    "type": "message",
                    "role": "user",
                    "content": [
                        {"type": "input_image", "image_url": "data:,", "detail": "auto"},
                        {"type": "input_text", "text": "u"},
                        {"type": "input_file", "file_id": "f"},
                        {"type": "input_text", "text": "v"},
                    ],
                },
                {"type": "reasoning", "id": "r", "summary": [{"type": "summary_text", "text": "t"}]},
                {"type": "function_call", "call_id": "a", "name": "read", "arguments": "{}"},
                {"type": "function_call_output", "call_id": "a", "output": "42"},
                {
                    "type": "function_call_output",
                    "call_id": "b",
                    "output": [
                        {"type": "input_image", "image_url": "data:,"},
                        {"type": "input_text", "text": "43"},
                    ],
                },
                {"type": "custom_tool_call_output", "call_id": "c", "output": "44"},
                {"type": "computer_call_output", "call_id": "c", "output": {"type": "computer_screenshot"}},
                {"type": "item_reference", "id": "m"},
                {
                    "type": "message",
                    "id": "m",
                    "role": "assistant",
                    "status": "completed",
                    "content": [
                        {"type": "output_text", "text": "a", "annotations": []},
                        {"type": "refusal", "refusal": "no"},
                    ],
                },
                {"type": ["message"], "role": "user", "content": "odd"},
                {"role": "assistant", "content": "b"},
            ],
        },
        [
            (1, "system", ("system", None, "d")),
            (2, "user", ("user", 1, "u"), ("user", 2, "v")),
            (3, "assistant"),
            (4, "assistant"),
            (5, "tool", ("tool", None, "42")),
            (6, "tool", ("tool", 1, "43")),
            (7, "tool", ("tool", None, "44")),
            (8, "assistant"),
            (9, "assistant"),
            (10, "assistant", ("assistant", 1, "a")),
            (11, "assistant"),
            (12, "assistant", ("assistant", None, "b")),
        ],
    ),
    ("an item that is no mapping", {"input": ["i"]}, None),
    ("an input of another kind", {"instructions": "s", "input": {"role": "user"}}, None),
]
DOCUMENT = {
    "type": "document",
    "source": {"type": "text", "media_type": "text/plain", "data": "never touched"},
    "citations": {"enabled": True},
}
SEARCH_RESULT = {
    "type": "search_result",
    "source": "https://example.com",
    "title": "t",
    "content": [{"type": "text", "text": "never touched"}],
}
MESSAGES = [
    (
        "a system prompt that stands apart",
        {
            "system": "s",
            "messages": [
                {"role": "user", "content": "u"},
                {"role": "assistant", "content": "a"},
                {"role": "system", "content": "t"},
            ],
        },
        [
            (1, "system", ("system", None, "s")),
            (2, "user", ("user", None, "u")),
            (3, "assistant", ("assistant", None, "a")),
            (4, "system", ("system", None, "t")),
        ],
    ),
    (
        "blocks of a system prompt",
        {
            "system": [
                {"type": "text", "text": "s", "cache_control": {"type": "ephemeral"}},
                {"type": "text", "text": "t"},
            ],
            "messages": [],
        },
        [(1, "system", ("system", 1, "s"), ("system", 2, "t"))],
    ),
    (
        "results alone",
        {
            "messages": [
                {
                    "role": "assistant",
                    "content": [
                        {"type": "thinking", "thinking": "h", "signature": "x"},
                        {"type": "text", "text": "a"},
                        {"type": "tool_use", "id": "a", "name": "read", "input": {"text": "x"}},
                    ],
                },
                {
                    "role": "user",
                    "content": [
                        {"type": "tool_result", "tool_use_id": "a", "content": "42"},
                        {
                            "type": "tool_result",
                            "tool_use_id": "b",
                            "content": [
                                {"type": "image", "source": {"type": "url", "url": "data:,"}},
                                {"type": "text", "text": "43"},
                                SEARCH_RESULT,
                                {"type": "text", "text": "44"},
                            ],
                        },
                        {"type": "tool_result", "tool_use_id": "c"},
                        {"type": "tool_result", "tool_use_id": "d", "content": "45", "is_error": True},
                    ],
                },
                {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "e"}]},
            ]
        },
        [
            (1, "assistant", ("assistant", 1, "a")),
            (2, "tool", ("tool", 1, "42"), ("tool", 2, "43"), ("tool", 3, "44"), ("tool", 4, "45")),
            (3, "tool"),
        ],
    ),
    (
        "results and texts",
        {
            "messages": [
                {
                    "role": "user",
                    "content": [
                        {"type": "tool_result", "tool_use_id": "a", "content": "42"},
                        {"type": "text", "text": "u"},
                    ],
                }
            ]
        },
        [(1, "user", ("tool", 1, "42"), ("user", 2, "u"))],
    ),
    (
        "documents and search results are cited by their places",
        {"messages": [{"role": "user", "content": [DOCUMENT, SEARCH_RESULT, {"type": "text", "text": "u"}]}]},
        [(1, "user", ("user", 1, "u"))],
    ),
    (
        "only a user gives results",
        {"messages": [{"role": "assistant", "content": [{"type": "tool_result", "content": "42"}]}]},
        [(1, "assistant")],
    ),
    ("an empty content", {"messages": [{"role": "user", "content": []}]}, [(1, "user")]),
    ("an unknown role", {"messages": [{"role": "critic", "content": "c"}]}, [(1, "assistant")]),
    ("messages that are no list", {"system": "s", "messages": "m"}, None),
    ("a message that is no mapping", {"system": "s", "messages": [None]}, None),
    ("nothing", {}, None),
]
CASES = [
    pytest.param(api, body, expected, id=f"{api}: {name}")
    for api, cases in (("chat", CHAT), ("completions", COMPLETIONS), ("responses", RESPONSES), ("messages", MESSAGES))
    for name, body, expected in cases
]
