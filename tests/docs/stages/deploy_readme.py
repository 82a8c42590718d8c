"""Deployment: the overlay that the page has its readers write."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from scripts.docs_pages import blocks_of
from tests.docs.shell import ROOT
from tests.docs.standins import Stage


@contextmanager
def stage(folder: Path) -> Iterator[Stage]:
    """The page's own Kustomization, where it says."""
    blocks = blocks_of((ROOT / "deploy" / "README.md").read_text(encoding="utf-8"))
    (own,) = [block.text for block in blocks if "kind: Kustomization" in block.text]
    mine = folder / "deploy" / "kubernetes" / "overlays" / "mine"
    mine.mkdir()
    (mine / "kustomization.yaml").write_text(own)
    yield Stage()
