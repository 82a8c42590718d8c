"""From what the index answers to prompts: checked, and put together with the texts."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from math import inf

from .batch import Plan
from .errors import InputError, SettingsError
from .failing import Failures
from .index.tree import PrefixTree
from .index.watch import Report, Watch
from .intake import ContextLike, keyed_contexts
from .prompt.prompt import AlignedPrompt
from .types import Alignment, Namespace, short


def plan_prompts(
    prepared: Sequence[AlignedPrompt],
    cached: Callable[[Namespace], PrefixTree | None] | None,
    watch: Watch,
    *,
    ceiling: bool,
) -> Plan[AlignedPrompt]:
    """A plan of prepared prompts.

    Args:
        prepared: checked and counted, in any order.
        cached: what is believed to be cached for a namespace; None: nothing.
        watch: says when the time is up.
        ceiling: also work out what no plan can pass.
    """
    from .index.plan import plan_batch  # numpy is not loaded before it is needed

    requests = [prompt.request for prompt in prepared]
    plan = plan_batch(requests, cached or (lambda _: None), watch=watch, ceiling=ceiling)
    prompts = {id(prompt.request): prompt for prompt in prepared}
    alignments = []
    for alignment in plan:
        prompt = prompts[id(alignment.request)]
        alignments.append(decided(prompt, alignment, prompt.salt))
    return Plan(tuple(alignments), plan.sources, plan.ceiling_tokens, plan.complete)


def prepared_batch(
    prepare: Callable[..., AlignedPrompt], contexts: Mapping[Hashable, ContextLike] | Iterable[ContextLike]
) -> list[AlignedPrompt]:
    """All contexts, checked and counted; an error says which one it is about.

    Args:
        prepare: checks one.
        contexts: as `ContextPilot.plan` takes them.

    Raises:
        InputError: one cannot be used.
    """
    prepared = []
    for key, context in keyed_contexts(contexts):
        try:
            prepared.append(prepare(context, key=key))
        except InputError as error:
            hint = " (with a question: Context(blocks, question))" if isinstance(context, tuple) else ""
            raise type(error)(f"context {short(key)}: {error}{hint}") from None
    return prepared


def check_batch(index: object, time_budget: float | None) -> None:
    """That a plan can start from an index, and end in so many seconds.

    Raises:
        SettingsError: it cannot.
    """
    if index is not None and not hasattr(index, "tree"):
        raise SettingsError(f"index must be one, such as pilot.index, not {short(index)}")
    if time_budget is not None and not (isinstance(time_budget, int | float) and 0 <= time_budget < inf):
        raise SettingsError(f"time_budget must be a number of seconds, 0 or more, not {short(time_budget)}")


def plan_within(
    prepared: Sequence[AlignedPrompt],
    cached: Callable[[Namespace], PrefixTree | None] | None,
    failures: Failures,
    time_budget: float | None,
    progress: Report | None,
    *,
    ceiling: bool,
) -> Plan[AlignedPrompt]:
    """As `plan_prompts`, within so many seconds; if planning breaks, the plan is as retrieved."""
    ends = None if time_budget is None else time.monotonic() + time_budget
    watch = Watch(None if ends is None else lambda: time.monotonic() >= ends, progress)
    try:
        return plan_prompts(prepared, cached, watch, ceiling=ceiling)
    except Exception as error:  # noqa: BLE001  fails open: the requests can be sent all the same
        failures.fail(error)
        return Plan(tuple(prepared), (-1,) * len(prepared), None, complete=False)


def decided(prepared: AlignedPrompt, alignment: Alignment, salt: str | None) -> AlignedPrompt:
    """A prepared prompt with the order that was chosen for its request, and the cache salt that goes with it."""
    return replace(
        prepared,
        order=alignment.order,
        cached_blocks=alignment.cached_blocks,
        predicted_cached_tokens=alignment.predicted_cached_tokens,
        retrieved_cached_tokens=alignment.retrieved_cached_tokens,
        rule=alignment.rule,
        ticket=alignment.ticket,
        engine=alignment.engine,
        expected_cached_tokens=alignment.expected_cached_tokens,
        belief=alignment.belief,
        salt=salt,
    )
