"""Relays between clients and the log server: links that break, and TLS."""

from __future__ import annotations

import socket
import threading
import time
from contextlib import ExitStack

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from tests.ports import free_port
from tests.replicas.link import Link
from tests.replicas.log_server import LogServer, User
from tests.replicas.tls_relay import TlsRelay
from tests.service.test_server import certificate

SHORT = 0.1


@pytest.fixture
def opened():
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def link(opened, log_server):
    return opened.enter_context(Link(log_server.port))


def client(opened, url, seconds=20.0, **options):
    retry = Retry(NoBackoff(), 0)
    return opened.enter_context(redis.Redis.from_url(url, socket_timeout=seconds, retry=retry, **options))


def connected(opened, port):
    sock = opened.enter_context(socket.create_connection(("127.0.0.1", port), timeout=20))
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


def test_a_link_passes_everything(opened, link):
    asking = client(opened, link.url)
    large = bytes(range(256)) * 8_000
    asking.set("large", large)
    assert asking.get("large") == large


def test_a_link_without_a_delay_waits_for_nothing(opened, link):
    asking = client(opened, link.url)
    assert asking.ping()
    ((answering, asks),) = link._pairs.values()
    for writer in (answering, asks):
        assert writer.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_a_cut_link_passes_nothing_and_all_of_it_after_healing(opened, link, log_server):
    sock = connected(opened, link.port)
    sock.sendall(b"PING\r\n")
    assert sock.recv(100) == b"+PONG\r\n"
    link.cut()
    sock.sendall(b"SET a b\r\n")
    sock.settimeout(SHORT)
    with pytest.raises(TimeoutError):
        sock.recv(100)
    assert log_server.client().get("a") is None
    link.heal()
    sock.settimeout(20)
    assert sock.recv(100) == b"+OK\r\n"
    assert log_server.client().get("a") == b"b"


def test_a_new_connection_over_a_cut_link_hangs_until_it_is_healed(opened, link):
    link.cut()
    with pytest.raises(redis.TimeoutError):
        client(opened, link.url, SHORT).ping()
    sock = connected(opened, link.port)
    sock.sendall(b"PING\r\n")
    link.heal()
    assert sock.recv(100) == b"+PONG\r\n"


def test_a_new_connection_over_a_cut_link_is_refused_where_asked_for(opened, link):
    sock = connected(opened, link.port)
    sock.sendall(b"PING\r\n")
    assert sock.recv(100) == b"+PONG\r\n"
    port = link.port
    link.cut(refuse=True)
    with pytest.raises(ConnectionRefusedError):
        connected(opened, port)
    link.heal()
    assert link.port == port
    sock.sendall(b"PING\r\n")  # the old one has stayed
    assert sock.recv(100) == b"+PONG\r\n"
    assert client(opened, link.url).ping()


def test_the_end_of_a_connection_does_not_pass_a_cut_link(opened, link, log_server):
    looking = log_server.client()
    with socket.create_connection(("127.0.0.1", link.port), timeout=20) as sock:
        sock.sendall(b"CLIENT SETNAME leaving\r\n")
        assert sock.recv(100) == b"+OK\r\n"
        link.cut()
    time.sleep(SHORT)
    names = [one["name"] for one in looking.client_list()]
    assert "leaving" in names
    link.heal()
    ends = time.monotonic() + 20
    while "leaving" in [one["name"] for one in looking.client_list()]:
        assert time.monotonic() < ends


@pytest.mark.parametrize(("passing", "arrives"), [("requests", b"b"), ("answers", None)])
def test_half_a_link_passes_one_direction(opened, link, log_server, passing, arrives):
    sock = connected(opened, link.port)
    sock.sendall(b"PING\r\n")
    assert sock.recv(100) == b"+PONG\r\n"
    link.half(passing)
    sock.sendall(b"SET a b\r\n")
    sock.settimeout(SHORT)
    with pytest.raises(TimeoutError):
        sock.recv(100)
    assert log_server.client().get("a") == arrives
    link.heal()
    sock.settimeout(20)
    assert sock.recv(100) == b"+OK\r\n"


def test_what_the_server_says_passes_half_a_link_for_answers(opened, link, log_server):
    sock = connected(opened, link.port)
    sock.sendall(b"SUBSCRIBE news\r\n")
    assert b"news" in sock.recv(1000)
    link.half("answers")
    log_server.client().publish("news", "told")
    assert b"told" in sock.recv(1000)


def test_a_delay_delays_and_loses_nothing(opened, link):
    sock = connected(opened, link.port)
    link.delay(0.05)
    begun = time.monotonic()
    sock.sendall(b"PING\r\n" * 20)
    got = b""
    while len(got) < 20 * 7:
        got += sock.recv(1000)
    assert got == b"+PONG\r\n" * 20
    assert time.monotonic() - begun >= 0.1  # there and back
    link.delay(0)
    assert client(opened, link.url).ping()


@pytest.mark.parametrize("first", [lambda link: None, Link.cut], ids=["whole", "cut"])
def test_dropped_connections_are_reset_and_new_ones_pass(opened, link, first):
    sock = connected(opened, link.port)
    sock.sendall(b"PING\r\n")
    assert sock.recv(100) == b"+PONG\r\n"
    first(link)
    new = connected(opened, link.port)
    link.drop()
    for one in (sock, new):
        with pytest.raises(ConnectionResetError):
            one.recv(100)
    link.heal()
    assert client(opened, link.url).ping()


def test_a_server_that_is_killed_is_gone_over_its_link_and_comes_back_over_it(opened, link, log_server):
    asking = client(opened, link.url)
    assert asking.ping()
    log_server.kill()
    for _ in range(2):
        with pytest.raises(redis.ConnectionError):
            asking.ping()
    log_server.start()
    assert asking.ping()


def test_a_link_is_closed_under_use(opened, log_server):
    threads = threading.active_count()
    with Link(log_server.port) as link:
        sock = connected(opened, link.port)
        sock.sendall(b"PING\r\n")
        link.cut()
        connected(opened, link.port)
    assert threading.active_count() == threads
    with pytest.raises(ConnectionRefusedError):
        connected(opened, link.port)
    link.close()


def test_a_link_keeps_the_user_of_an_address(opened, tmp_path):
    user = User("replica", "a:b@c", ("~*", "+ping", "+select"))
    with LogServer(tmp_path, users=[user]) as server, Link(server.port) as link:
        assert client(opened, link.url_for(server.url_of(user))).ping()


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tls")
    try:
        return certificate(folder, "server"), certificate(folder, "client")
    except FileNotFoundError:
        pytest.skip("needs the openssl command to make a certificate")


def test_tls_for_everybody_who_trusts_the_certificate(opened, log_server, certificates):
    (trusted, key), (other, _) = certificates
    relay = opened.enter_context(TlsRelay(log_server.port, trusted, key))
    assert relay.url == f"rediss://127.0.0.1:{relay.port}/0"
    large = bytes(1_000_000)
    asking = client(opened, relay.url, ssl_ca_certs=str(trusted))
    asking.set("a", large)
    assert asking.get("a") == large
    with pytest.raises(redis.ConnectionError, match="certificate verify failed"):
        client(opened, relay.url, ssl_ca_certs=str(other)).ping()
    with pytest.raises(redis.ConnectionError):
        client(opened, relay.url.replace("rediss:", "redis:")).ping()


def test_tls_for_those_alone_who_show_a_certificate(opened, log_server, certificates):
    (trusted, key), (shown, its_key) = certificates
    relay = opened.enter_context(TlsRelay(log_server.port, trusted, key, client_ca=shown))
    known = {"ssl_ca_certs": str(trusted)}
    assert client(opened, relay.url, **known, ssl_certfile=str(shown), ssl_keyfile=str(its_key)).ping()
    for wrong in ({}, {"ssl_certfile": str(trusted), "ssl_keyfile": str(key)}):
        with pytest.raises(redis.ConnectionError):
            client(opened, relay.url, **known, **wrong).ping()


def test_a_link_before_tls(opened, log_server, certificates):
    (trusted, key), _ = certificates
    relay = opened.enter_context(TlsRelay(log_server.port, trusted, key))
    link = opened.enter_context(Link(relay.port))
    url = link.url.replace("redis:", "rediss:")
    assert client(opened, url, ssl_ca_certs=str(trusted)).ping()
    link.cut()
    with pytest.raises(redis.TimeoutError):
        client(opened, url, SHORT, ssl_ca_certs=str(trusted), socket_connect_timeout=SHORT).ping()


def test_a_relay_without_a_server_ends_connections(opened):
    with Link(free_port()) as link:
        assert connected(opened, link.port).recv(100) == b""
