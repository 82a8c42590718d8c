"""What the proxy's benchmark sends: documents in a wrapper, tools' results, plain chats; texts of recorded traces."""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

TRACES = Path(__file__).resolve().parents[2] / "shared" / "traces"
SIZE = 30_000
"""Bytes of a body, about."""
SYSTEM = "Answer from the documents. Say which of them you used, and say so if none of them has the answer."
DOCUMENTS = 15
_SYNTHETIC = 600
_WORDS = """account amount annual asset average balance between capital cash change contract cost credit currency
current customer debt decrease effect employee equity estimate expense fair financial fiscal growth
income increase interest lease liability long market material million net note operating option payment
percent period plan product profit rate recorded report revenue sale segment service share stock tax
term total value vendor year""".split()

Body = dict[str, Any]


class Texts:
    """Texts of documents, and which of them come together.

    Of the trace tatqa, with what a retriever found for each question; without the traces: of words drawn by chance.

    Args:
        name: of the trace; None: made up.
    """

    def __init__(self, name: str | None = "tatqa/trace_bm25_top15.jsonl.gz") -> None:
        path = None if name is None else TRACES / name
        if path is not None and path.exists():
            self.source = f"of the trace {path.parent.name}"
            self.of, self.found = _recorded(path)
        else:
            self.source = "made up"
            self.of, self.found = _made_up()

    def new(self, seed: int) -> Iterator[tuple[str, list[str]]]:
        """Questions with their documents, without an end: such as were recorded, with three of another one's."""
        numbers = random.Random(seed)
        while True:
            question, names = numbers.choice(self.found)
            names = list(names)
            strange = [name for name in numbers.choice(self.found)[1] if name not in names][:3]
            for place, name in zip(numbers.sample(range(DOCUMENTS), len(strange)), strange, strict=True):
                names[place] = name
            yield f"{question} ({numbers.randrange(10**9)})", names


def documents(texts: Texts, question: str, names: Sequence[str], size: int = 0, *, numbered: bool = False) -> Body:
    """A chat with a wrapper that names itself, and the question behind it.

    Args:
        texts: of the documents.
        question: of the request.
        names: of its documents, best first.
        size: of all documents' texts together, about; 0: they are whole.
        numbered: they are called 1, 2, 3, ..., and not by their names.
    """
    kept = [texts.of[name] for name in names]
    if size:
        kept = _cut(kept, size)
    labels = [f'index="{place}"' if numbered else f'id="{name}"' for place, name in enumerate(names, start=1)]
    inside = "\n".join(f"<document {label}>\n{text}\n</document>" for label, text in zip(labels, kept, strict=True))
    return _chat([_system(), {"role": "user", "content": f"<documents>\n{inside}\n</documents>\n\n{question}"}])


def tools(texts: Texts, question: str, names: Sequence[str]) -> Body:
    """A conversation of an agent that has read files, one of them twice, and asks on."""
    messages = [_system()]
    kept = _cut([texts.of[name] for name in [*names[:8], names[0]]], SIZE - 3_000)
    for number, text in enumerate(kept):
        messages.append({"role": "user", "content": f"Read file {number}: {question}"})
        messages += read(f"call_{number}", f"file_{number}.txt", text)
        messages.append({"role": "assistant", "content": "Noted."})
    messages.append({"role": "user", "content": question})
    return _chat(messages)


def plain(texts: Texts, question: str, names: Sequence[str]) -> Body:
    """A chat of the same size in which there is nothing to recognise."""
    text = "\n\n".join(_cut([texts.of[name] for name in names], SIZE - 1_000))
    return _chat([_system(), {"role": "user", "content": f"{text}\n\n{question}"}])


def read(call: str, path: str, text: str) -> list[Body]:
    """An agent's call of a tool that reads a file, and its result."""
    function = {"name": "read", "arguments": json.dumps({"path": path})}
    return [
        {"role": "assistant", "content": None, "tool_calls": [{"id": call, "type": "function", "function": function}]},
        {"role": "tool", "tool_call_id": call, "content": text},
    ]


def bodies(kind: str, texts: Texts, seed: int, count: int, *, stream: bool) -> list[bytes]:
    """Bodies of one kind: "documents", "tools" or "plain"."""
    made: list[bytes] = []
    for question, names in islice(texts.new(seed), count):
        if kind == "documents":
            body = documents(texts, question, names, SIZE - 2_500)
        else:
            body = (tools if kind == "tools" else plain)(texts, question, names)
        if stream:
            body |= {"stream": True, "stream_options": {"include_usage": True}}
        made.append(json.dumps(body, ensure_ascii=False).encode())
    return made


def conversations() -> Iterator[list[Body]]:
    """The messages of each conversation of the trace clawtasks, up to its last answer; its files are tools' results."""
    texts = {row["id"]: row["text"] for row in _rows(TRACES / "clawtasks" / "corpus.jsonl")}
    turns: dict[str, list[Mapping[str, Any]]] = {}
    for row in _rows(TRACES / "clawtasks" / "trace_reads.jsonl"):
        turns.setdefault(row["conversation"], []).append(row)
    for of in turns.values():
        messages = [_system()]
        for turn in of:
            messages.append({"role": "user", "content": turn["question"]})
            for name in dict.fromkeys(turn["context_ids"]):
                messages += read(f"call_{len(messages)}", name, texts[name])
            messages.append({"role": "assistant", "content": "Noted."})
        yield messages


def http(body: bytes, path: str = "/v1/chat/completions", method: str = "POST") -> bytes:
    """A request as it goes over the wire."""
    lines = [f"{method} {path} HTTP/1.1", "host: 127.0.0.1", "authorization: Bearer bench"]
    lines += ["content-type: application/json", f"content-length: {len(body)}"] if method == "POST" else []
    return "\r\n".join([*lines, "", ""]).encode() + body


def _system() -> Body:
    return {"role": "system", "content": SYSTEM}


def _chat(messages: list[Body]) -> Body:
    return {"model": "fake-engine", "messages": messages, "max_tokens": 16}


def _cut(texts: Sequence[str], size: int) -> list[str]:
    """All texts, each cut so that together they have about so many bytes; repeated where that is too few.

    What a text is cut to depends on itself alone, so that equal documents stay equal.
    """
    each = size // len(texts)
    return [(text * (1 + each // max(1, len(text))))[:each] for text in texts]


def _recorded(path: Path) -> tuple[dict[str, str], list[tuple[str, list[str]]]]:
    corpus = next(path.parent.glob("corpus.jsonl*"))
    texts = {row["id"]: "\n".join(filter(None, [row.get("title"), row["text"]])) for row in _rows(corpus)}
    asked = {row["id"]: row["question"] for row in _rows(path.parent / "queries.jsonl")}
    found = [(row.get("question") or asked[row["qid"]], list(dict.fromkeys(row["context_ids"]))) for row in _rows(path)]
    return texts, [(question, names) for question, names in found if len(names) >= DOCUMENTS]


def _made_up() -> tuple[dict[str, str], list[tuple[str, list[str]]]]:
    numbers = random.Random(0)
    texts = {f"doc-{number}": " ".join(numbers.choices(_WORDS, k=290)) for number in range(_SYNTHETIC)}
    names = list(texts)
    found = []
    for number in range(2_000):
        topic = int(numbers.paretovariate(0.8)) % (_SYNTHETIC // 20)
        near = numbers.sample(names[20 * topic : 20 * topic + 20], 10)
        far = numbers.sample(names, DOCUMENTS)
        found.append((f"What does document {number} say?", list(dict.fromkeys([*near, *far]))[:DOCUMENTS]))
    return texts, found


def _rows(path: Path) -> Iterator[dict[str, Any]]:
    data = path.read_bytes()
    text = (gzip.decompress(data) if path.suffix == ".gz" else data).decode("utf-8")
    return (json.loads(line) for line in text.splitlines() if line.strip())
