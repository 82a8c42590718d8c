"""Conversations: what was really sent, turn by turn, so that nothing is given twice."""

from .conversation import Conversation
from .history import Dedup
from .opening import left_out, opened, store_for
from .prompt import TurnPrompt
from .store import Conversations

__all__ = ["Conversation", "Conversations", "Dedup", "TurnPrompt", "left_out", "opened", "store_for"]
