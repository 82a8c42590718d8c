"""Conversations made at random, of every format, with blocks in every form and much that only looks like blocks."""

from __future__ import annotations

import copy
import json

WORDS = "alpha beta gamma delta notice party clause term supply carrier model index cache month shall deliver".split()
FIELDS = {"chat": "messages", "messages": "messages", "responses": "input"}
WRAPPERS = [
    ("documents", "document"),
    ("docs", "doc"),
    ("context", "passage"),
    ("search_results", "result"),
    ("memories", "memory"),
    ("CONTEXTS", "CONTEXT"),
]
LOOKALIKES = [
    '[same text as in message 1 at 0: 5 characters from "hello"]',
    "\\[same text as in message 1",
    "Order of relevance, best first: [2] > [1]",
    "[1] (given above)",
    "<documents>\n[1] x\n</documents>",
    "</documents>",
    "</document>",
    "<documents><document>a</document><document>b</document></documents>",
]


def paragraph(random, sentences):
    """Some sentences, no two of which are likely to be the same."""
    found = []
    for _ in range(sentences):
        words = [random.choice(WORDS) for _ in range(random.randint(6, 14))]
        found.append(" ".join(words).capitalize() + random.choice([". ", ".\n", ".\n"]))
    return "".join(found)


def passages(random):
    """Nine plain texts, and others that are hard on whoever compares, cuts or escapes texts."""
    plain = [paragraph(random, random.randint(4, 10)) for _ in range(9)]
    odd = [
        plain[0].replace("\n", "\r\n"),
        plain[1] + "\n\n",
        plain[2][:200],
        "  " + plain[3],
        plain[4].replace("alpha", "a\u0301lpha"),
        "",
        " ",
        "x",
        "\U0001f642 " * 40 + plain[6],
        "\u202e\u05e9\u05dc\u05d5\u05dd " + plain[7],
        "a\x00b " + plain[8],
        plain[0] + plain[1] + plain[2],
        "one\n[2] no label\n" + plain[3],
        f"<b>{plain[4]}</b>",
        'He said "no" \\ twice. ' * 9,
        "\\" + plain[1],
        "def f(a):\n    return a[1] + b[2]\n" * 7,
        plain[0] + "\u2028" + plain[1],
        "| 1 | a |\n| 2 | b |\n" * 9,
    ]
    return plain, [*plain, *odd]


class Talker:
    """Makes texts.

    Args:
        random: chooses.
    """

    def __init__(self, random):
        self.random = random
        self.plain, self.passages = passages(random)
        self.opening = random.choice(WRAPPERS[:3])
        self.named = random.choice(["index", "id", ""])

    def content(self):
        random = self.random
        if random.random() < 0.06:
            return random.choice(LOOKALIKES) + random.choice(["", "\n" + random.choice(self.passages)])
        return random.choice(self.passages)

    def opened(self):
        """What prompts of several conversations begin with."""
        wrapper, item = self.opening
        some = self.random.sample(self.plain, self.random.randint(2, 6))
        names = {"index": lambda place, _: f' index="{place}"', "id": lambda _, text: f' id="{hash_of(text)}"'}
        name = names.get(self.named, lambda *_: "")
        inside = "\n".join(f"<{item}{name(place, text)}>{text}</{item}>" for place, text in enumerate(some, 1))
        return f"<{wrapper}>\n{inside}\n</{wrapper}>"

    def wrapped(self):
        random = self.random
        wrapper, item = random.choice(WRAPPERS)
        many = random.randint(2, 5)
        texts = [self.content() for _ in range(many)]
        if random.random() < 0.5:
            texts = random.sample(self.plain, many)
        style = random.choice(["", ' index="{place}"', ' source="{place}.txt" score="0.{place}"', "children"])
        items = []
        for place, text in enumerate(texts, 1):
            if style == "children":
                inside = f"\n<source>{place}</source>\n<document_content>\n{text}\n</document_content>\n"
                items.append(f"<{item}>{inside}</{item}>")
            else:
                items.append(f"<{item}{style.format(place=place)}>{random.choice(['', chr(10)])}{text}\n</{item}>")
        gap = random.choice(["\n", "", "\n\n", "\n---\n", " , "])
        return f"<{wrapper}>\n{gap.join(items)}\n</{wrapper}>"

    def listed(self):
        random = self.random
        found = [
            {"id": f"c{place}", "text": text, "score": 0.5}
            for place, text in enumerate(random.sample(self.passages, random.randint(2, 5)))
        ]
        value = random.choice([found, {"results": found}, {"file": random.choice(self.passages), "n": [1, 2]}])
        return json.dumps(value, indent=random.choice([None, 2]), ensure_ascii=random.random() < 0.5)

    def numbered(self):
        items = [paragraph(self.random, 1).strip() for _ in range(self.random.randint(2, 5))]
        return self.random.choice(["\n", "\n\n"]).join(f"[{place}] {text}" for place, text in enumerate(items, 1))

    def headed(self):
        some = self.random.sample(self.plain, self.random.randint(2, 5))
        return "\n\n".join(f"Document {place}:\n{text.strip()}" for place, text in enumerate(some, 1))

    def plainly(self):
        return self.random.choice(
            ["Why?", "What is it?\n", "", paragraph(self.random, 2), self.content(), f"```\n{self.wrapped()}\n```"]
        )

    def said(self):
        kinds = [self.plainly, self.plainly, self.wrapped, self.wrapped, self.wrapped, self.numbered, self.headed]
        some = [self.random.choice(kinds)() for _ in range(self.random.choice([1, 1, 2, 3, 4]))]
        return self.random.choice(["\n\n", "\n", "\r\n\r\n"]).join(some)

    def result(self):
        two = "".join(self.random.choice(self.passages) for _ in range(2))
        return self.random.choice([self.wrapped, self.listed, self.listed, lambda: two, self.said, self.numbered])()


def hash_of(text):
    """A name for a text, equal in every run."""
    return sum(map(ord, text))


class Conversation:
    """One client's conversation.

    Args:
        talker: makes its texts.
        api: the format of its requests.
        gives: how it gives blocks explicitly: "message", "body", "named"; empty: it does not.
    """

    def __init__(self, talker, api, gives):
        random = talker.random
        self.talker, self.random, self.api, self.gives = talker, random, api, gives
        self.turns = []
        self.system = random.choice(["Be brief."] * 6 + [talker.said(), None])
        self.rest = {name: value for name, value in REST.items() if random.random() < 0.2}
        self.name = str(random.random())
        self.marks = random.random() < 0.5
        self.how = {"indent": random.choice([None, 1]), "ensure_ascii": random.random() < 0.5}

    def go_on(self):
        """Another turn."""
        random, talker = self.random, self.talker
        if self.turns:
            self.turns.append({"role": "assistant", "content": random.choice(["Yes.", talker.said()])})
        if not self.turns and random.random() < 0.8:
            self._ask(talker.opened() + random.choice(["", "\n\nWhy?", "\n" + talker.said()]))
        elif self.turns and random.random() < 0.5:
            self._call(talker.result())
        else:
            self._ask(talker.said())

    def body(self):
        """The request as it is now."""
        turns = copy.deepcopy(self.turns)
        body = {"model": "m", **self.rest}
        if self.api == "completions":
            return {**body, "prompt": "\n".join(str(turn["content"]) for turn in turns)}
        if self.system is not None:
            if self.api == "chat":
                turns = [{"role": "system", "content": self.system}, *turns]
            else:
                body["instructions" if self.api == "responses" else "system"] = self.system
        if self.api == "messages" and self.marks:
            last = turns[-1]
            if isinstance(last["content"], str):
                last["content"] = [{"type": "text", "text": last["content"]}]
            last["content"][-1]["cache_control"] = {"type": "ephemeral"}
        body[FIELDS[self.api]] = turns
        if self.gives in ("body", "named"):
            field = {"blocks": self._blocks()} if self.turns[-1].get("role") == "user" and not self._called() else {}
            if self.gives == "named":
                field["conversation"] = self.name
            body["contextpilot"] = field
        return body

    def _ask(self, text):
        message = {"role": "user", "content": self._parts(text, 0.25)}
        if self.gives == "message":
            message["contextpilot"] = {"blocks": self._blocks()}
        self.turns.append(message)

    def _call(self, text):
        name = f"call_{len(self.turns)}"
        if self.api == "chat":
            self.turns.append({"role": "tool", "tool_call_id": name, "content": self._parts(text, 0.15)})
        elif self.api == "responses":
            self.turns.append({"type": "function_call_output", "call_id": name, "output": text})
        elif self.api == "messages":
            content = [{"type": "tool_result", "tool_use_id": name, "content": self._parts(text, 0.3)}]
            if self.random.random() < 0.3:
                content.append({"type": "text", "text": self.talker.said()})
            self.turns.append({"role": "user", "content": content})
        else:
            self.turns.append({"role": "user", "content": text})

    def _called(self):
        content = self.turns[-1]["content"]
        return isinstance(content, list) and content[0].get("type") == "tool_result"

    def _parts(self, text, often):
        random = self.random
        if random.random() > often:
            return text
        kind = "input_text" if self.api == "responses" else "text"
        parts = [{"type": kind, "text": text}]
        if random.random() < 0.5:
            parts.insert(random.choice([0, 1]), {"type": "image_url", "image_url": {"url": "data:,"}})
        if random.random() < 0.4:
            parts.append({"type": kind, "text": self.talker.plainly()})
        return parts

    def _blocks(self):
        some = [self.talker.content() for _ in range(self.random.randint(0 if self.turns else 1, 5))]
        return [text if self.random.random() < 0.5 else {"text": text, "id": hash_of(text)} for text in some]


REST = {"temperature": 1.50, "stream": True, "unknown": {"a": [1, None]}, "n": 1}
