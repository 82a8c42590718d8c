"""ContextPilotCallbackHandler: learns from what the engine reports, whoever assembled the prompt."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from uuid import UUID

from contextpilot_rag import Namespace, Usage
from contextpilot_rag.adapter import Adapter
from contextpilot_rag.dedup.messages import Messages
from contextpilot_rag.engines.usage import usage_of
from contextpilot_rag.errors import SettingsError
from contextpilot_rag.forking import after_fork
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import BaseMessage
from langchain_core.outputs import LLMResult
from langchain_core.runnables import ensure_config

from ._checking import positive
from ._config import namespace_in
from ._messages import all_plain, text_of
from ._piloted import Piloted

_Sent = tuple[str, Messages | None]
"""A prompt's text; and it exactly as the engine is sent it, where that is known."""

_MORE = ("tools", "functions")
_GIVE = "give the retrievers or compressors of ours whose requests are to be learnt from"


class ContextPilotCallbackHandler(BaseCallbackHandler):
    """Tells the pilot what was cached: ``chain.invoke(question, {"callbacks": [handler]})``.

    A report belongs to the request under way whose question and documents stand in the prompt that was sent, in the
    namespace that the model's config names, if it does.
    Works with streams, too, if the model asks for usage there (``ChatOpenAI(stream_usage=True)``). An answer without a
    report counts as not reported. Nothing that fails here reaches the chain. One handler serves any number of chains
    and threads.

    Args:
        *sources: retrievers and compressors of ours, whose documents are in the prompts.
        remember: prompts under way that are remembered; the oldest go.

    Raises:
        SettingsError: a source that is none; there is none; or remember is not positive.

    >>> from langchain_contextpilot import ContextPilotCompressor
    >>> handler = ContextPilotCallbackHandler(ContextPilotCompressor())
    """

    run_inline = True  # it takes microseconds, and a prompt must be known before its answer comes

    def __init__(self, *sources: Piloted | Adapter, remember: int = 256) -> None:
        for source in sources:
            _check(source)
        if not sources:
            raise SettingsError(_GIVE)
        self._sources = sources
        self._sent: OrderedDict[UUID, tuple[_Sent, Namespace | str | None]] = OrderedDict()
        self._remember = positive(remember, "remember")
        self._renew_lock()
        after_fork(self, ContextPilotCallbackHandler._renew_lock)

    def on_chat_model_start(
        self,
        serialized: dict[str, Any],  # noqa: ARG002
        messages: list[list[BaseMessage]],
        *,
        run_id: UUID,
        metadata: dict[str, Any] | None = None,
        **kwargs: Any,  # noqa: ANN401
    ) -> None:
        """A chat model is asked."""

        def sent() -> tuple[str, Messages | None]:
            text = "\n".join(text_of(message) for row in messages for message in row)
            return text, all_plain(messages[0]) if len(messages) == 1 and not _has_tools(kwargs) else None

        self._note(run_id, metadata, sent)

    def on_llm_start(
        self,
        serialized: dict[str, Any],  # noqa: ARG002
        prompts: Sequence[str],
        *,
        run_id: UUID,
        metadata: dict[str, Any] | None = None,
        **kwargs: Any,  # noqa: ANN401, ARG002
    ) -> None:
        """A model that takes a text is asked."""
        self._note(run_id, metadata, lambda: ("\n".join(prompts), None))

    def on_llm_end(self, response: LLMResult, *, run_id: UUID, **kwargs: Any) -> None:  # noqa: ANN401, ARG002
        """A model has answered."""
        with self._lock:
            noted = self._sent.pop(run_id, None)
        if noted is None:
            return
        (sent, messages), namespace = noted
        try:
            usage = usage_of(response) or Usage()  # an answer without a report is one that reported nothing
            # A report is one request's: the first that it fits.
            any(adapter.learn(sent, usage, namespace=namespace, messages=messages) for adapter in self._adapters)
        except Exception as error:  # noqa: BLE001  an answer is there; it must reach the caller
            self._failed(error)

    def on_llm_error(self, error: BaseException, *, run_id: UUID, **kwargs: Any) -> None:  # noqa: ANN401, ARG002
        """A model has failed."""
        with self._lock:
            self._sent.pop(run_id, None)

    def _renew_lock(self) -> None:
        self._lock = threading.Lock()

    @property
    def _adapters(self) -> list[Adapter]:
        """Those in use now: a setting that is changed makes another."""
        return [source.adapter if isinstance(source, Piloted) else source for source in self._sources]

    def _note(self, run_id: UUID, metadata: dict[str, Any] | None, asked: Callable[[], _Sent]) -> None:
        try:
            sent = asked(), namespace_in(ensure_config().get("configurable"), metadata)
        except Exception as error:  # noqa: BLE001  the request goes out all the same
            self._failed(error)
            return
        with self._lock:
            self._sent[run_id] = sent
            while len(self._sent) > self._remember:
                self._sent.popitem(last=False)

    def _failed(self, error: Exception) -> None:
        try:
            self._adapters[0].failed(error)
        except Exception:  # noqa: BLE001  counted; LangChain would log it for each request
            return


def _has_tools(options: Mapping[str, Any]) -> bool:
    """Whether a model is given more than messages to make its prompt of."""
    given = options.get("invocation_params") or {}
    return any(given.get(name) for name in _MORE)


def _check(source: object) -> None:
    if isinstance(source, Piloted | Adapter):
        return
    if any(kind.__name__ == "ContextPilotMiddleware" for kind in type(source).__mro__):  # which may not be installed
        raise SettingsError("the middleware learns by itself, without a handler; for chains, " + _GIVE)
    raise SettingsError(f"{_GIVE}, not {type(source).__name__}")
