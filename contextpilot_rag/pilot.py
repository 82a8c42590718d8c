"""ContextPilot: the one object most people use, and AsyncContextPilot, the same for async code."""

from __future__ import annotations

import logging
import operator
import threading
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from .engines.usage import usage_of
from .errors import IndexFailed, InputError, SettingsError
from .identity import cache_salt
from .index.local import ContextIndex, LocalIndex
from .intake import BlockLike, distinct, namespace_of
from .prompt.prompt import AlignedPrompt
from .settings import PilotOptions, RequestOptions, Settings
from .tokens import CountTokens, TokenCounter, Tokenizer
from .types import Alignment, BlockRef, Context, IndexStats, Namespace, Request, Rule, Usage, plain_text
from .waiting import AlignmentWindow

if TYPE_CHECKING:
    from typing_extensions import Unpack

logger = logging.getLogger("contextpilot_rag")


class ContextPilot:
    """Aligns the blocks of each request to what the engine has cached.

    Args:
        index: "embedded", or any `ContextIndex` (to share one between pilots).
        namespace: what may share cached prefixes; a string is a tenant. The default shares with everybody.
        tokenizer: counts tokens: a callable from text to int, or an object with ``encode``. None: an estimate that
            learns from what the engine reports.
        settings: all settings in one object. None: from the environment (``CONTEXTPILOT_*``).
        **options: single settings by name; they override.

    Raises:
        SettingsError: an unknown setting, index or namespace, or a value that a setting cannot have.

    >>> pilot = ContextPilot()
    >>> monday = pilot.align([("a", "Slices count from zero."), ("b", "A step may be negative.")], "What is a step?")
    >>> tuesday = pilot.align([("b", "A step may be negative."), ("a", "Slices count from zero.")], "And a slice?")
    >>> tuesday.labels
    {1: 'a', 2: 'b'}
    >>> tuesday.order_hint
    'Order of relevance, best first: [2] > [1]'
    """

    def __init__(
        self,
        index: str | ContextIndex = "embedded",
        *,
        namespace: Namespace | str | None = None,
        tokenizer: Tokenizer | CountTokens | None = None,
        settings: Settings | None = None,
        **options: Unpack[PilotOptions],
    ) -> None:
        if settings is not None and not isinstance(settings, Settings):
            raise SettingsError(f"settings must be a Settings object, not {type(settings).__name__}")
        self.settings = Settings.from_env(**options) if settings is None else settings.with_(**options)
        self.index = self._index(index)
        self._namespace = namespace_of(namespace)
        self._tokens = TokenCounter(tokenizer)
        self._failures = 0
        self._lock = threading.Lock()

    @property
    def failures(self) -> int:
        """How often the index or the tokenizer failed, and the request went out all the same."""
        return self._failures

    def align(
        self,
        blocks: Iterable[BlockLike],
        question: str = "",
        *,
        namespace: Namespace | str | None = None,
        key: Hashable = None,
        **options: Unpack[RequestOptions],
    ) -> AlignedPrompt:
        """Choose the order of a request's blocks and take it as about to be sent.

        Args:
            blocks: best first: `Block` objects, texts, ``(id, text)`` pairs, mappings with "text" and perhaps "id",
                "tokens", "score"; or a `Context`. A text that comes twice is placed once, at its better rank.
            question: stands last in the prompt, as it is. Empty: a `Context`'s own question.
            namespace: for this request; None: the pilot's.
            key: your name for the request; comes back as ``alignment.request.key``.
            **options: settings for this request: order, min_gain, protect_top, max_displacement, echo, order_hint.

        Raises:
            InvalidBlock: a block that is no text, or has an unusable id or token count.
            ConflictingBlocks: one id with two texts.
            SettingsError: an unknown setting, or a value it cannot have.
            IndexFailed: the index broke, and ``on_error="raise"`` was asked for.
        """
        return self.decide(self.prepare(blocks, question, namespace=namespace, key=key, **options))

    def prepare(
        self,
        blocks: Iterable[BlockLike],
        question: str = "",
        *,
        namespace: Namespace | str | None = None,
        key: Hashable = None,
        **options: Unpack[RequestOptions],
    ) -> AlignedPrompt:
        """The first half of `align`: check and count everything, ask the index nothing; the order is the retriever's.

        For those who decide later, such as a window of waiting requests.
        """
        settings = self._settings_for(options)
        given = distinct(blocks)
        if isinstance(blocks, Context) and not question:
            question = blocks.question
        question = plain_text(question, "the question")
        space = self._namespace if namespace is None else namespace_of(namespace)
        refs = tuple(
            BlockRef(name, block.tokens or self._weight(block.text, name))
            for name, block in zip(given.keys, given.blocks, strict=True)
        )
        return AlignedPrompt(
            request=Request(refs, space, settings.budget, key),
            order=tuple(range(len(refs))),
            rule=Rule.FAILED_OPEN,
            retrieved=given.blocks,
            aliases=given.aliases,
            question=question,
            hint_wanted=settings.order_hint,
            echo=settings.echo,
            salt=cache_salt(space, settings.salt_secret),
        )

    def decide(self, prepared: AlignedPrompt) -> AlignedPrompt:
        """The second half of `align`: choose the order and take the request as about to be sent."""
        alignment = self._aligned(prepared.request)
        if alignment is None:
            return prepared
        return replace(
            prepared,
            order=alignment.order,
            cached_blocks=alignment.cached_blocks,
            predicted_cached_tokens=alignment.predicted_cached_tokens,
            retrieved_cached_tokens=alignment.retrieved_cached_tokens,
            rule=alignment.rule,
        )

    def predict(self, prepared: AlignedPrompt) -> int:
        """Tokens of a prepared request that would be cached if it were sent now. Nothing is taken as sent."""
        try:
            return int(self.index.predict(prepared.request))
        except Exception as error:  # noqa: BLE001  fails open, always: it is only about who goes first
            self._count_failure(error)
            return 0

    def observe(self, alignment: Alignment, response: object) -> Usage | None:
        """Learn from the engine's answer what was really cached, and how it counts tokens.

        Args:
            alignment: what ``align`` returned for this request.
            response: the engine's answer, or the last chunk of a stream: anything with an OpenAI-style ``usage``.

        Returns:
            What was reported, or None if nothing was.

        Raises:
            InputError: the first argument is no alignment.
        """
        if not isinstance(alignment, Alignment):
            raise InputError(f"observe takes what align returned, not {type(alignment).__name__}")
        usage = usage_of(response)
        if usage is None:
            return None
        if isinstance(alignment, AlignedPrompt) and usage.prompt_tokens:
            self._tokens.calibrate(alignment.sent.prompt_bytes, usage.prompt_tokens)
        try:
            self.index.observe(alignment, usage)
        except Exception as error:  # noqa: BLE001  fails open: an answer is there, it must reach the caller
            self._failed(error)
        return usage

    def forget(self, namespace: Namespace | str | None = None) -> None:
        """Drop what the index knows of a namespace; None: of all."""
        self.index.forget(None if namespace is None else namespace_of(namespace))

    def stats(self) -> IndexStats:
        """The index's counts."""
        return self.index.stats()

    def _index(self, index: str | ContextIndex) -> ContextIndex:
        if not isinstance(index, str) and callable(getattr(index, "align", None)):
            return index
        if index == "embedded":
            chosen = self.settings
            return LocalIndex(
                chosen.capacity_tokens, chosen.max_blocks, chosen.max_namespaces, history=chosen.history_requests
            )
        raise SettingsError(f"unknown index {index!r}: give 'embedded' or an object that is a ContextIndex")

    def _settings_for(self, options: Mapping[str, Any]) -> Settings:
        fixed = _FIXED.intersection(options)
        if fixed:
            raise SettingsError(f"{min(fixed)} belongs to the pilot and cannot be set for one request")
        return self.settings.with_(**options)

    def _weight(self, text: str, name: bytes) -> int:
        try:
            return self._tokens.count(text, name)
        except Exception as error:  # noqa: BLE001  fails open: somebody else's tokenizer, and an estimate will do
            self._failed(error)
            return self._tokens.estimate(text)

    def _aligned(self, request: Request) -> Alignment | None:
        """The index's answer, or None if there is none that can be used."""
        try:
            return _sound(self.index.align(request), request)
        except Exception as raised:  # noqa: BLE001  the one place where the index's failures end
            self._failed(raised)
            return None

    def _failed(self, error: Exception) -> None:
        self._count_failure(error)
        if self.settings.on_error == "raise":
            raise IndexFailed(f"the context index failed: {error}") from error

    def _count_failure(self, error: Exception) -> None:
        with self._lock:
            self._failures += 1
            first = self._failures == 1
        if first and self.settings.on_error == "open":
            logger.warning(
                "failed open: %s; requests go out all the same (said once, pilot.failures counts on)",
                error,
                exc_info=error,
            )


class AsyncContextPilot:
    """`ContextPilot` for async code: the same words, awaited.

    Args:
        index: as for `ContextPilot`.
        **options: as for `ContextPilot`.

    >>> import asyncio
    >>> alignment = asyncio.run(AsyncContextPilot().align(["Slices count from zero."], "Where do slices start?"))
    >>> alignment.changed
    False
    """

    def __init__(
        self,
        index: str | ContextIndex = "embedded",
        *,
        namespace: Namespace | str | None = None,
        tokenizer: Tokenizer | CountTokens | None = None,
        settings: Settings | None = None,
        **options: Unpack[PilotOptions],
    ) -> None:
        # The embedded index answers in a fraction of a millisecond and does no input or output: it needs no thread.
        self._pilot = ContextPilot(index, namespace=namespace, tokenizer=tokenizer, settings=settings, **options)

    @property
    def settings(self) -> Settings:
        """The settings in force."""
        return self._pilot.settings

    @property
    def failures(self) -> int:
        """How often the index failed and the retriever's order went out."""
        return self._pilot.failures

    async def align(
        self,
        blocks: Iterable[BlockLike],
        question: str = "",
        *,
        namespace: Namespace | str | None = None,
        key: Hashable = None,
        **options: Unpack[RequestOptions],
    ) -> AlignedPrompt:
        """As `ContextPilot.align`."""
        return self._pilot.align(blocks, question, namespace=namespace, key=key, **options)

    def window(self, size: int = 16, max_wait: float = 0.02, max_overtaken: int | None = None) -> AlignmentWindow:
        """A window of waiting requests, of which the one with the longest cached prefix goes first.

        Args:
            size: how many wait before one has to go.
            max_wait: seconds that a request waits at most.
            max_overtaken: how often a request may be overtaken; None: four times the size.

        Raises:
            SettingsError: a size below 1, or a negative bound.

        >>> import asyncio
        >>> async def ask(pilot):
        ...     async with pilot.window(size=16, max_wait=0.02) as window:
        ...         return await window.align(["Slices count from zero."], "Where do slices start?")
        >>> asyncio.run(ask(AsyncContextPilot())).question
        'Where do slices start?'
        """
        return AlignmentWindow(self._pilot, size, max_wait, max_overtaken)

    async def observe(self, alignment: Alignment, response: object) -> Usage | None:
        """As `ContextPilot.observe`."""
        return self._pilot.observe(alignment, response)

    async def forget(self, namespace: Namespace | str | None = None) -> None:
        """As `ContextPilot.forget`."""
        self._pilot.forget(namespace)

    async def stats(self) -> IndexStats:
        """As `ContextPilot.stats`."""
        return self._pilot.stats()


def _sound(alignment: Alignment, request: Request) -> Alignment:
    """An index's answer, in plain values, once it is known to be an answer to this request.

    Raises:
        IndexFailed: it is not.
    """
    order = tuple(operator.index(rank) for rank in alignment.order)
    counts = [alignment.cached_blocks, alignment.predicted_cached_tokens, alignment.retrieved_cached_tokens]
    if alignment.request != request or sorted(order) != list(range(len(request.blocks))):
        raise IndexFailed("its answer is no order of the request's blocks")
    if not isinstance(alignment.rule, Rule) or not all(
        0 <= operator.index(count) <= request.tokens for count in counts
    ):
        raise IndexFailed("its answer has counts or a rule that cannot be")
    return replace(alignment, order=order)


# Settings that shape the index or belong to the whole pilot.
_FIXED = frozenset(PilotOptions.__annotations__) - frozenset(RequestOptions.__annotations__)
