"""Token ids of prompts, as the engine makes them: asked of the engine, or made by a tokenizer that is at hand.

Neither is quick, and an engine may not answer: nothing here is for where a request is being prepared.
"""

from __future__ import annotations

import threading
from array import array
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from ..errors import EngineError, EngineRefused, SettingsError
from ..forking import after_fork
from ..identity import block_key
from ..tokens import turn_of
from ..types import short
from .engine import Engine
from .http import DEFAULT_SECONDS, EngineHttp

MOST_KEPT = 2_000_000
"""Tokens of texts whose ids are remembered: 8 bytes each."""
_ENTRY = 32  # what a text that is remembered takes besides, in tokens' worth
_WRONG = frozenset({400, 404, 405, 422, 501})  # an engine says so of a body that it does not understand

_TELLING = 40  # characters of a text that shows whether ids are other ones now
T = TypeVar("T")

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


class RenewableIds(TokenIds, Protocol):
    """Token ids of whoever may be another one later."""

    def forget(self) -> None:
        """Ask for all of it anew: it may be another model now."""
        ...

    def renewed(self) -> bool:
        """Look whether ids are other ones than they were; if so, what was remembered is forgotten."""
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
        self._life = 0  # how often all was forgotten
        self._renew_lock()
        after_fork(self, KeptIds._renew_lock)

    def __len__(self) -> int:
        """Texts that are remembered."""
        return len(self._ids)

    def get(self, text: str, make: Callable[[str], list[int]]) -> list[int]:
        """The ids of a text, made if they are not remembered."""
        key = block_key(text)
        with self._lock:
            life = self._life
            known = self._ids.get(key)
            if known is not None:
                self._ids.move_to_end(key)
                return known.tolist()
        made = make(text)
        with self._lock:
            if key not in self._ids and life == self._life:
                self._ids[key] = array("Q", made)
                self._held += len(made) + _ENTRY
            while self._held > self._most and self._ids:
                self._held -= len(self._ids.popitem(last=False)[1]) + _ENTRY
        return made

    def clear(self) -> None:
        """Forget all, also what is being made at this moment."""
        with self._lock:
            self._ids.clear()
            self._held = 0
            self._life += 1

    def _renew_lock(self) -> None:
        self._lock = threading.Lock()


class EngineTokenizer:
    """Asks an engine for token ids: vLLM and SGLang by ``/tokenize``, llama.cpp by ``/apply-template``, too.

    Thread-safe. The ids of texts are remembered; those of messages are not, since each prompt is another. At the same
    address there may be another model, or other software, later: who notices says `forget`; a name that was found here
    and that the engine does not know any more is looked for again.

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
        self._telling: tuple[str, list[int]] | None = None  # a text and its ids, to see whether they still are

    def of_messages(self, messages: Messages, tools: Tools | None = None) -> list[int]:
        """The ids of the prompt that the engine makes of a chat request.

        Args:
            messages: as they are sent.
            tools: likewise.

        Raises:
            EngineUnreachable, EngineBrokeOff: it gives no answer.
            EngineRefused: it cannot tell, such as an SGLang that takes only texts there.
        """
        return self._asked(lambda: self._of_messages(messages, tools))

    def of_text(self, text: str) -> list[int]:
        """The ids of a text by itself.

        Raises:
            EngineError: as for `of_messages`.
        """
        return self._kept.get(text, lambda one: self._asked(lambda: self._of_text(one)))

    def forget(self) -> None:
        """Ask for all of it anew: it may be another model now, or other software."""
        self._model, self._by_content, self._telling = self._http.engine.model, None, None
        self._kept.clear()

    def renewed(self) -> bool:
        """Look whether ids are other ones than they were; if so, what was remembered is forgotten.

        Raises:
            EngineError: as for `of_messages`.
        """
        telling = self._telling
        if telling is None or self._asked(lambda: self._of_text(telling[0])) == telling[1]:
            return False
        self.forget()
        return True

    def close(self) -> None:
        """Give the connections back. It can be asked again all the same."""
        self._http.close()

    def _asked(self, ask: Callable[[], T]) -> T:
        """The answer; asked once more if it was given to another model's name."""
        try:
            return ask()
        except EngineRefused as error:
            name = self._model
            if error.status not in _WRONG or name is None or self._http.engine.model is not None:
                raise
            if listed_model(self._http) == name:
                raise
        self.forget()
        return ask()

    def _of_messages(self, messages: Messages, tools: Tools | None) -> list[int]:
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

    def _of_text(self, text: str) -> list[int]:
        if self._like_llama_cpp():
            ids = self._ids({"content": text, "add_special": False, "parse_special": True})
        else:
            ids = self._ids({"model": self._name(), "prompt": text, "add_special_tokens": False})
        if self._telling is None or len(self._telling[0]) < min(_TELLING, len(text)):
            self._telling = text, ids
        return ids

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

    Thread-safe: one thread at a time uses the tokenizer, whoever else of ours has it.

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
        self._turn = turn_of(tokenizer)

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

    def forget(self) -> None:
        """It is the same tokenizer, whatever the engine is now."""

    def renewed(self) -> bool:
        """It never is."""
        return False

    def _made(self, make: Callable[[], Any]) -> list[int]:
        try:
            with self._turn:
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
