"""System prompt: whether a stored conversation was had under the one that it goes on with."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

from llama_index.core.llms import ChatMessage

from .history import KEY

_SYSTEM = "system"


def under(record: Mapping[str, Any], system: str | None) -> dict[str, Any]:
    """What is stored beside a question, with a hash of the system prompt that it was sent under.

    >>> sorted(under({"sent": "Why?", "at": 0}, "Be brief."))
    ['at', 'sent', 'system']
    """
    return {**record, _SYSTEM: _hash(system)}


def other_system(stored: Sequence[ChatMessage], system: str | None) -> bool:
    """Whether the last turn was sent under another system prompt, so that nothing of it can be found in the cache."""
    for message in reversed(stored):
        record = message.additional_kwargs.get(KEY)
        if isinstance(record, Mapping):
            known = record.get(_SYSTEM)
            return isinstance(known, str) and known != _hash(system)
    return False


def _hash(system: str | None) -> str:
    return "" if system is None else hashlib.sha256(system.encode("utf-8", "surrogatepass")).hexdigest()[:16]
