"""A cluster of log servers."""

from __future__ import annotations

import pytest
import redis

from tests.replicas.cluster import Cluster
from tests.replicas.log_server import User


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with Cluster(tmp_path_factory.mktemp("cluster"), users=[User("replica", "word", ("~cp:*", "+@all"))]) as cluster:
        yield cluster


def test_a_cluster_spreads_hash_tagged_keys(cluster):
    client = cluster.client()
    for number in range(30):
        for kind in ("log", "snapshot"):
            client.set(f"cp:{{{number}}}:{kind}", number)
    held = [{key.decode() for key in node.client().scan_iter()} for node in cluster.nodes]
    assert sum(len(keys) for keys in held) == 60
    assert all(held)
    for keys, node in zip(held, cluster.nodes, strict=True):
        for key in keys:
            assert cluster.owner(key) is node
            assert (
                key.replace("log", "snapshot") in keys or key.replace("snapshot", "log") in keys
            )  # tags stay together


def test_a_node_does_not_answer_for_another(cluster):
    owner = cluster.owner("cp:a")
    other = next(node for node in cluster.nodes if node is not owner)
    with pytest.raises(redis.exceptions.MovedError):
        other.client().get("cp:a")


def test_users_are_known_to_all_nodes(cluster):
    with redis.RedisCluster.from_url(cluster.url_of(User("replica", "word", ()))) as client:
        for number in range(10):
            client.set(f"cp:{number}", number)
        with pytest.raises(redis.exceptions.NoPermissionError):
            client.set("other", 1)


def test_a_node_comes_back(tmp_path):
    with Cluster(tmp_path, persistent=True) as cluster:
        client = cluster.client()
        client.set("a", "b")
        cluster.owner("a").kill()
        cluster.owner("a").start()
        cluster.wait()
        assert client.get("a") == b"b"
