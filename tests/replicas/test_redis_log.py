"""The log on a real server: plain, with a user who may do no more than needed, over TLS, and on a cluster."""

from __future__ import annotations

import pytest

from contextpilot_rag.replicas import redis_log
from contextpilot_rag.replicas.redis_log import ACL_COMMANDS, open_log
from tests.replicas.cluster import Cluster
from tests.replicas.log_conformance import LogConformance
from tests.replicas.log_server import LogServer, User
from tests.replicas.tls_relay import TlsRelay
from tests.service.test_server import certificate

REPLICA = User("replica", "pass:word@/#", ("~contextpilot:*", "resetchannels", "-@all", *ACL_COMMANDS[:-2]))
OF_CLUSTER = User("replica", "pass:word@/#", ("~contextpilot:*", "resetchannels", "-@all", *ACL_COMMANDS))


class OnServer(LogConformance):
    @pytest.fixture
    def url(self):
        raise NotImplementedError

    @pytest.fixture
    def opens(self, url):
        made = []

        def opens(**options):
            made.append(open_log(url, **{"timeout": 10.0, **options}))
            return made[-1]

        yield opens
        for log in made:
            log.close()

    @pytest.fixture
    def few_rings(self, monkeypatch):
        monkeypatch.setattr(redis_log, "_MOST_RINGS", 100)


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    with LogServer(tmp_path_factory.mktemp("plain")) as server:
        yield server


class TestPlainServer(OnServer):
    @pytest.fixture
    def url(self, plain):
        plain.client().flushall()
        return plain.url


class TestOwnPrefixAndDatabase(OnServer):
    @pytest.fixture
    def url(self, plain):
        plain.client().flushall()
        return f"{plain.url.removesuffix('/0')}/3?prefix=other.one&cluster=false"


@pytest.fixture(scope="module")
def guarded(tmp_path_factory):
    with LogServer(tmp_path_factory.mktemp("users"), users=[REPLICA]) as server:
        yield server


class TestUserWhoMayDoNoMoreThanNeeded(OnServer):
    @pytest.fixture
    def url(self, guarded):
        guarded.client().flushall()
        return guarded.url_of(REPLICA)


@pytest.fixture(scope="module")
def relay(plain, tmp_path_factory):
    folder = tmp_path_factory.mktemp("tls")
    try:
        (shown, key), (known, its_key) = certificate(folder, "server"), certificate(folder, "client")
    except FileNotFoundError:
        pytest.skip("needs the openssl command to make a certificate")
    with TlsRelay(plain.port, shown, key, client_ca=known) as relay:
        query = f"ssl_ca_certs={shown}&ssl_certfile={known}&ssl_keyfile={its_key}"
        yield f"valkeys://{relay.host}:{relay.port}/0?{query}"


class TestTls(OnServer):
    @pytest.fixture
    def url(self, plain, relay):
        plain.client().flushall()
        return relay


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with Cluster(tmp_path_factory.mktemp("cluster"), users=[OF_CLUSTER]) as cluster:
        yield cluster


class TestCluster(OnServer):
    @pytest.fixture
    def url(self, cluster):
        for node in cluster.nodes:
            node.client().flushall()
        return cluster.url_of(OF_CLUSTER)
