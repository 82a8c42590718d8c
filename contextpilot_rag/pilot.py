"""ContextPilot: the one object most people use."""

from __future__ import annotations

import time
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .asking import Asker
from .batch import Plan
from .choosing import chosen_parts, chosen_settings, replica_of
from .conversation import Conversation, left_out, opened, store_for
from .deciding import check_batch, plan_within, prepared_batch
from .dedup.messages import Messages
from .engines.engine import EngineLike
from .failing import Failures
from .identity import block_key, head_of
from .index.local import ContextIndex
from .index.watch import Report
from .intake import BlockLike, ContextLike, distinct, namespace_of
from .learning import Learner
from .prompt.prompt import AlignedPrompt
from .prompt.wording import wording_of
from .quality.trials import Trials
from .results import RunReport
from .run_options import RunOptions
from .sending import send_plan
from .settings import PilotOptions, RequestOptions, Settings
from .tokens import CountTokens, TokenCounter, Tokenizer
from .types import Alignment, BlockRef, Context, Namespace, Request, Rule, Usage, plain_text
from .upkeep import Upkeep

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .engines.pool import EnginePool
    from .replicas.process import ProcessReplica
    from .sending import Client


class ContextPilot(Upkeep):
    """Aligns the blocks of each request to what the engine has cached.

    Args:
        index: "embedded"; or the address of a service that several processes share, http(s)://HOST:PORT; or of a log by
            which the processes' own indexes converge, redis(s)://HOST:PORT; or any `ContextIndex` (to share one between
            pilots). None: "embedded", unless ``CONTEXTPILOT_INDEX`` says where.
        engines: where requests go: addresses, or `Engine` objects. Their caches are followed, and ``align`` says which
            one a request should go to. A service listens to them itself (``serve --engine``), and is told from here
            where the blocks of answered prompts stand. None: as ``CONTEXTPILOT_ENGINES`` says.
        namespace: what may share cached prefixes; a string is a tenant. The default shares with everybody.
        tokenizer: counts tokens: a callable from text to int, or an object with ``encode``. None: an estimate that
            learns from what the engine reports.
        settings: all settings in one object. None: from the environment (``CONTEXTPILOT_*``).
        **options: single settings by name; they override.

    Raises:
        SettingsError: an unknown setting, index or namespace, or a value that a setting cannot have.

    >>> pilot = ContextPilot(order_hint=True)
    >>> monday = pilot.align([("a", "Slices count from zero."), ("b", "A step may be negative.")], "What is a step?")
    >>> tuesday = pilot.align([("b", "A step may be negative."), ("a", "Slices count from zero.")], "And a slice?")
    >>> tuesday.labels
    {1: 'a', 2: 'b'}
    >>> tuesday.order_hint
    'Order of relevance, best first: [2] > [1]'
    """

    def __init__(
        self,
        index: str | ContextIndex | None = None,
        *,
        engines: Iterable[EngineLike] | EngineLike | None = None,
        namespace: Namespace | str | None = None,
        tokenizer: Tokenizer | CountTokens | None = None,
        settings: Settings | None = None,
        **options: Unpack[PilotOptions],
    ) -> None:
        self.settings: Settings = chosen_settings(settings, index, options)
        self._namespace = namespace_of(namespace)
        self._tokens = TokenCounter(tokenizer)
        self._conversations = store_for(self.settings, time.monotonic)
        self._failures = Failures(raises=self.settings.on_error == "raise")
        parts = chosen_parts(index, engines, self.settings, options, tokenizer, self._failures)
        self._made, self._pool, chosen = parts
        self.asker: Asker = Asker(chosen, self._failures, self.settings.salt_secret, Trials.of(self.settings))
        self._learner = Learner(self.asker, self._tokens, self._failures, self._pool)

    def __enter__(self) -> ContextPilot:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def index(self) -> ContextIndex:
        """What decides the orders."""
        return self.asker.index

    @index.setter
    def index(self, index: ContextIndex) -> None:
        self.asker.index = index

    @property
    def engines(self) -> EnginePool:
        """The engines that requests go to; empty for a pilot that was given none."""
        from .engines.pool import NoEngines  # most pilots know no engines

        return NoEngines() if self._pool is None else self._pool

    @property
    def replica(self) -> ProcessReplica | None:
        """This process's part in the log that its index follows; its ``status`` says how it stands. None: no log."""
        return replica_of(self._made)

    def route(self, engine: str | None, tokens: int = 0) -> str | None:
        """Which engine a conversation goes on at: the one that it was at, while that lives.

        Args:
            engine: its name; None: it is new.
            tokens: of the prompt, as far as they are known.
        """
        return None if self._pool is None else self._pool.fleet.route(engine, tokens)

    @property
    def failures(self) -> int:
        """How often something of ours failed, and the request went out all the same. Each outage is logged once."""
        return self._failures.count

    def align(
        self,
        blocks: Iterable[BlockLike],
        question: str = "",
        *,
        namespace: Namespace | str | None = None,
        key: Hashable = None,
        system: str | None = None,
        **options: Unpack[RequestOptions],
    ) -> AlignedPrompt:
        """Choose the order of a request's blocks and take it as about to be sent.

        Args:
            blocks: best first: `Block` objects, texts, ``(id, text)`` pairs, mappings with "text" and perhaps "id",
                "tokens", "score"; or a `Context`. A text that comes twice is placed once, at its better rank.
            question: stands last in the prompt, as it is. Empty: a `Context`'s own question.
            namespace: for this request; None: the pilot's.
            key: your name for the request; comes back as ``alignment.request.key``.
            system: the system prompt, if requests differ in it: only equal ones share a prefix; ``messages()`` has it.
            **options: settings for this request: order, min_gain, protect_top, max_displacement, echo, order_hint.

        Raises:
            InvalidBlock: a block that is no text, or has an unusable id or token count.
            ConflictingBlocks: one id with two texts.
            TextTooLong: with ``dedup="blocks+chunks"``, a text of more than ``max_text`` characters.
            SettingsError: an unknown setting, or a value it cannot have.
            IndexFailed: the index broke, and ``on_error="raise"`` was asked for.
        """
        return self.decide(self.prepare(blocks, question, namespace=namespace, key=key, system=system, **options))

    def prepare(
        self,
        blocks: Iterable[BlockLike],
        question: str = "",
        *,
        namespace: Namespace | str | None = None,
        key: Hashable = None,
        system: str | None = None,
        **options: Unpack[RequestOptions],
    ) -> AlignedPrompt:
        """The first half of `align`: check and count, ask the index nothing; the order is the retriever's."""
        settings = self.settings.for_request(options)
        given = distinct(blocks, settings.normalise, settings.max_text if settings.dedup == "blocks+chunks" else None)
        if isinstance(blocks, Context) and not question:
            question = blocks.question
        question = plain_text(question, "the question")
        space = self._namespace if namespace is None else namespace_of(namespace)
        if system is not None:
            space = replace(space, head=head_of(system))
        refs = tuple(
            BlockRef(name, block.tokens or self._learner.weight(block.text, name))
            for name, block in zip(given.keys, given.blocks, strict=True)
        )
        return AlignedPrompt(
            request=Request(refs, space, settings.budget, key),
            order=tuple(range(len(refs))),
            rule=Rule.FAILED_OPEN,
            retrieved=given.blocks,
            aliases=given.aliases,
            question=question,
            system=system,
            wording=wording_of(settings.order_hint),
            echo=settings.echo,
            salt=self.asker.salt(space),
            chunks=settings.dedup == "blocks+chunks",
            exact=not settings.normalise,
        )

    def decide(self, prepared: AlignedPrompt) -> AlignedPrompt:
        """The second half of `align`: choose the order and take the request as about to be sent."""
        return self.asker.decide(prepared)

    def plan(
        self,
        contexts: Mapping[Hashable, ContextLike] | Iterable[ContextLike],
        *,
        index: ContextIndex | None = None,
        namespace: Namespace | str | None = None,
        time_budget: float | None = None,
        ceiling: bool = False,
        progress: Report | None = None,
        **options: Unpack[RequestOptions],
    ) -> Plan[AlignedPrompt]:
        """Choose the orders of a whole batch, and the order of sending; `run` sends it.

        Nothing is taken as sent. Contexts without a question of their own get none.

        Args:
            contexts: by your own keys, as for `align`; or one after another, then the keys are 0, 1, 2, ... Each is a
                `Context`, or blocks as `align` takes them.
            index: start from what it believes to be cached, such as ``pilot.index``. None: from an empty cache, as if
                it fails.
            namespace: of the whole batch; None: the pilot's.
            time_budget: seconds. All of them are used, and the best plan found by then is returned. None: as long as it
                takes, about a millisecond for each context.
            ceiling: also work out what no plan of this batch can pass; slow for very many contexts.
            progress: is told what is being done, how much of it is done, and how much there is at most.
            **options: as for `align`.

        Raises:
            InvalidBlock: something that is no context; the message says which.
            ConflictingBlocks: one id with two texts in a context.
            SettingsError: an unknown setting, or a value it cannot have.
            IndexFailed: something broke, and ``on_error="raise"`` was asked for. Otherwise the plan is as retrieved.

        >>> pilot = ContextPilot()
        >>> plan = pilot.plan({"q1": ["Slices.", "Steps."], "q2": ["Copies."], "q3": ["Steps.", "Sets."]}, min_gain=0)
        >>> [alignment.request.key for alignment in plan]
        ['q1', 'q3', 'q2']
        """
        check_batch(index, time_budget)
        self.asker.salt(self._namespace if namespace is None else namespace_of(namespace), ask=True)
        prepared = prepared_batch(partial(self.prepare, namespace=namespace, **options), contexts)
        prepared = list(map(self.asker.trials.allowed, prepared))
        return plan_within(prepared, self.asker.believed(index), self._failures, time_budget, progress, ceiling=ceiling)

    async def run(  # noqa: PLR0913  all but two by name
        self,
        plan: Plan[AlignedPrompt],
        client: Client,
        *,
        concurrency: int = 8,
        system: str | None = None,
        model: str | None = None,
        results: str | Path | None = None,
        retries: int = 5,
        give_up_after: int = 20,
        progress: bool = False,
        **options: Any,  # noqa: ANN401
    ) -> RunReport:
        """Send a plan, so that each prefix is computed once: who shares one waits until it is in the engine's cache.

        Args:
            plan: what `plan` returned.
            client: an `AsyncEndpoint`, an ``openai.AsyncOpenAI`` (both stay open), or an engine's address.
            concurrency: how many requests are under way at a time.
            system: the system prompt.
            model: None: the client's own, else the first that the engine lists.
            results: a file that each answer is written to, as a JSON line, when it arrives. A run that finds answers in
                it sends only what is missing or had failed. Keys have to be str or int.
            retries: how often a request is tried again after a time-out, a lost connection, 408, 409, 429 or 5xx, or an
                answer that broke off. Other failures are final, and reported.
            give_up_after: so many requests that fail one after another, none answered in between, end the run.
            progress: show a bar on stderr.
            **options: what ``chat.completions.create`` takes: max_tokens, temperature, extra_body, ...

        Raises:
            SettingsError: a value that cannot be; nothing was sent.
            ResultsError: the file is none of results, or of another batch (nothing was sent), or cannot be written.
            EngineError: the run gave up, or the engine does not tell its model.
            IndexFailed: the index broke, and ``on_error="raise"`` was asked for.

        >>> import asyncio
        >>> from contextpilot_rag.testing import FakeEngine
        >>> pilot = ContextPilot()
        >>> plan = pilot.plan({"q1": ["Slices. " * 40, "Steps."], "q2": ["Steps.", "Slices. " * 40]})
        >>> with FakeEngine() as engine:
        ...     asyncio.run(pilot.run(plan, engine.base_url, max_tokens=3))
        <RunReport: 2 requests, 44.4% of 216 prompt tokens cached>
        """
        chosen = RunOptions(concurrency, system, model, results, retries, give_up_after, progress, options)
        return await send_plan(plan, client, chosen, self.asker, self.aobserve)

    def conversation(
        self,
        name: Hashable = None,
        *,
        namespace: Namespace | str | None = None,
        system: str | None = None,
        messages: Messages | None = None,
    ) -> Conversation:
        """A conversation, in which nothing is given to the model twice.

        The pilot keeps conversations for a while (``max_conversations``, ``conversation_seconds``). One that has to
        outlive that, or this process, is resumed from its ``messages``.

        Args:
            name: yours for it; the same name in the same namespace gives the same conversation. None: a new one, which
                the pilot does not keep.
            namespace: whose it is; None: the pilot's.
            system: the system prompt; constant for the conversation.
            messages: what was sent before, as ``conversation.messages`` gave it, to go on from there.

        Raises:
            InputError: another system prompt than the conversation's, or an empty name.
            SettingsError: a namespace that is none.
        """
        space = self._namespace if namespace is None else namespace_of(namespace)
        make = partial(opened, self, space, system, left_out(self.settings), messages and list(messages))
        return make(None) if name is None else self._conversations.get(space, name, make)

    def count_tokens(self, text: str) -> int:
        """Tokens of a text, as this pilot counts them."""
        return self._learner.weight(text, block_key(text)) if text else 0

    def predict(self, prepared: AlignedPrompt) -> int:
        """Tokens of a prepared request that would be cached if it were sent now. Nothing is taken as sent."""
        return self.asker.predict(prepared)

    def observe(self, alignment: Alignment, response: object, messages: Messages | None = None) -> Usage | None:
        """Learn from the engine's answer what was really cached, and how it counts tokens.

        Args:
            alignment: what ``align`` returned for this request.
            response: the engine's answer, or the last chunk of a stream: anything with an OpenAI-style ``usage``.
            messages: as they were sent, where that was not ``alignment.messages()``.

        Returns:
            What was reported, or None if nothing was.

        Raises:
            InputError: the first argument is no alignment.
        """
        return self._learner.observe(alignment, response, messages)

    async def aobserve(self, alignment: Alignment, response: object, messages: Messages | None = None) -> Usage | None:
        """As `observe`, awaiting an index that is elsewhere."""
        return await self._learner.aobserve(alignment, response, messages)

    def extra_body(self, namespace: Namespace | str | None = None) -> dict[str, Any]:
        """What every request of a namespace carries as ``extra_body``: its ``cache_salt``, if it has one.

        For those who configure their client once; prompts have it as ``prompt.extra_body``. A service is asked for it.

        Raises:
            SettingsError: a namespace that is none.
            IndexFailed: the service did not say, and ``on_error="raise"`` was asked for.

        >>> sorted(ContextPilot().extra_body("tenant-1"))
        ['cache_salt']
        """
        space = self._namespace if namespace is None else namespace_of(namespace)
        salt = self.asker.salt(space, ask=True)
        return {} if salt is None else {"cache_salt": salt}

    def failed_open(self, error: Exception) -> None:
        """Count a failure of something that is built on this pilot; logged once, until a minute had none.

        Raises:
            ContextPilotError: the error, or `IndexFailed` because of it, if ``on_error="raise"`` was asked for.
        """
        self._failures.fail_with(error)

    def close(self) -> None:
        """End what this pilot made: connections or a replica (made anew on use), the following of engines."""
        if self._pool is not None:
            self._pool.close()
        if self._made is not None:
            self._made.close()
