"""Usage: what the engine reports about answers that the framework asked for, learnt from its instrumentation."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import suppress
from typing import Any
from weakref import ReferenceType, ref

from contextpilot_rag import AsyncContextPilot, ContextPilot
from contextpilot_rag.adapter import Adapter
from contextpilot_rag.dedup.messages import Messages
from contextpilot_rag.errors import SettingsError
from llama_index.core.bridge.pydantic import PrivateAttr
from llama_index.core.instrumentation import get_dispatcher  # type: ignore[attr-defined]
from llama_index.core.instrumentation.event_handlers import BaseEventHandler
from llama_index.core.instrumentation.events import BaseEvent
from llama_index.core.instrumentation.events.llm import LLMChatEndEvent, LLMCompletionEndEvent

from .base import ContextPilotPostprocessor
from .chat_engine import ContextPilotChatEngine
from .pilots import adapters_of
from .sent import all_text, as_sent

_Source = Adapter | ContextPilot

_installing = threading.RLock()


class UsageHandler(BaseEventHandler):
    """Learns from every answer whose prompt holds nodes that a postprocessor arranged; `observe_usage` makes it.

    Use it as a context manager, or call `remove`, to end that. It keeps nothing alive, and removes itself when all that
    it follows is gone.

    Args:
        *sources: postprocessors' adapters, or pilots, of which it follows all postprocessors.
    """

    _sources: tuple[ReferenceType[_Source], ...] = PrivateAttr()

    def __init__(self, *sources: _Source) -> None:
        super().__init__()
        this = ref(self)

        def gone(_: object) -> None:
            handler = this()
            if handler is not None and not handler.sources:
                with suppress(Exception):  # the interpreter may be about to end
                    handler.remove()

        self._sources = tuple(ref(source, gone) for source in sources)

    @classmethod
    def class_name(cls) -> str:
        """The name that it goes by."""
        return "ContextPilotUsageHandler"

    @property
    def sources(self) -> list[_Source]:
        """Adapters and pilots that it follows, as long as they live."""
        found = (source() for source in self._sources)
        return [source for source in found if source is not None]

    @property
    def adapters(self) -> list[Adapter]:
        """Who learns."""
        found: dict[int, Adapter] = {}
        for source in self.sources:
            for adapter in [source] if isinstance(source, Adapter) else adapters_of(source):
                found.setdefault(id(adapter), adapter)
        return list(found.values())

    def handle(self, event: BaseEvent, **_: Any) -> None:  # noqa: ANN401
        """Learn from the end of a call; never raises."""
        if isinstance(event, LLMChatEndEvent) and event.response is not None:
            self._learn(all_text(event.messages), event.response, as_sent(event.messages))
        elif isinstance(event, LLMCompletionEndEvent):
            self._learn(event.prompt, event.response)

    def _learn(self, sent: str, response: object, messages: Messages | None = None) -> None:
        """One of them has sent it, at most; where two of one pilot have the same request, it is counted once."""
        learnt: set[int] = set()
        for adapter in self.adapters:
            if id(adapter.pilot) in learnt:
                continue
            with suppress(Exception):  # an answer is there, and the adapter has counted what failed
                if adapter.learn(sent, response, messages=messages) is not None:
                    learnt.add(id(adapter.pilot))

    def remove(self) -> None:
        """Learn no more."""
        with _installing:
            root = get_dispatcher()
            root.event_handlers = [handler for handler in root.event_handlers if handler is not self]

    def __enter__(self) -> UsageHandler:
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()


def observe_usage(*observed: object) -> UsageHandler:
    """Let pilots learn what the engine had cached, from now on and for all of the process.

    It may be called for each request: whatever is observed already has its handler, and a handler goes with what it
    observes. Streamed answers carry usage only if it is asked for: ``additional_kwargs={"stream_options":
    {"include_usage": True}}`` with the OpenAI-like LLMs.

    Args:
        *observed: whose requests to follow: postprocessors, query and chat engines that have one, or a pilot, for all
            postprocessors that are built on it, also later.

    Returns:
        The handler; the same one if there is one for just these.

    Raises:
        SettingsError: nothing, or something that has no postprocessor of ours.

    >>> postprocessor = ContextPilotPostprocessor()
    >>> with observe_usage(postprocessor) as handler:
    ...     observe_usage(postprocessor) is handler
    True
    """
    sources = list({id(source): source for one in observed for source in _sources_of(one)}.values())
    if not sources:
        raise SettingsError("observe_usage takes a postprocessor, a query engine that has one, or a pilot; got nothing")
    with _installing:
        root = get_dispatcher()
        for present in root.event_handlers:
            if isinstance(present, UsageHandler) and {*map(id, present.sources)} == {*map(id, sources)}:
                return present
        handler = UsageHandler(*sources)
        root.add_event_handler(handler)
    return handler


def _sources_of(observed: object) -> Iterator[_Source]:
    """What to follow of something that a user has.

    Raises:
        SettingsError: there is nothing.
    """
    if isinstance(observed, AsyncContextPilot):
        yield observed.blocking
    elif isinstance(observed, Adapter | ContextPilot):
        yield observed
    elif isinstance(observed, ContextPilotPostprocessor):
        yield observed.adapter
    elif isinstance(observed, ContextPilotChatEngine):
        raise SettingsError("ContextPilotChatEngine learns by itself: leave it out of observe_usage")
    else:
        # The framework's engines and tools have no public name for it.
        postprocessors = getattr(observed, "_node_postprocessors", None) or ()
        own = [one.adapter for one in postprocessors if isinstance(one, ContextPilotPostprocessor)]
        if not own:
            raise SettingsError(
                "observe_usage takes a ContextPilotPostprocessor, an engine that has one among its "
                f"node_postprocessors, or a pilot, not {type(observed).__name__}"
            )
        yield from own
