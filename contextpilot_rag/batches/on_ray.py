"""Plans on a Ray cluster."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from ..errors import InputError, SettingsError
from ..index.watch import Report
from ..intake import namespace_of
from ..settings import RequestOptions, Settings
from ..types import Namespace, Request, short
from .cutting import SLACK
from .pipeline import COUNTERS, GROUP, Sizes, plan_in_shards
from .reading import Reading, lots
from .sharded import ShardedPlan
from .workers import RayWorkers

if TYPE_CHECKING:
    import ray.data
    from typing_extensions import Unpack

    from ..trace import TraceRequest


def plan_on_ray(
    contexts: ray.data.Dataset | Iterable[Request | TraceRequest | Mapping[str, Any]],
    shards: int = 1,
    *,
    tokens: Mapping[Any, int] | None = None,
    namespace: Namespace | str | None = None,
    group: int = GROUP,
    counters: int = COUNTERS,
    slack: float = SLACK,
    progress: Report | None = None,
    **options: Unpack[RequestOptions],
) -> ShardedPlan:
    """Plan a batch of any length on Ray, one shard for each engine.

    The batch is split top-down by its heaviest blocks until each group fits one planner; groups are planned in
    parallel, and what comes out is cut into shards of equal work, where whole subtrees meet. The set of blocks of each
    request never changes, and each request stands in exactly one shard, once. The same input gives the same plan,
    whatever happens to workers.

    Ray has to be reachable from here, or it is started as ``ray.init()`` does it; its workers need this package.

    Args:
        contexts: a Ray data set whose rows have ``context_ids``, best first, and perhaps ``tokens``, their lengths; or
            an iterable of such rows, or of `Request` objects, read as it is planned. Other columns are kept, so drop
            what you will not need. Names may come twice.
        shards: how many engines there are.
        tokens: the length of each block, for rows that do not tell. None: all weigh the same.
        namespace: of rows; `Request` objects have their own. Prefixes are shared within a namespace only.
        group: contexts that one planner call takes. More need more memory in a worker, about 20 KB each, and find more.
        counters: heavy blocks that are counted at a time, for each part that is to be split.
        slack: how far from equal work a shard may end, as a share, in order to part no subtree.
        progress: is told what is being done, how much of it is done, and how much there is at most.
        **options: for rows, as for `ContextPilot.plan`: order, min_gain, protect_top, max_displacement.

    Raises:
        InputError: no context, or something that is none; the message says which.
        SettingsError: an unknown setting, or a value that it cannot have.
        MissingPackage: Ray is not installed.
    """
    for name, value in (("shards", shards), ("group", group), ("counters", counters)):
        if type(value) is not int or value < 1:
            raise SettingsError(f"{name} must be an int, 1 or more, not {short(value)}")
    if not isinstance(slack, int | float) or not 0 <= slack < 1:
        raise SettingsError(f"slack must be a share from 0 to below 1, not {short(slack)}")
    how = Reading(Settings().for_request(options).budget, namespace_of(namespace))
    workers = RayWorkers()
    sizes = Sizes(group, counters, slack)
    return plan_in_shards(workers, _lots(contexts), shards, lengths=tokens, how=how, sizes=sizes, report=progress)


def _lots(contexts: ray.data.Dataset | Iterable[object]) -> Iterator[object]:
    """Lists of contexts, or references to the tables of a data set."""
    import ray.data

    if isinstance(contexts, ray.data.Dataset):
        how = contexts.context.execution_options
        before, how.preserve_order = how.preserve_order, True  # else no two runs give the same plan
        try:
            tables = contexts.to_arrow_refs()
        finally:
            how.preserve_order = before
        yield from tables
        return
    if isinstance(contexts, str | bytes | Mapping) or not isinstance(contexts, Iterable):
        raise InputError(
            f"contexts must be a Ray data set or an iterable of contexts, not one {type(contexts).__name__}"
        )
    yield from lots(contexts)
