"""LlamaIndex and contextpilot-rag: nodes in an order that the engine's prefix cache can reuse."""

from .base import ContextPilotPostprocessor
from .chat_engine import ContextPilotChatEngine
from .modes import CannotProfitWarning, check_response_mode, get_response_synthesizer
from .nodes import DATE_METADATA, HIDDEN_METADATA, engine_of
from .synthesizer import ContextPilotSynthesizer, citations
from .templates import CONTEXTPILOT_TEXT_QA
from .usage import UsageHandler, observe_usage

__all__ = [
    "CONTEXTPILOT_TEXT_QA",
    "DATE_METADATA",
    "HIDDEN_METADATA",
    "CannotProfitWarning",
    "ContextPilotChatEngine",
    "ContextPilotPostprocessor",
    "ContextPilotSynthesizer",
    "UsageHandler",
    "check_response_mode",
    "citations",
    "engine_of",
    "get_response_synthesizer",
    "observe_usage",
]
