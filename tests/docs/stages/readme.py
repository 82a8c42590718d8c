"""The README: its sessions tell one story, its Python shows one way after another."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.docs.standins import Stage


@contextmanager
def stage(folder: Path) -> Iterator[Stage]:
    """Names of their own for both, a recorded trace, and questions."""
    names = [["slices", "steps"], ["copies", "steps", "slices"], ["steps", "ranges"]]
    lines = [json.dumps({"qid": f"q{number}", "context_ids": ids}) for number, ids in enumerate(names)]
    (folder / "trace.jsonl").write_text("\n".join(lines))
    (folder / "block_tokens.json").write_text(json.dumps(dict.fromkeys(("slices", "steps", "copies", "ranges"), 100)))
    texts = {name: {"id": name, "text": f"About {name}. " * 20} for name in ("slices", "steps", "copies", "ranges")}
    for file in ("log.jsonl", "questions.jsonl"):
        asked = [
            {
                "qid": f"{file} {number}",
                "question": f"What is {ids[0]}?",
                "answer": ids[0],
                "blocks": [texts[id_] for id_ in ids],
            }
            for number, ids in enumerate(names)
        ]
        (folder / file).write_text("".join(json.dumps(one) + "\n" for one in asked))
    yield Stage(apart=True)
