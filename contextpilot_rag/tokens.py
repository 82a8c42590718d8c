"""How long a text is, in tokens: by a tokenizer if one is given, else by an estimate that learns from the engine.

The estimate is UTF-8 bytes over bytes per token. Four bytes a token is about right for English; `calibrate` moves the
ratio towards what the engine reports, so that after a few answers it fits the model, the language and the documents.
"""

from __future__ import annotations

import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Sized
from functools import partial
from typing import Protocol

from .errors import SettingsError
from .forking import after_fork

DEFAULT_BYTES_PER_TOKEN = 4.0
_PLAUSIBLE = (1.5, 12.0)  # no tokenizer in use is outside; a report that says so is about something else
_LEARNING_RATE = 0.2


class Tokenizer(Protocol):
    """Anything with ``encode(text)``: Hugging Face tokenizers, tiktoken encodings and their like."""

    def encode(self, text: str, /) -> Sized:
        """The tokens of a text."""
        ...


CountTokens = Callable[[str], int]


class Turn:
    """One thread at a time, as a context; in a forked child, too."""

    def __init__(self) -> None:
        self._renew()
        after_fork(self, Turn._renew)

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def _renew(self) -> None:
        self._lock = threading.Lock()


_turns: dict[int, tuple[weakref.ref[object], Turn]] = {}


def turn_of(tokenizer: object) -> Turn:
    """The turn of all that use one tokenizer: those of transformers are not for two threads at once.

    >>> class Tokenizer: ...
    >>> one = Tokenizer()
    >>> turn_of(one) is turn_of(one), turn_of(one) is turn_of(Tokenizer())
    (True, False)
    """
    key = id(tokenizer)
    try:
        gone = weakref.ref(tokenizer, lambda _: _turns.pop(key, None))
    except TypeError:  # it cannot be said when it is gone, so each user has a turn of its own
        return Turn()
    return _turns.setdefault(key, (gone, Turn()))[1]


class TokenCounter:
    """Counts tokens of texts. Thread-safe; remembers at most ``cache_size`` counts of a real tokenizer.

    Raises:
        SettingsError: the tokenizer is neither an object with ``encode`` nor a function.

    >>> TokenCounter().count("twelve bytes")
    3
    >>> TokenCounter(lambda text: len(text.split())).count("two words")
    2
    """

    def __init__(self, tokenizer: Tokenizer | CountTokens | None = None, cache_size: int = 100_000) -> None:
        self._count = _counting(tokenizer)
        self._cache: OrderedDict[bytes, int] = OrderedDict()
        self._cache_size = cache_size
        self._renew_lock()
        after_fork(self, TokenCounter._renew_lock)
        self._bytes_per_token = DEFAULT_BYTES_PER_TOKEN

    def _renew_lock(self) -> None:
        self._lock = threading.Lock()

    def count(self, text: str, key: bytes | None = None) -> int:
        """Tokens of a text, at least 1. ``key``, its identity, lets a tokenizer's count be remembered."""
        if self._count is None:
            return self.estimate(text)
        if key is None:
            return max(1, int(self._count(text)))
        with self._lock:
            known = self._cache.get(key)
            if known is not None:
                self._cache.move_to_end(key)
                return known
        counted = max(1, int(self._count(text)))
        with self._lock:
            self._cache[key] = counted
            if len(self._cache) > self._cache_size:
                self._cache.popitem(last=False)
        return counted

    def estimate(self, text: str) -> int:
        """Tokens of a text by its length alone, at least 1."""
        return max(1, round(len(text.encode("utf-8", "surrogatepass")) / self._bytes_per_token))

    def calibrate(self, prompt_bytes: int, prompt_tokens: int) -> None:
        """Learn from a prompt of ``prompt_bytes`` UTF-8 bytes that the engine counted as ``prompt_tokens`` tokens."""
        if self._count is not None or prompt_bytes <= 0 or prompt_tokens <= 0:
            return
        ratio = prompt_bytes / prompt_tokens
        if _PLAUSIBLE[0] <= ratio <= _PLAUSIBLE[1]:
            with self._lock:
                self._bytes_per_token += _LEARNING_RATE * (ratio - self._bytes_per_token)


def _in_turn(encode: Callable[[str], Sized], turn: Turn, text: str) -> int:
    with turn:
        return len(encode(text))


def _counting(tokenizer: Tokenizer | CountTokens | None) -> CountTokens | None:
    if tokenizer is None:
        return None
    encode = getattr(tokenizer, "encode", None)
    if callable(encode) and not isinstance(tokenizer, str):  # a str can encode too, but not into tokens
        if hasattr(tokenizer, "apply_chat_template"):  # prompts' ids may be made with it at the same time
            return partial(_in_turn, encode, turn_of(tokenizer))
        return lambda text: len(encode(text))
    if callable(tokenizer):
        return tokenizer
    raise SettingsError(f"a tokenizer has encode(text) or is a function from text to int, not {tokenizer!r}")
