"""Pilots: which postprocessors share one, as long as they live."""

from __future__ import annotations

import threading
from weakref import WeakKeyDictionary, WeakSet

from contextpilot_rag import ContextPilot
from contextpilot_rag.adapter import Adapter

_lock = threading.Lock()
_adapters: WeakKeyDictionary[ContextPilot, WeakSet[Adapter]] = WeakKeyDictionary()


def noted(adapter: Adapter) -> Adapter:
    """An adapter, which is found by its pilot from now on."""
    with _lock:
        _adapters.setdefault(adapter.pilot, WeakSet()).add(adapter)
    return adapter


def adapters_of(pilot: ContextPilot) -> list[Adapter]:
    """All postprocessors' adapters that are built on a pilot."""
    with _lock:
        return list(_adapters.get(pilot, ()))
