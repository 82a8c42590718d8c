"""Texts with groups of blocks, and texts that only look like some."""

from __future__ import annotations

import json

from hypothesis import strategies as st

from contextpilot_rag.proxy.finding.prose import is_ours

WORDS = st.text(alphabet="abc déx\n.,'\"\\[1]&;:#`-", max_size=40)
PLAIN = WORDS.filter(lambda text: "```" not in text)
GAPS = st.text(alphabet=" \n\t-,;.", max_size=6)

LOOK_ALIKES = {
    "Python": "def f(a, b):\n    a[0] = b[1]\n    return a[2]  # [1] see [2]\n",
    "JavaScript": "const sources = [1, 2];\n[1].forEach((x) => x[1]);\n[2].map(String)\n",
    "C": "int b[2] = {0};\nb[0] = 1;\nb[1] = b[0];\n",
    "JSX": "return (\n  <Docs>\n    <Doc id='1'>a</Doc>\n    <Doc id='2'>b</Doc>\n  </Docs>\n)",
    "JSX, closed": "<documents>\n  <document id={1} />\n  <document id={2} />\n</documents>",
    "expressions": "<documents>\n<document id={a}>A</document>\n<document id={b}>B</document>\n</documents>",
    "HTML": "<!DOCTYPE html>\n<body>\n<docs>\n<doc>a</doc>\n<doc>b</doc>\n</docs>\n</body>",
    "HTML, in the middle": "<html>\n<docs>\n<doc>a</doc>\n<doc>b</doc>\n</docs>\n</html>",
    "video": "<video>\n  <source src='a.mp4'>\n  <source src='b.mp4'>\n</video>",
    "XML": "<?xml version='1.0'?>\n<documents>\n<document>a</document>\n<document>b</document>\n</documents>",
    "XML behind words": "My file: <?xml version='1.0'?>\n<docs>\n<doc>a</doc>\n<doc>b</doc>\n</docs>",
    "a piece of a build file": (
        "<configuration>\n  <sources>\n    <source>src/main</source>\n    <source>src/gen</source>\n  </sources>\n"
        "</configuration>"
    ),
    "a diff": "diff --git a/x b/x\n@@ -1,4 +1,4 @@\n <docs>\n <doc>a</doc>\n <doc>b</doc>\n </docs>\n",
    "an addition": "+<docs>\n+<doc>a</doc>\n+<doc>b</doc>\n+</docs>\n",
    "a table": "| n | text |\n|---|---|\n| [1] | a |\n| [2] | b |\n",
    "CSV": "id,text\n[1],a\n[2],b\n",
    "a log": "[1] INFO started\n[2] WARN <document>\n[3] INFO </document>\n",
    "citations": "As was shown [1], and again [2].\n\n[1] A. Author, 2001.\n[2] B. Author, 2002.\n",
    "a fence": "Write it so:\n```xml\n<documents>\n<document>a</document>\n<document>b</document>\n</documents>\n```\n",
    "a fence of tildes": "~~~\n<documents>\n<document>a</document>\n<document>b</document>\n</documents>\n~~~\n",
    "a fence in a list": "- so:\n  ````\n  ```\n  <docs>\n  <doc>a</doc>\n  <doc>b</doc>\n  </docs>\n  ````\n",
    "an open fence": "```\n<docs>\n<doc>a</doc>\n<doc>b</doc>\n</docs>\n",
    "a fence that begins inside": "<docs>\n```\n<doc>a</doc>\n<doc>b</doc>\n</docs>\n```\n",
    "prose": "Answer from the <documents> that are given as <document>s, and not from </documents>.",
    "prose at the start of a line": "<documents> are given below.\n<document> is one of them.\n",
    "a template": "<documents>\n<document>{a}</document>\n<document>{b}</document>\n</documents>",
    "a template's loop": "<docs>\n{% for d in docs %}<doc>{{ d }}</doc>\n{% endfor %}</docs>",
    "no close": "<documents>\n<document>a</document>\n<document>b</document>\n",
    "no open": "<document>a</document>\n<document>b</document>\n</documents>",
    "an item without close": "<documents>\n<document>a\n<document>b</document>\n</documents>",
    "an item that closes twice": "<documents>\n<document>a</document></document>\n<document>b</document>\n</documents>",
    "another case at the close": "<documents>\n<document>a</Document>\n<document>b</document>\n</documents>",
    "a wrapper in an item": (
        "<documents>\n<document>a\n<documents>\n<document>b</document>\n<document>c</document>\n</documents>\n</document>\n"
        "<document>d</document>\n</documents>"
    ),
    "another wrapper in the only item": (
        "<documents>\n<document>\n<passages>\n<passage>a</passage>\n<passage>b</passage>\n</passages>\n</document>\n"
        "</documents>"
    ),
    "an item in an item": "<docs>\n<doc>a <doc>b</doc></doc>\n<doc>c</doc>\n</docs>",
    "a tag in the text of one": "<docs>\n<doc>the <DOC> tag</doc>\n<doc>c</doc>\n</docs>",
    "a tag with blanks": "<docs>\n<doc>a < / doc ></doc>\n<doc>c</doc>\n</docs>",
    "one item": "<documents>\n<document>a</document>\n</documents>",
    "no items": "<documents>\nNothing was found.\n</documents>",
    "two names": "<documents>\n<document>a</document>\n<doc>b</doc>\n<document>c</document>\n</documents>",
    "text that goes with items": "<docs>\nFirst, from a.txt:\n<doc>a</doc>\nThen, from b.txt:\n<doc>b</doc>\n</docs>",
    "elements that go with items": "<docs>\n<title>A</title>\n<doc>a</doc>\n<title>B</title>\n<doc>b</doc>\n</docs>",
    "not first on its line": "See <docs>\n<doc>a</doc>\n<doc>b</doc>\n</docs>",
    "not last on its line": "<docs>\n<doc>a</doc>\n<doc>b</doc>\n</docs>, and more",
    "a name that is longer": "<documents-x>\n<document>a</document>\n<document>b</document>\n</documents-x>",
    "an order hint": "<docs>\n<doc>a\nOrder of relevance, best first: 2 > 1</doc>\n<doc>b</doc>\n</docs>",
    "an order hint below": "<docs>\n<doc>a</doc>\n<doc>b</doc>\n</docs>\n\nOrder of relevance, best first: 2 > 1",
    "a location hint": '<docs>\n<doc>a [same text as in [1] at 0: 9 characters from "a"]</doc>\n<doc>b</doc>\n</docs>',
    "a block given above": "<docs>\n<doc>\n(given above)</doc>\n<doc>b</doc>\n</docs>",
    "our own prompt": "<documents>\n[1] One.\n\n[2] Two.\n</documents>\n\nWhy?",
    "package.json": '{"name": "x", "files": ["a"], "dependencies": {"b": "^1.0"}, "sources": ["a", "b"]}',
    "settings": '{"data": {"items": [{"name": "a", "value": 1}, {"name": "b", "value": 2}]}}',
    "rules": '[{"name": "a", "text": "Never say so"}, {"name": "b", "text": "Always say so"}]',
    "OpenAPI": '{"openapi": "3.1.0", "paths": {"/a": {"get": {"summary": "a"}}}, "tags": [{"name": "a"}]}',
    "a notebook": (
        '{"cells": [{"cell_type": "code", "source": ["a"]}, {"cell_type": "markdown", "source": ["b"]}], "nbformat": 4}'
    ),
    "cells": '[{"cell_type": "code", "id": "a", "text": "1"}, {"cell_type": "code", "id": "b", "text": "2"}]',
    "messages": '[{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]',
    "parts": '[{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]',
    "JSON logs": '[{"ts": 1, "level": "info", "text": "a"}, {"ts": 2, "level": "warn", "text": "b"}]',
    "lines of JSON": '{"id": 1, "text": "a"}\n{"id": 2, "text": "b"}\n',
    "speech": '{"text": "ab", "chunks": [{"timestamp": [0, 1], "text": "a"}, {"timestamp": [1, 2], "text": "b"}]}',
    "pages": '{"documents": [{"page": 1, "text": "a"}, {"page": 2, "text": "b"}]}',
    "comments": '[{"id": 1, "user": "x", "body": "a"}, {"id": 2, "user": "y", "body": "b"}]',
    "one result": '{"results": [{"text": "a"}]}',
    "two lists": '{"results": [{"text": "a"}, {"text": "b"}], "documents": [{"text": "c"}, {"text": "d"}]}',
    "a key twice": '{"results": [{"text": "a", "text": "b"}, {"text": "c"}]}',
    "the list twice": '{"results": [], "results": [{"text": "a"}, {"text": "b"}]}',
    "a key twice, once spelled": '{"results": [{"text": "a", "\\u0074ext": "b"}, {"text": "c"}]}',
    "not a number": '{"results": [{"text": "a", "score": NaN}, {"text": "b", "score": 1}]}',
    "a comma too many": '{"results": [{"text": "a"}, {"text": "b"},]}',
    "more behind it": '{"results": [{"text": "a"}, {"text": "b"}]} and more',
    "half a surrogate": '{"results": [{"text": "\ud800"}, {"text": "b"}]}',
    "texts of other types": '{"results": [{"text": "a"}, {"text": 1}]}',
    "a hint in JSON": '{"results": [{"text": "a\\n(given above)"}, {"text": "b"}]}',
    "a location hint in JSON": '{"results": [{"text": "a [same text as in [1] at"}, {"text": "b"}]}',
}


@st.composite
def wrapped(draw):
    """A text with a wrapper in it, and the bodies of its items."""
    wrapper, item = draw(st.sampled_from([("documents", "document"), ("context", "passage"), ("contexts", "context")]))
    if draw(st.booleans()):
        wrapper, item = wrapper.upper(), item.upper()
    count = draw(st.integers(2, 6))
    bodies = draw(st.lists(PLAIN, min_size=count, max_size=count))
    naming = draw(st.sampled_from(["none", "ones", "zeros", "ids"]))
    names = {
        "none": [""] * count,
        "ones": [f' index="{n}"' for n in range(1, count + 1)],
        "zeros": [f" title='a>b' id = '{n}'" for n in range(count)],
        "ids": [f' id="x{n * 7}" url="a/b"' for n in range(count)],
    }[naming]
    gaps = draw(st.lists(GAPS, min_size=count + 1, max_size=count + 1))
    items = [f"<{item}{name}>{body}</{item}>" for name, body in zip(names, bodies, strict=True)]
    inside = "".join(gap + one for gap, one in zip(gaps, items, strict=False)) + gaps[-1]
    before = draw(PLAIN.map(lambda text: f"{text}\n") | st.sampled_from(["", " ", "\n\t"]))
    after = draw(PLAIN.map(lambda text: f"\n{text}") | st.sampled_from(["", " ", " \n"]))
    return f"{before}<{wrapper}>{inside}</{wrapper}>{after}", bodies


@st.composite
def results(draw):
    """A JSON text with a list of results, and their texts as JSON writes them."""
    count = draw(st.integers(2, 6))
    bodies = draw(st.lists(st.text(max_size=40).filter(lambda text: not is_ours(text)), min_size=count, max_size=count))
    field = draw(st.sampled_from(["text", "content", "page_content", "snippet"]))
    more = draw(st.sampled_from([{}, {"metadata": {"a": ["}", {"]": '"'}]}}, {"score": -1.5e-3, "b\\": None}]))
    found = [{"id": n * 3, **more, field: body} for n, body in enumerate(bodies)]
    ascii_only = draw(st.booleans())
    indent = draw(st.sampled_from([None, 0, 2]))
    shape = draw(st.sampled_from(["bare", "results", "nested"]))
    value = {"bare": found, "results": {"n": 2, "results": found, "z": []}, "nested": {"data": {"documents": found}}}[
        shape
    ]
    text = json.dumps(value, ensure_ascii=ascii_only, indent=indent)
    blanks = st.sampled_from(["", " ", "\n\n"])
    return draw(blanks) + text + draw(blanks), [json.dumps(body, ensure_ascii=ascii_only)[1:-1] for body in bodies]
