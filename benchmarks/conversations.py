"""Conversations: what is not sent twice, and what stays an exact prefix of the turn before.

    python benchmarks/conversations.py

Writes its tables into benchmarks/README.md. Needs the recorded traces (../shared/traces). Tokens are counted by the
demo's engine where it can run, else they are UTF-8 bytes over four.
"""

from __future__ import annotations

import gzip
import http.client
import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import fmean
from typing import Any
from urllib.parse import urlsplit

sys.path.insert(0, str(Path(__file__).resolve().parent))

from report import provenance, table, write_section

from contextpilot_rag import ContextPilot, deduplicate, expand
from contextpilot_rag.conversation import Conversation
from contextpilot_rag.dedup.chunks import Repeats
from contextpilot_rag.dedup.units import normal
from contextpilot_rag.demo.llama import LlamaEngine
from contextpilot_rag.errors import EngineUnavailable

TRACES = Path(__file__).resolve().parents[2] / "shared" / "traces"
LEVELS = ("off", "blocks", "blocks+chunks")
SYSTEM = "Answer from the documents."
Messages = list[dict[str, Any]]


def main() -> None:
    """Measure and write."""
    if not TRACES.exists():
        sys.exit(f"the recorded traces are not at {TRACES}")
    with counter() as (count, counted):
        parts = [
            "## Conversations: nothing is given twice",
            f"From {provenance()} Tokens: {counted}.",
            agents(count),
            retrieval(count),
            costs(count),
        ]
    write_section("conversations", "\n\n".join(parts))


def agents(count: Callable[[str], int]) -> str:
    """Document analysis: every file that a task names is read in that turn and stays in the history."""
    texts = {row["id"]: row["text"] for row in _rows(TRACES / "clawtasks" / "corpus.jsonl")}
    length = {name: count(text) for name, text in texts.items()}
    left, lower, reads, before = [], [], [0, 0], [0, 0]
    for turns in _conversations(TRACES / "clawtasks" / "trace_reads.jsonl").values():
        messages: Messages = [{"role": "system", "content": SYSTEM}]
        for turn in turns:
            messages.append({"role": "user", "content": turn["question"]})
            for name in dict.fromkeys(turn["context_ids"]):
                call = {"id": f"call_{len(messages)}", "type": "function",
                        "function": {"name": "read", "arguments": json.dumps({"path": name})}}  # fmt: skip
                messages.append({"role": "assistant", "content": None, "tool_calls": [call]})
                messages.append({"role": "tool", "tool_call_id": f"call_{len(messages) - 1}", "content": texts[name]})
            messages.append({"role": "assistant", "content": "Noted."})
        sent = deduplicate(messages)
        _check(messages, expand(sent))
        read = sum(length[name] for turn in turns for name in dict.fromkeys(turn["context_ids"]))
        sent_read = sum(count(message["content"]) for message in sent if message["role"] == "tool")
        whole, sent_whole = (sum(count(_content(message)) for message in each) for each in (messages, sent))
        reads[0] += read
        reads[1] += sent_read
        before[0] += whole
        before[1] += sent_whole
        if read:
            left.append(1 - sent_read / read)
        lower.append(1 - sent_whole / whole)
    rows = [
        ["tokens read", f"{reads[0]:,}", f"{reads[1]:,}", f"{1 - reads[1] / reads[0]:.1%}", f"{fmean(left):.1%}"],
        ["prompt tokens of the whole conversations", f"{before[0]:,}", f"{before[1]:,}",
         f"{1 - before[1] / before[0]:.1%}", f"{fmean(lower):.1%}"],
    ]  # fmt: skip
    return (
        f"clawtasks, {len(lower)} conversations of an agent that reads files: each file's text is a tool's result, "
        "`deduplicate(messages)`. `expand` restores all of it.\n\n"
        + table(["", "as it is", "sent", "less in all", "less, mean of the conversations"], rows)
    )


def retrieval(count: Callable[[str], int]) -> str:
    """Multi-turn retrieval: all turns in one append-only history."""
    texts = {row["id"]: row["text"] for row in _rows(TRACES / "mtrag" / "corpus.jsonl.gz")}
    answers = {row["id"]: row.get("answer") or "Noted." for row in _rows(TRACES / "mtrag" / "queries.jsonl")}
    rows = []
    for level in LEVELS:
        pilot = ContextPilot("embedded", dedup=level)
        added, alike, again, given = [], [], 0, 0
        for turns in _conversations(TRACES / "mtrag" / "trace_bm25_prevcur_top15.jsonl").values():
            talk: Conversation = pilot.conversation(system=SYSTEM)
            last = ""
            for turn in turns:
                names = list(dict.fromkeys(turn["context_ids"]))
                prompt = talk.align([(name, texts[name]) for name in names], turn["question"])
                messages: Any = prompt.messages()
                full = expand(messages)[-1]["content"]
                if not all(normal(texts[name]) in normal(full) for name in names):
                    raise ValueError(f"a block of {turn['qid']} is lost")
                whole = json.dumps(messages, ensure_ascii=False)[:-1]
                if last:
                    alike.append(_common(last, whole) / len(last))
                last = whole
                added.append(count(prompt.user_message))
                again += len(prompt.again)
                given += len(prompt.order)
                talk.answer(answers[turn["qid"]])
        rows.append([f"`{level}`", f"{fmean(added):,.0f}", f"{again / given:.1%}", f"{min(alike):.2%}"])
    full = float(str(rows[0][1]).replace(",", ""))
    for row in rows:
        row.insert(2, f"{1 - float(str(row[1]).replace(',', '')) / full:.1%}")
    return (
        "mtrag, bm25_prevcur_top15: 110 conversations, 842 turns, all turns of a conversation in one append-only "
        "history. `off` gives every block in each turn. *prefix*: how much of the previous turn's prompt the next one "
        "begins with, at least. `expand` restores all blocks.\n\n"
        + table(["dedup", "prompt tokens a turn adds", "less than off", "blocks given before", "prefix"], rows)
    )


def costs(count: Callable[[str], int]) -> str:
    """Time to search new text, once warm."""
    texts = [row["text"] for row in _rows(TRACES / "clawtasks" / "corpus.jsonl")]
    fresh = [text for text in texts if len(text) > 1_000]
    measured = {f"{len(fresh)} files, each new": fresh}
    for size in (100_000, 1_000_000, 10_000_000, 20_000_000):
        joined = "".join(texts[number % len(texts)] for number in range(size // 2_000))[:size]
        measured[f"{size:,} characters, lines"] = [joined]
        measured[f"{size:,} characters, one line"] = [joined.replace("\n", " ")]
    rows = []
    for name, parts in measured.items():
        tokens = sum(count(part[:1_000_000]) * len(part) / min(len(part), 1_000_000) for part in parts)
        times = [(sum(map(_timed, parts)), sum(map(_dumped, parts))) for _ in range(3 if tokens > 1e6 else 25)]
        seconds, dumping = (min(column) for column in zip(*times, strict=True))
        rows.append([name, f"{tokens:,.0f}", f"{1e3 * seconds:.1f}", f"{1e3 * seconds / tokens * 1e4:.2f}",
                     f"{seconds / dumping:.1f}"])  # fmt: skip
    return (
        "Time of `Repeats.add`, the best of several runs, and as many times what it takes to write the same text as "
        "JSON, as any client does (a measure that is as fast as the machine).\n\n"
        + table(["text", "tokens", "ms", "ms for 10,000 tokens", "times json.dumps"], rows)
    )


@contextmanager
def counter() -> Iterator[tuple[Callable[[str], int], str]]:
    """A tokenizer, and its name."""
    try:
        engine = LlamaEngine()
        engine.__enter__()
    except EngineUnavailable:
        yield (lambda text: -(-len(text.encode("utf-8", "surrogatepass")) // 4)), "UTF-8 bytes over four"
        return
    connection = http.client.HTTPConnection(urlsplit(engine.base_url).netloc, timeout=600)

    def count(text: str) -> int:
        body = json.dumps({"content": text.encode("utf-8", "replace").decode()})
        connection.close()  # the server ends what has been idle for long
        connection.request("POST", "/tokenize", body, {"Content-Type": "application/json"})
        return len(json.loads(connection.getresponse().read())["tokens"])

    try:
        yield count, "of SmolLM2-135M-Instruct, as the demo's engine counts them"
    finally:
        connection.close()
        engine.__exit__()


def _timed(text: str) -> float:
    repeats = Repeats()
    started = time.perf_counter()
    repeats.add("message 1", text)
    return time.perf_counter() - started


def _dumped(text: str) -> float:
    started = time.perf_counter()
    json.dumps(text).encode()
    return time.perf_counter() - started


def _check(messages: Messages, full: Messages) -> None:
    for one, other in zip(messages, full, strict=True):
        if normal(_content(one)) != normal(_content(other)):
            raise ValueError("a message is not restored")


def _content(message: dict[str, Any]) -> str:
    return message["content"] or ""


def _common(one: str, other: str) -> int:
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if one[:middle] == other[:middle] else (low, middle - 1)
    return low


def _conversations(path: Path) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {}
    for row in _rows(path):
        found.setdefault(row["conversation"], []).append(row)
    return found


def _rows(path: Path) -> Iterator[dict[str, Any]]:
    data = path.read_bytes()
    lines: Iterable[str] = (gzip.decompress(data) if path.suffix == ".gz" else data).decode("utf-8").splitlines()
    return (json.loads(line) for line in lines if line.strip())


if __name__ == "__main__":
    main()
