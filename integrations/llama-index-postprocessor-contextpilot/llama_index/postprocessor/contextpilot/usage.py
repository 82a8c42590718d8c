"""Usage: what the engine reports about answers that the framework asked for, learnt from its instrumentation."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from contextpilot_rag.adapter import Adapter
from llama_index.core.bridge.pydantic import PrivateAttr
from llama_index.core.instrumentation import get_dispatcher  # type: ignore[attr-defined]
from llama_index.core.instrumentation.event_handlers import BaseEventHandler
from llama_index.core.instrumentation.events import BaseEvent
from llama_index.core.instrumentation.events.llm import LLMChatEndEvent, LLMCompletionEndEvent
from llama_index.core.llms import ChatMessage, TextBlock

from .base import ContextPilotPostprocessor


class UsageHandler(BaseEventHandler):
    """Learns from every answer whose prompt holds nodes that a postprocessor arranged; `observe_usage` makes it.

    Use it as a context manager, or call `remove`, to end that.
    """

    _adapter: Adapter = PrivateAttr()

    def __init__(self, adapter: Adapter) -> None:
        super().__init__()
        self._adapter = adapter

    @classmethod
    def class_name(cls) -> str:
        """The name that it goes by."""
        return "ContextPilotUsageHandler"

    @property
    def adapter(self) -> Adapter:
        """Who learns."""
        return self._adapter

    def handle(self, event: BaseEvent, **_: Any) -> None:  # noqa: ANN401
        """Learn from the end of a call; never raises."""
        try:
            if isinstance(event, LLMChatEndEvent) and event.response is not None:
                self._adapter.learn(all_text(event.messages), event.response.raw)
            elif isinstance(event, LLMCompletionEndEvent):
                self._adapter.learn(event.prompt, event.response.raw)
        except Exception:  # noqa: BLE001, S110  an answer is there, and the adapter has counted what failed
            pass

    def remove(self) -> None:
        """Learn no more."""
        root = get_dispatcher()
        root.event_handlers = [handler for handler in root.event_handlers if handler is not self]

    def __enter__(self) -> UsageHandler:
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()


def observe_usage(postprocessor: ContextPilotPostprocessor | Adapter) -> UsageHandler:
    """Let a postprocessor's pilot learn what the engine had cached, from now on and for all of the process.

    Streamed answers carry usage only if it is asked for: ``additional_kwargs={"stream_options": {"include_usage":
    True}}`` with the OpenAI-like LLMs.

    Args:
        postprocessor: whose requests to follow.

    Returns:
        The handler; the same one if there is one for this postprocessor.

    >>> postprocessor = ContextPilotPostprocessor()
    >>> with observe_usage(postprocessor) as handler:
    ...     observe_usage(postprocessor) is handler
    True
    """
    adapter = postprocessor if isinstance(postprocessor, Adapter) else postprocessor.adapter
    root = get_dispatcher()
    for present in root.event_handlers:
        if isinstance(present, UsageHandler) and present.adapter is adapter:
            return present
    handler = UsageHandler(adapter)
    root.add_event_handler(handler)
    return handler


def all_text(messages: Iterable[ChatMessage]) -> str:
    r"""The text of all messages.

    >>> all_text([ChatMessage("Be brief.", role="system"), ChatMessage("Why?")])
    'Be brief.\nWhy?'
    """
    return "\n".join(block.text for message in messages for block in message.blocks if isinstance(block, TextBlock))
