"""From what the index answers to prompts: checked, and put together with the texts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from .batch import Plan
from .index.tree import PrefixTree
from .index.watch import Watch
from .prompt.prompt import AlignedPrompt
from .types import Alignment, Namespace


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
    alignments = tuple([decided(prompts[id(alignment.request)], alignment) for alignment in plan])
    return Plan(alignments, plan.sources, plan.ceiling_tokens, plan.complete)


def decided(prepared: AlignedPrompt, alignment: Alignment) -> AlignedPrompt:
    """A prepared prompt with the order that was chosen for its request."""
    return replace(
        prepared,
        order=alignment.order,
        cached_blocks=alignment.cached_blocks,
        predicted_cached_tokens=alignment.predicted_cached_tokens,
        retrieved_cached_tokens=alignment.retrieved_cached_tokens,
        rule=alignment.rule,
        ticket=alignment.ticket,
    )
