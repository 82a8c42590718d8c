"""What else could order a batch: the simple ways, as others describe them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from contextpilot_rag.trace import TraceRequest

Schedule = list[tuple[TraceRequest, list[str]]]


def as_retrieved(trace: Sequence[TraceRequest]) -> Schedule:
    """As the retriever returned them, in order of arrival."""
    return [(request, [str(block.key) for block in request.blocks]) for request in trace]


def by_popularity(trace: Sequence[TraceRequest]) -> Schedule:
    """Each request's blocks by how much the whole batch asks for them (tokens times requests), then all sorted."""
    counts = Counter(str(block.key) for request in trace for block in request.blocks)
    schedule = []
    for request in trace:
        weight = {str(block.key): block.tokens * counts[str(block.key)] for block in request.blocks}
        schedule.append((request, sorted(weight, key=lambda block, weight=weight: (-weight[block], block))))
    place = {block: number for number, block in enumerate(sorted(counts, key=lambda block: (-counts[block], block)))}
    return sorted(schedule, key=lambda item: [place[block] for block in item[1]])


def group_recursion(trace: Sequence[TraceRequest]) -> Schedule:
    """Greedy group recursion (Liu et al., MLSys 2025).

    The block that saves most by being first in all requests that hold it goes first there; then the same within those
    requests, and within the rest.
    """
    tokens = {str(block.key): block.tokens for request in trace for block in request.blocks}
    schedule: Schedule = []
    everything = [(request, frozenset(str(block.key) for block in request.blocks)) for request in trace]
    stack: list[tuple[list[str], list[tuple[TraceRequest, frozenset[str]]]]] = [([], everything)]
    while stack:
        prefix, group = stack.pop()
        counts = Counter(block for _, left in group for block in left)
        best = max(counts, key=lambda block: (tokens[block] * (counts[block] - 1), block), default=None)
        if best is None or counts[best] < 2:
            for request, left in group:
                rest = [str(block.key) for block in request.blocks if str(block.key) in left]
                schedule.append((request, [*prefix, *rest]))
            continue
        stack.append((prefix, [(request, left) for request, left in group if best not in left]))
        stack.append(([*prefix, best], [(request, left - {best}) for request, left in group if best in left]))
    return schedule
