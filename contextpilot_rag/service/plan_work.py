"""What is done with one plan's batch, without pipes: read, checked, planned, written."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec

from ..batch import Plan
from ..index.plan import plan_batch
from ..index.state import TreePart, load_tree
from ..index.watch import Report, Watch
from ..prompt.wording import hint, wording_of
from ..remote.wire import budget_from, namespace_from, namespace_in
from ..remote.wire_plan import PlanIn, PlannedOut, PlanOut
from ..settings import Wording
from ..types import Alignment, Namespace, Request
from .blocks import Distinct, distinct
from .decoding import decode
from .plan_pipe import Accepted, Spaces, TreeOf
from .problems import Rejected, TooLarge, Unusable
from .settings import ServiceSettings

_NO_LIMIT = 10**9  # entries: the tree was bounded where it came from


@dataclass(slots=True)
class Batch:
    """Requests that can be planned.

    Args:
        requests: in the order they came.
        found: for each of them, where its blocks stood in what was sent.
        time_budget: seconds to search for.
        ceiling: also work out what no plan can pass.
        from_cache: start from trees.
        wording: of the order hints; None: there are none.
        trees: what is believed to be cached, in parts.
    """

    requests: list[Request]
    found: list[Distinct]
    time_budget: float | None = None
    ceiling: bool = False
    from_cache: bool = False
    wording: Wording | None = None
    trees: dict[Namespace, list[TreePart]] = field(default_factory=dict)

    @classmethod
    def read(cls, body: bytes, settings: ServiceSettings) -> Batch:
        """The batch of a request's body.

        Raises:
            Rejected: it cannot be planned; the message says where.
        """
        given = decode(msgspec.json.Decoder(PlanIn), body)
        if len(given.requests) > settings.max_plan:
            raise TooLarge(f"{len(given.requests)} requests; at most {settings.max_plan} are planned together")
        if given.time_budget is not None and given.time_budget > settings.plan_seconds:
            raise Unusable(f"time_budget: a plan is ended after {settings.plan_seconds:g} seconds")
        requests: list[Request] = []
        found: list[Distinct] = []
        for position, one in enumerate(given.requests):
            try:
                blocks = distinct(one.blocks, settings)
            except Rejected as error:
                raise type(error)(f"requests[{position}]: {error}") from None
            found.append(blocks)
            requests.append(Request(blocks.refs, namespace_from(one.namespace), budget_from(one.budget), one.key))
        wording = wording_of(given.order_hint)
        return cls(requests, found, given.time_budget, given.ceiling, given.from_cache, wording)

    @property
    def accepted(self) -> Accepted:
        """For who sent it."""
        blocks = sum(len(request.blocks) for request in self.requests)
        tokens = sum(request.tokens for request in self.requests)
        namespaces = len({request.namespace for request in self.requests})
        return Accepted(len(self.requests), blocks, tokens, namespaces, self.from_cache)

    def spaces(self) -> Spaces:
        """All namespaces, in the order they came."""
        return [namespace_in(space) for space in dict.fromkeys(request.namespace for request in self.requests)]

    def believe(self, data: bytes) -> None:
        """Take over a part of what is believed to be cached: an encoded `TreeOf`."""
        known = msgspec.msgpack.decode(data, type=TreeOf)
        self.trees.setdefault(namespace_from(known.namespace), []).append(known.part)

    def result(self, clock: Callable[[], float], report: Report | None = None) -> bytes:
        """The plan, as JSON."""
        budget, started = self.time_budget, clock()
        watch = Watch(None if budget is None else (lambda: clock() - started >= budget), report)
        trees = {space: load_tree(parts, None, _NO_LIMIT) for space, parts in self.trees.items()}
        plan = plan_batch(self.requests, trees.get, watch=watch, ceiling=self.ceiling)
        return msgspec.json.encode(self._answer(plan))

    def _answer(self, plan: Plan[Alignment]) -> PlanOut:
        position_of = {id(request): position for position, request in enumerate(self.requests)}
        planned = [
            self._planned(position_of[id(alignment.request)], alignment, source)
            for alignment, source in zip(plan.alignments, plan.sources, strict=True)
        ]
        return PlanOut(
            planned,
            tokens=plan.tokens,
            predicted_cached_tokens=plan.predicted_cached_tokens,
            retrieved_cached_tokens=plan.retrieved_cached_tokens,
            hit_ratio=plan.hit_ratio,
            changed=plan.changed,
            complete=plan.complete,
            ceiling_tokens=plan.ceiling_tokens,
        )

    def _planned(self, position: int, alignment: Alignment, source: int) -> PlannedOut:
        found, key = self.found[position], alignment.request.key
        return PlannedOut(
            request=position,
            order=[found.positions[rank] for rank in alignment.order],
            labels=list(range(1, len(alignment.order) + 1)),
            cached_blocks=alignment.cached_blocks,
            predicted_cached_tokens=alignment.predicted_cached_tokens,
            retrieved_cached_tokens=alignment.retrieved_cached_tokens,
            rule=alignment.rule.value,
            key=key if isinstance(key, str | int) else None,
            order_hint=hint(self.wording, alignment.order),
            merged=found.merged,
            source=source if source >= 0 else None,
        )
