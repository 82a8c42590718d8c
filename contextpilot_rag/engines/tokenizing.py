"""Token ids of prompts, as the engine makes them: asked of the engine, or made by a tokenizer that is at hand.

Neither is quick, and an engine may not answer: nothing here is for where a request is being prepared.
"""

from __future__ import annotations

import threading
from array import array
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from ..errors import EngineError, EngineRefused, SettingsError
from ..forking import after_fork
from ..identity import block_key
from ..types import short
from .engine import Engine
from .http import DEFAULT_SECONDS, EngineHttp

MOST_KEPT = 2_000_000
"""Tokens of texts whose ids are remembered: 8 bytes each."""
_ENTRY = 32  # what a text that is remembered takes besides, in tokens' worth
_WRONG = frozenset({400, 404, 405, 422, 501})  # an engine says so of a body that it does not understand

Messages = Sequence[Mapping[str, Any]]
Tools = Sequence[Mapping[str, Any]]


class TokenIds(Protocol):
    """Gives token ids."""

    def of_messages(self, messages: Messages, tools: Tools | None = None) -> list[int]:
        """Of the prompt that an engine makes of a chat request, up to where the answer begins."""
        ...

    def of_text(self, text: str) -> list[int]:
        """Of a text by itself, without tokens that mark its start or end."""
        ...


class KeptIds:
    """Remembers the ids of texts, those used last, up to a number of tokens. Thread-safe.

    Args:
        most: tokens.

    >>> kept = KeptIds()
    >>> kept.get("Slices", lambda text: [len(text)]), kept.get("Slices", lambda text: [0]), len(kept)
    ([6], [6], 1)
    """

    def __init__(self, most: int = MOST_KEPT) -> None:
        self._most = most
        self._ids: OrderedDict[bytes, array[int]] = OrderedDict()
        self._held = 0
        self._renew_lock()
        after_fork(self, KeptIds._renew_lock)

    def __len__(self) -> int:
        """Texts that are remembered."""
        return len(self._ids)

    def get(self, text: str, make: Callable[[str], list[int]]) -> list[int]:
        """The ids of a text, made if they are not remembered."""
        key = block_key(text)
        with self._lock:
            known = self._ids.get(key)
            if known is not None:
                self._ids.move_to_end(key)
                return known.tolist()
        made = make(text)
        with self._lock:
            if key not in self._ids:
                self._ids[key] = array("Q", made)
                self._held += len(made) + _ENTRY
            while self._held > self._most and self._ids:
                self._held -= len(self._ids.popitem(last=False)[1]) + _ENTRY
        return made

    def _renew_lock(self) -> None:
        self._lock = threading.Lock()


class EngineTokenizer:
    """Asks an engine for token ids: vLLM and SGLang by ``/tokenize``, llama.cpp by ``/apply-template``, too.

    Thread-safe. The ids of texts are remembered; those of messages are not, since each prompt is another.

    Args:
        engine: which. Without a model's name it is asked for the first that it lists.
        seconds: that an answer may take.
        most_kept: tokens of texts that are remembered.
    """

    def __init__(self, engine: Engine, seconds: float = DEFAULT_SECONDS, most_kept: int = MOST_KEPT) -> None:
        self._http = EngineHttp(engine, seconds)
        self._model = engine.model
        self._kept = KeptIds(most_kept)
        self._by_content: bool | None = None  # whether it takes texts as llama.cpp does; None: not known yet

    def of_messages(self, messages: Messages, tools: Tools | None = None) -> list[int]:
        """The ids of the prompt that the engine makes of a chat request.

        Args:
            messages: as they are sent.
            tools: likewise.

        Raises:
            EngineUnreachable, EngineBrokeOff: it gives no answer.
            EngineRefused: it cannot tell, such as an SGLang that takes only texts there.
        """
        request: dict[str, Any] = {"messages": list(messages)}
        if tools:
            request["tools"] = list(tools)
        if not self._like_llama_cpp():
            return self._ids({"model": self._name(), **request, "add_generation_prompt": True})
        prompt = self._http.post("/apply-template", request)
        text = prompt.get("prompt") if isinstance(prompt, dict) else None
        if not isinstance(text, str):
            raise EngineRefused(f"/apply-template of engine {self._http.engine.name} is answered with {short(prompt)}")
        return self._ids({"content": text, "add_special": True, "parse_special": True})

    def of_text(self, text: str) -> list[int]:
        """The ids of a text by itself.

        Raises:
            EngineError: as for `of_messages`.
        """
        return self._kept.get(text, self._of_text)

    def close(self) -> None:
        """Give the connections back. It can be asked again all the same."""
        self._http.close()

    def _of_text(self, text: str) -> list[int]:
        if self._like_llama_cpp():
            return self._ids({"content": text, "add_special": False, "parse_special": True})
        return self._ids({"model": self._name(), "prompt": text, "add_special_tokens": False})

    def _ids(self, body: Mapping[str, Any]) -> list[int]:
        answer = self._http.post("/tokenize", body)
        ids = answer.get("tokens") if isinstance(answer, dict) else None
        if not isinstance(ids, list) or not all(type(one) is int and 0 <= one < 2**64 for one in ids):
            raise EngineRefused(f"/tokenize of engine {self._http.engine.name} is answered with {short(answer)}")
        return ids

    def _like_llama_cpp(self) -> bool:
        """Whether it takes texts as ``content``. It is asked once: llama.cpp has no name for the other field."""
        if self._by_content is None:
            try:
                answer = self._http.post("/tokenize", {"content": "a", "model": self._name(), "prompt": "a"})
            except EngineRefused as error:
                if error.status not in _WRONG:
                    raise
                self._by_content = False
            else:
                # Others say how many there are, and how many there may be.
                self._by_content = isinstance(answer, dict) and "count" not in answer
        return self._by_content

    def _name(self) -> str:
        if self._model is None:
            self._model = listed_model(self._http)
        return self._model


class LocalTokenizer:
    """Token ids from a tokenizer in this process. It has to be the engine's, with the engine's chat template.

    Thread-safe as far as the tokenizer is: one thread at a time uses it.

    Args:
        tokenizer: with ``apply_chat_template(messages, tokenize=True, add_generation_prompt=True)`` and
            ``encode(text, add_special_tokens=False)``, as those of transformers have them.
        most_kept: tokens of texts that are remembered.

    Raises:
        SettingsError: it has not.
    """

    def __init__(self, tokenizer: object, most_kept: int = MOST_KEPT) -> None:
        for name in ("apply_chat_template", "encode"):
            if not callable(getattr(tokenizer, name, None)):
                raise SettingsError(f"a tokenizer for prompts has {name}(); {short(tokenizer)} has not")
        self._tokenizer: Any = tokenizer
        self._kept = KeptIds(most_kept)
        self._renew_lock()
        after_fork(self, LocalTokenizer._renew_lock)

    def _renew_lock(self) -> None:
        self._lock = threading.Lock()

    def of_messages(self, messages: Messages, tools: Tools | None = None) -> list[int]:
        """The ids of a chat request's prompt.

        Raises:
            EngineError: the tokenizer failed.
        """
        more = {"tools": list(tools)} if tools else {}
        own = [dict(message) for message in messages]
        return self._made(
            lambda: self._tokenizer.apply_chat_template(own, tokenize=True, add_generation_prompt=True, **more)
        )

    def of_text(self, text: str) -> list[int]:
        """The ids of a text by itself.

        Raises:
            EngineError: the tokenizer failed.
        """
        return self._kept.get(
            text, lambda one: self._made(lambda: self._tokenizer.encode(one, add_special_tokens=False))
        )

    def _made(self, make: Callable[[], Any]) -> list[int]:
        try:
            with self._lock:
                made = make()
            # Newer transformers give all that a model needs; of tokenizers' own class, ids are an attribute.
            if isinstance(made, Mapping):
                made = made["input_ids"]
            ids = [int(one) for one in getattr(made, "ids", made)]
        except Exception as error:
            raise EngineError(f"the tokenizer {type(self._tokenizer).__name__} failed: {error!r}") from error
        if any(not 0 <= one < 2**64 for one in ids):
            raise EngineError(f"the tokenizer {type(self._tokenizer).__name__} gave ids that none can be")
        return ids


def listed_model(http: EngineHttp, seconds: float | None = None) -> str:
    """The first model that an engine lists.

    Raises:
        EngineError: it lists none, or does not answer.
    """
    answer = http.get_json("/v1/models", seconds=seconds)
    models = answer.get("data") if isinstance(answer, dict) else None
    first = models[0] if isinstance(models, list) and models else None
    name = first.get("id") if isinstance(first, dict) else None
    if not isinstance(name, str):
        raise EngineRefused(f"engine {http.engine.name} lists no model; name one")
    return name
