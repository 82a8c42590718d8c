"""Several log servers as one cluster."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any

import redis

from .guarded import SECONDS
from .log_server import LogServer, User

SLOTS = 16_384


class Cluster:
    """Masters that share the slots evenly, ready when the constructor returns.

    Args:
        folder: Where they have their folders.
        nodes: How many.
        users: Who may use them; the default user is then off.
        persistent: They keep their data when they are killed.

    Raises:
        NoLogServer: There is no server's program here; a test that meets this is skipped.
    """

    def __init__(
        self, folder: Path, nodes: int = 3, *, users: Sequence[User] | None = None, persistent: bool = False
    ) -> None:
        self._opened = ExitStack()
        self.nodes: list[LogServer] = []
        with self._opened:  # closes all if one does not start
            for _ in range(nodes):
                node = LogServer(folder, cluster=True, users=users, persistent=persistent)
                self.nodes.append(self._opened.enter_context(node))
            self._join()
            self._opened = self._opened.pop_all()

    @property
    def url(self) -> str:
        """The address of its first node, without a user."""
        return self.nodes[0].url

    def url_of(self, user: User) -> str:
        """The address of its first node, for this user."""
        return self.nodes[0].url_of(user)

    def client(self, user: User | None = None, **options: Any) -> redis.RedisCluster:
        """A plain client that knows all nodes; closed with the cluster."""
        made = redis.RedisCluster(**self.nodes[0].known(user), **options)
        self._opened.callback(made.close)
        return made

    def owner(self, key: str) -> LogServer:
        """The node that holds a key."""
        slot: int = self.nodes[0].client().execute_command("CLUSTER KEYSLOT", key)
        return self.nodes[slot * len(self.nodes) // SLOTS]

    def wait(self) -> None:
        """Wait until every node that runs knows all that run, and serves all slots."""
        ends = time.monotonic() + SECONDS
        while not all(self._serves(node) for node in self.nodes):
            if time.monotonic() > ends:
                raise RuntimeError(f"The cluster is not ready: {self.nodes[0].said()[-2000:]}")
            time.sleep(0.02)

    def close(self) -> None:
        """Kill all nodes."""
        self._opened.close()

    def __enter__(self) -> Cluster:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _join(self) -> None:
        edges = [-(-SLOTS * number // len(self.nodes)) for number in range(len(self.nodes) + 1)]
        for number, node in enumerate(self.nodes):
            asking = node.client()
            asking.execute_command("CLUSTER SET-CONFIG-EPOCH", number + 1)
            asking.execute_command("CLUSTER ADDSLOTSRANGE", edges[number], edges[number + 1] - 1)
        for one in self.nodes:  # each the others, so that nobody waits for gossip
            for other in self.nodes:
                if one is not other:
                    one.client().execute_command("CLUSTER MEET", other.host, other.port, other.bus)
        self.wait()

    def _serves(self, node: LogServer) -> bool:
        try:
            known = node.client().cluster("INFO")
        except redis.RedisError:
            return False
        wanted = {"cluster_state": "ok", "cluster_slots_ok": SLOTS, "cluster_known_nodes": len(self.nodes)}
        return all(str(known[name]) == str(value) for name, value in wanted.items())
