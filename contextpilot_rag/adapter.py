"""Adapter: what a package for a framework needs from the core, and nothing of any framework.

A framework assembles its prompts itself, calls the engine itself, and hands on texts and not blocks. So an adapter
takes texts by position, never lets a failure through, and finds out from the prompt that was sent which of the requests
under way an engine's report is about.
"""

from __future__ import annotations

import asyncio
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, TypeGuard

from .asking import at_once
from .async_pilot import AsyncContextPilot
from .conversation import Conversation, TurnPrompt
from .dedup.marks import shield
from .dedup.messages import Messages
from .engines.usage import usage_of
from .forking import after_fork
from .index.local import ContextIndex
from .intake import namespace_of
from .pilot import ContextPilot
from .prompt.escape import escape
from .prompt.prompt import AlignedPrompt
from .prompt.render import Message, render_block
from .prompt.wording import DEFAULT_WORDING, hint
from .settings import RequestOptions, Wording
from .types import Block, Namespace, Rule, Usage

if TYPE_CHECKING:
    from typing_extensions import Unpack

PilotLike = ContextPilot | AsyncContextPilot | ContextIndex | str | None


class Adapter:
    """A pilot inside a framework: texts in, an order out, and no failure ever.

    Args:
        pilot: a `ContextPilot` or `AsyncContextPilot` to share, an index, the address of a service or of replicas' log,
            or None: the one at ``CONTEXTPILOT_INDEX`` if that is set, else an index of its own in this process.
        namespace: what may share cached prefixes; None: the pilot's.
        remember: requests under way that a report can be matched to; the oldest go.
        **options: settings for every request: order, min_gain, protect_top, ...

    Raises:
        SettingsError: an unknown setting, index or namespace, or a value that a setting cannot have.

    >>> adapter = Adapter(min_gain=0)
    >>> monday = adapter.arrange(["Slices count from zero.", "Sets have no order."], "What is a slice?")
    >>> tuesday = adapter.arrange(["Sets have no order.", "Slices count from zero."], "And a set?")
    >>> [positions for positions in tuesday.ids.values()]
    [(1,), (0,)]
    """

    def __init__(
        self,
        pilot: PilotLike = None,
        *,
        namespace: Namespace | str | None = None,
        remember: int = 256,
        **options: Unpack[RequestOptions],
    ) -> None:
        if isinstance(pilot, AsyncContextPilot):
            self._async = pilot
        elif isinstance(pilot, ContextPilot):
            self._async = AsyncContextPilot.around(pilot)
        else:
            self._async = AsyncContextPilot(pilot)
        self.pilot: ContextPilot = self._async.blocking
        self.namespace: Namespace | None = None if namespace is None else namespace_of(namespace)
        self._options = options
        self.pilot.prepare((), **options)  # wrong options are said now, not when a request comes
        self._under_way: OrderedDict[int, AlignedPrompt] = OrderedDict()
        self._remember = max(1, remember)
        self._renew_lock()
        after_fork(self, Adapter._renew_lock)

    def arrange(
        self, texts: Sequence[str], question: str = "", *, namespace: Namespace | str | None = None
    ) -> AlignedPrompt | None:
        """Choose an order for a request's texts and take it as about to be sent.

        Args:
            texts: best first, exactly as they will stand in the prompt.
            question: what is asked; helps to find the request again when the engine reports.
            namespace: for this request; None: the adapter's.

        Returns:
            The prompt. Its ids are positions in ``texts``: ``prompt.ids[label]`` are all positions that have the text
            of a label. None: something failed, so leave everything as it is.

        Raises:
            IndexFailed: something failed, and ``on_error="raise"`` was asked for.
        """
        with _FailingOpen(self.failed):
            blocks, options = self._request(texts, namespace)
            return self._remembered(self.pilot.align(blocks, question, **options))
        return None

    async def aarrange(
        self, texts: Sequence[str], question: str = "", *, namespace: Namespace | str | None = None
    ) -> AlignedPrompt | None:
        """As `arrange`, awaiting an index that is elsewhere."""
        with _FailingOpen(self.failed):
            blocks, options = self._request(texts, namespace)
            return self._remembered(await self._async.align(blocks, question, **options))
        return None

    def turn(
        self, conversation: Conversation, texts: Sequence[str], question: str = ""
    ) -> tuple[list[Message], TurnPrompt | None]:
        """The messages of a conversation's next turn, as `Conversation.align` makes them.

        Args:
            conversation: of this adapter's pilot.
            texts: what was retrieved for the turn, best first.
            question: what is asked.

        Returns:
            The messages to send, and the turn's prompt, whose ids are positions in ``texts``. Where something failed:
            all that was sent before, this turn's texts in full, and None. Either way the conversation knows of it.

        Raises:
            IndexFailed: something failed, and ``on_error="raise"`` was asked for.
        """
        given: list[str] = []
        with _FailingOpen(self.failed):
            given = list(texts)
            prompt = conversation.align(_by_position(given), question, **self._options)
            return prompt.messages(), prompt
        return conversation.ask("\n\n".join(str(part) for part in (*given, question) if part)), None

    async def aturn(
        self, conversation: Conversation, texts: Sequence[str], question: str = ""
    ) -> tuple[list[Message], TurnPrompt | None]:
        """As `turn`, awaiting an index that is elsewhere."""
        return await self._async.apart(self.turn, conversation, texts, question)

    def learn(
        self,
        sent: str,
        response: object,
        *,
        namespace: Namespace | str | None = None,
        messages: Messages | None = None,
    ) -> Usage | None:
        """Learn from an engine's report on a prompt that somebody else assembled and sent.

        In an event loop, an index that is elsewhere is told of it in a thread, and what fails there is only counted.

        Args:
            sent: the text of all its messages.
            response: as `ContextPilot.observe` takes it.
            namespace: of the request, where it is known. None: any, but nothing is learnt where the same blocks and
                question are under way in two.
            messages: the prompt exactly as the engine was sent it, as plain dicts: where engines are followed, its
                blocks are looked for in it, whether anything was reported or not. None: it is not known so exactly.

        Returns:
            What was reported; None if nothing was, or if no request under way fits the prompt.
        """
        with _FailingOpen(self.failed):
            usage = usage_of(response)
            if usage is None and messages is None:
                return None
            prompt = self._found(sent, None if namespace is None else namespace_of(namespace))
            if prompt is not None:
                prompt.sent.note((sent,), messages)
                return self._report(prompt, usage)
        return None

    async def aextra_body(
        self, namespace: Namespace | str | None = None, prompt: AlignedPrompt | None = None
    ) -> dict[str, Any]:
        """As `extra_body`, awaiting an index that is elsewhere."""
        if _failed(prompt):
            return prompt.extra_body
        return await self._async.extra_body(self.namespace if namespace is None else namespace)

    def extra_body(
        self, namespace: Namespace | str | None = None, prompt: AlignedPrompt | None = None
    ) -> dict[str, Any]:
        """What a request carries as ``extra_body``: its namespace's ``cache_salt``, if it has one.

        Args:
            namespace: None: the adapter's.
            prompt: the request's, if there is one. Where its order was asked for in vain, the index is not asked again.

        Raises:
            SettingsError: a namespace that is none.
            IndexFailed: the index did not say, and ``on_error="raise"`` was asked for.
        """
        if _failed(prompt):
            return prompt.extra_body
        return self.pilot.extra_body(self.namespace if namespace is None else namespace)

    def report(self, prompt: AlignedPrompt, response: object, messages: Messages | None = None) -> Usage | None:
        """Learn from an engine's report on a prompt of ours, as `ContextPilot.observe`.

        In an event loop, an index that is elsewhere is told of it in a thread, and what fails there is only counted.

        Args:
            prompt: what `arrange` or `turn` gave.
            response: as `ContextPilot.observe` takes it.
            messages: as they were sent, where that was not ``prompt.messages()``.

        Returns:
            What was reported, or None if nothing was.
        """
        return self._report(prompt, usage_of(response), messages)

    async def areport(self, prompt: AlignedPrompt, response: object, messages: Messages | None = None) -> Usage | None:
        """As `report`, awaiting an index that is elsewhere."""
        return await self._async.observe(prompt, response, messages)

    def rate(self, prompt: AlignedPrompt, score: float) -> bool:
        """Tell how good an answer was, as `ContextPilot.rate`; a score that cannot be is a failure like any other."""
        with _FailingOpen(self.failed):
            return self.pilot.rate(prompt, score)
        return False

    @property
    def failures(self) -> int:
        """How often something failed, and the framework's own result was used."""
        return self.pilot.failures

    def failed(self, error: Exception) -> None:
        """Count a failure of the framework's side; raise it, if ``on_error="raise"`` was asked for."""
        self.pilot.failed_open(error)

    def _report(self, prompt: AlignedPrompt, usage: Usage | None, messages: Messages | None = None) -> Usage | None:
        """Let the index know, in a thread where an event loop would have to wait for one that is elsewhere."""
        try:
            loop = None if usage is None or at_once(self.pilot.index) else asyncio.get_running_loop()
        except RuntimeError:
            loop = None
        if loop is None:
            return self.pilot.observe(prompt, usage, messages)
        reporting = loop.run_in_executor(None, self.pilot.observe, prompt, usage, messages)
        reporting.add_done_callback(lambda done: done.cancelled() or done.exception())  # which was counted
        return usage

    def _renew_lock(self) -> None:
        self._lock = threading.Lock()

    def _request(self, texts: Sequence[str], namespace: Namespace | str | None) -> tuple[list[Block], dict[str, Any]]:
        return _by_position(texts), {
            **self._options,
            "namespace": self.namespace if namespace is None else namespace,
        }

    def _remembered(self, prompt: AlignedPrompt) -> AlignedPrompt:
        with self._lock:
            self._under_way[id(prompt)] = prompt
            while len(self._under_way) > self._remember:
                self._under_way.popitem(last=False)
        return prompt

    def _found(self, sent: str, namespace: Namespace | None) -> AlignedPrompt | None:
        """The request under way whose question and most blocks stand in a prompt, blocks in order; no longer so."""
        with self._lock:
            waiting = list(self._under_way.items())
        fitting = [
            (name, prompt)
            for name, prompt in waiting
            if namespace in {None, prompt.request.namespace}
            and prompt.question in sent
            and _stand_in_order(prompt, sent)
        ]
        if len({prompt.request.namespace for _, prompt in fitting}) > 1:
            return None
        # Of equal ones the oldest.
        fitting.sort(key=lambda found: (len(found[1].blocks), len(found[1].question)), reverse=True)
        for name, prompt in fitting:
            with self._lock:
                if self._under_way.pop(name, None) is not None:
                    return prompt
        return None


class _FailingOpen:
    """What fails inside is handed to a function and goes no further: the framework's own result is there."""

    def __init__(self, failed: Callable[[Exception], None]) -> None:
        self._failed = failed

    def __enter__(self) -> None:
        pass

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> bool:
        if isinstance(error, Exception):
            self._failed(error)
            return True
        return False


def hint_for(
    ranks: Sequence[int | None],
    wording: Wording | None = DEFAULT_WORDING,
    texts: Sequence[str] = (),
    question: str = "",
) -> str | None:
    """The order hint for blocks in prompt order, or None where there is nothing to tell.

    Args:
        ranks: for each place, the rank that the retriever gave; None where it is not known, such as for a block that
            somebody else added.
        wording: as a prompt's ``wording``.
        texts: for each place, the block's text, for wordings that quote it.
        question: what is asked, where it is known.

    >>> hint_for([4, 0, 2])
    'Order of relevance, best first: [2] > [3] > [1]'
    >>> hint_for([0, 1, 2]), hint_for([0, 0, 1]), hint_for([1, 0, None])
    (None, None, None)
    """
    known = [rank for rank in ranks if rank is not None]
    if len(known) < len(ranks) or len(set(known)) < len(known) or all(a < b for a, b in pairwise(known)):
        return None
    return hint(wording, known, None, texts, question)


def labelled(number: int, text: str) -> str:
    """A block's text as it stands in a prompt: its label before it, and escaped what could forge a label or a hint.

    >>> labelled(2, "Slices count from zero.")
    '[2] Slices count from zero.'
    """
    return render_block(number, text)


def _failed(prompt: AlignedPrompt | None) -> TypeGuard[AlignedPrompt]:
    return prompt is not None and prompt.rule is Rule.FAILED_OPEN


def _by_position(texts: Sequence[str]) -> list[Block]:
    return [Block(text, id=position) for position, text in enumerate(texts)]


def _stand_in_order(prompt: AlignedPrompt, sent: str) -> bool:
    """Whether a line of each block is found, one after another, as it is or escaped."""
    place, seen = 0, 0
    for block in prompt.blocks:
        line = max(block.text.split("\n"), key=len).strip()
        found = sent.find(line, place)
        if found < 0:
            line = escape(shield(line))
            found = sent.find(line, place)
        if found < 0:
            return False
        place = found + len(line)
        seen += len(line)
    return seen > 0
