"""What the benchmark of replicas has each replica do. Everything here is data, sent to a process and back as JSON.

Times of day are those of `time.perf_counter`, which all processes of a machine share.
"""

from __future__ import annotations

import msgspec
from msgspec import Struct

REPORTED_AFTER = 0.1  # seconds from a request's order to the report of its usage


class Begin(Struct):
    """What a process is to be.

    Args:
        url: of the log's server.
        pools: indexes, by name, with their capacity in tokens; those called "local..." follow no log.
        secret: that all replicas share.
        pace: what differs from the usual `Pace`.
        watch: note when each record is told, and when it arrives.
    """

    url: str
    pools: dict[str, int | None]
    secret: str = "a secret of the benchmark"  # noqa: S105
    pace: dict[str, float] = {}
    watch: bool = False


class Began(Struct):
    """The process is there.

    Args:
        ready: all that the log has was read.
        seconds: until then, from when the replica was made.
    """

    ready: bool
    seconds: float


class Align(Struct, tag=True):
    """Align one request now; the answer is `Aligned`.

    Args:
        pool: by which index.
        order: budget.
        keys: of its blocks, as retrieved.
        tokens: theirs.
    """

    pool: str
    order: str
    keys: list[str]
    tokens: list[int]


class Aligned(Struct):
    """An order.

    Args:
        order: ranks in prompt order.
    """

    order: list[int]


class Prepare(Struct, tag=True):
    """Make requests ready; the answer is `Prepared`, and `Go` has them aligned.

    Args:
        pool: by which index.
        requests: how many.
        rate: a second, at times that do not depend on how long anything takes; 0: one after another.
        order: budget.
        contexts: a file of contexts, each a list of (key, tokens); empty: new ones of `Traffic`.
        numbers: which of the file's, in this order.
        seed: of new contexts, times and namespaces.
        spaces: namespaces that requests are spread over.
        reports: of usage for each request.
        orders: are wanted.
    """

    pool: str
    requests: int
    rate: float = 0.0
    order: str = "balanced"
    contexts: str = ""
    numbers: list[int] = []
    seed: int = 0
    spaces: int = 1
    reports: bool = False
    orders: bool = False


class Prepared(Struct):
    """Requests are ready."""


class Go(Struct, tag=True):
    """Align what was prepared; the answer is `Worked`.

    Args:
        begin: when the first moment is.
    """

    begin: float


class Worked(Struct):
    """What came of it. Lists are in the order of the requests.

    Args:
        decided: when each was.
        late: seconds that each began after it was due.
        took: microseconds of each `align`.
        joined: whether the replica had the log, at each.
        orders: if they were wanted.
    """

    decided: list[float]
    late: list[float]
    took: list[float]
    joined: list[bool]
    orders: list[list[int]] = []


class Settle(Struct, tag=True):
    """Wait until all that was told is back and taken in; the answer is `Settled`.

    Args:
        seconds: at most.
    """

    seconds: float = 20.0


class Settled(Struct):
    """How the replica stands to its log.

    Args:
        seconds: that it took; more than was granted: it is not settled.
        settled: nothing waits.
        joined: as `ReplicaStatus` has it, and all that follows.
        pending: see there.
        appended: see there.
        applied: see there.
        rejected: see there; all reasons.
        reloads: see there; all reasons.
        founded: see there.
        compacted: see there.
        outages: see there.
        dropped: see there.
    """

    seconds: float
    settled: bool
    joined: bool
    pending: int
    appended: int
    applied: int
    rejected: int
    reloads: int
    founded: int
    compacted: int
    outages: int
    dropped: int


class Digest(Struct, tag=True):
    """A digest of all that a pool's index knows by its log; the answer is `Digested`."""

    pool: str


class Digested(Struct):
    """A digest.

    Args:
        digest: equal for equal indexes.
        namespaces: how many are known.
        bytes: of what it is a digest of.
    """

    digest: str
    namespaces: int
    bytes: int


class Seen(Struct, tag=True):
    """Tell when records were told and when they arrived, and begin anew; the answer is `Noted`."""


class Noted(Struct):
    """When records were told and arrived, by their numbers.

    Args:
        writer: this replica.
        told: here.
        arrived: here, by writer.
    """

    writer: str
    told: list[tuple[int, float]]
    arrived: dict[str, list[tuple[int, float]]]


Job = Align | Prepare | Go | Settle | Digest | Seen
jobs = msgspec.json.Decoder(Job)
