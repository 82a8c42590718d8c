"""Conversations by name: the one that is kept, or one that is resumed, or a new one."""

from __future__ import annotations

from collections.abc import Callable

from ..dedup.messages import Messages
from ..errors import InputError
from ..settings import Settings
from ..types import Namespace
from .aligner import CountingAligner
from .conversation import Conversation
from .history import Dedup
from .store import Conversations


def left_out(settings: Settings) -> Dedup:
    """What a conversation leaves out by these settings."""
    level = settings.dedup
    return Dedup(level != "off", level == "blocks+chunks", settings.normalise, settings.max_text)


def store_for(settings: Settings, clock: Callable[[], float]) -> Conversations:
    """Where conversations are kept, as these settings say."""
    return Conversations(
        settings.max_conversations, settings.conversation_seconds, settings.conversation_characters, clock
    )


def opened(
    pilot: CountingAligner,
    namespace: Namespace,
    system: str | None,
    dedup: Dedup,
    messages: Messages | None,
    kept: Conversation | None,
) -> Conversation:
    """The conversation that is kept, if it fits what the caller says of it; else one that does.

    Raises:
        InputError: another system prompt than the conversation's.
    """
    before = [] if kept is None else kept.messages
    own = before[:1] if kept is not None and kept.system is not None else []
    fresh = before == own  # nothing was answered yet, so nothing was sent that counts
    if kept is None or (messages is not None and list(messages) != before and (messages or not fresh)):
        return Conversation(pilot, namespace, system, dedup, messages)
    if system is not None and kept.system != system:
        if fresh:
            return Conversation(pilot, namespace, system, dedup)
        raise InputError("the conversation has another system prompt; it is given once")
    return kept
