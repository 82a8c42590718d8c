"""The README: its sessions tell one story, its Python shows one way after another."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.docs.standins import Stage


@contextmanager
def stage(folder: Path) -> Iterator[Stage]:
    """Names of their own for both, and a recorded trace."""
    names = [["slices", "steps"], ["copies", "steps", "slices"], ["steps", "ranges"]]
    lines = [json.dumps({"qid": f"q{number}", "context_ids": ids}) for number, ids in enumerate(names)]
    (folder / "trace.jsonl").write_text("\n".join(lines))
    (folder / "block_tokens.json").write_text(json.dumps(dict.fromkeys(("slices", "steps", "copies", "ranges"), 100)))
    yield Stage(apart=True)
