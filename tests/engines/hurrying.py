"""Following in a hurry: what takes seconds with real engines takes fractions of them in a test."""

from __future__ import annotations

from contextpilot_rag.engines import follower, following


def hurry(monkeypatch, patience=0.4):
    """Look after engines all the time, and speak of silence soon."""
    monkeypatch.setattr(follower, "CHECK_SECONDS", 0.2)
    monkeypatch.setattr(follower, "SOON", 0.05)
    monkeypatch.setattr(following, "PATIENCE", patience)
