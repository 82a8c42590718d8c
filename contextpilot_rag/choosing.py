"""Choosing: which index a pilot's user means."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from .errors import SettingsError
from .index.local import ContextIndex, LocalIndex
from .remote.index import RemoteIndex
from .settings import Settings
from .types import short

logger = logging.getLogger("contextpilot_rag")

_OF_INDEX = ("capacity_tokens", "max_blocks", "max_namespaces", "history_requests")


def chosen_index(
    index: str | ContextIndex, settings: Settings, given: Mapping[str, object]
) -> tuple[RemoteIndex | None, ContextIndex]:
    """The index that is meant, and if it was made here and has connections, that it is to be closed.

    Raises:
        SettingsError: it is none, or no address.
    """
    if not isinstance(index, str):
        if callable(getattr(index, "align", None)):
            return None, index
    elif index == "embedded":
        return None, LocalIndex(
            settings.capacity_tokens, settings.max_blocks, settings.max_namespaces, history=settings.history_requests
        )
    elif "://" in index:
        made = RemoteIndex(index, api_key=settings.api_key, timeout=settings.index_timeout)
        usual = Settings()
        theirs = [name for name in _OF_INDEX if name in given or getattr(settings, name) != getattr(usual, name)]
        if theirs:
            logger.warning("%s: set where the index is, in its service; here it means nothing", ", ".join(theirs))
        return made, made
    raise SettingsError(
        f"unknown index {short(index)}: give 'embedded', a service's address (http://HOST:PORT), or an object that is "
        "a ContextIndex"
    )
