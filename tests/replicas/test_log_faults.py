"""What goes wrong with the log's server is one error, soon, and without secrets; then all is as before."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager

import pytest

from contextpilot_rag.errors import LogUnavailable
from contextpilot_rag.replicas.log import START, Snapshot
from contextpilot_rag.replicas.redis_log import ACL_COMMANDS, open_log
from tests.ports import free_port
from tests.replicas.cluster import Cluster
from tests.replicas.fake_server import FakeServer, hello
from tests.replicas.link import Link
from tests.replicas.log_conformance import FIRST, A, B, all_of, filled, texts, written
from tests.replicas.log_server import LogServer, User
from tests.replicas.tls_relay import TlsRelay
from tests.service.test_server import certificate

TIMEOUT = 0.2
SOON = 5.0  # many times the time-out, for a busy machine; what hangs, hangs for ever
PASSWORD = "s3cr3t-word"


@pytest.fixture
def opened():
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def opens(opened):
    def opens(url, **options):
        log = open_log(url, **{"timeout": TIMEOUT, **options})
        opened.callback(log.close)
        return log

    return opens


@contextmanager
def unavailable(says="."):
    began = time.monotonic()
    with pytest.raises(LogUnavailable, match=says) as caught:
        yield
    assert time.monotonic() - began < SOON
    assert PASSWORD not in f"{caught.value!r} {caught.value.__cause__!r}"
    assert caught.value.__suppress_context__ or caught.value.__context__ is None


def calls(log):
    """Everything that can be asked."""
    return [
        lambda: log.append([written(A, b"lost")]),
        log.now,
        lambda: log.listen("5-0", 0.1),
        lambda: all_of(log, A),
        lambda: log.snapshot(A),
        lambda: log.standing(A),
        lambda: log.found(A, Snapshot(START, b"", b""), FIRST),
        lambda: log.compact(A, Snapshot(START, b"", b"")),
        lambda: log.streams(1),
    ]


def all_unavailable(log, says="."):
    for call in calls(log):
        with unavailable(says):
            call()


def test_nobody_is_there(opens):
    all_unavailable(opens(f"redis://me:{PASSWORD}@127.0.0.1:{free_port()}"), "cannot be reached: Connection refused")


def test_a_name_that_is_none(opens):
    with unavailable():
        opens(f"redis://:{PASSWORD}@no-such-host.invalid").now()


def test_a_server_that_is_killed_and_comes_back_empty(opens, log_server):
    log = opens(log_server.url, timeout=10.0)
    filled(log, A, b"1")
    log.found(A, Snapshot(START, b"", b""), FIRST)
    position = log.now()
    log_server.kill()
    all_unavailable(log, "the log's server (cannot be reached|broke the connection off)")
    log_server.start()
    news = log.listen(position, 20)
    assert news.streams is None
    assert (texts(log, A), log.snapshot(A), log.streams(1)) == ([], None, [])
    filled(log, B, b"2")
    assert log.listen(news.position, 10).streams == {B}


def test_a_server_that_is_killed_and_remembers(opens, tmp_path):
    with LogServer(tmp_path, persistent=True, args=("--appendfsync", "always")) as server:
        log = opens(server.url, timeout=10.0)
        entries = filled(log, A, b"1")
        position = log.now()
        server.kill()
        server.start()
        assert log.listen(position, 0).streams == frozenset()
        assert all_of(log, A)[A] == entries


def test_who_listens_to_a_server_that_is_killed_learns_of_it(opens, log_server):
    log = opens(log_server.url)
    position = log.now()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(log.listen, position, 60.0)
        with pytest.raises(TimeoutError):
            waiting.result(0.1)
        log_server.kill()
        with unavailable():
            waiting.result(SOON)


def test_a_paused_server_s_late_answers_are_nobody_s(opens, log_server):
    log = opens(log_server.url)
    for _ in range(20):
        log.append([written(A, b"a"), written(B, b"b")])
    log_server.pause()
    all_unavailable(log, "does not answer in time")
    log_server.resume()
    for _ in range(20):
        assert set(texts(log, B)) == {b"b"}
        assert log.snapshot(B) is None
    assert set(texts(log, A)) <= {b"a", b"lost", b"first"}


def test_who_listens_to_a_paused_server_waits_no_longer_than_asked_for(opens, log_server):
    log = opens(log_server.url)
    position = log.now()
    log_server.pause()
    with unavailable("does not answer in time"):
        log.listen(position, 0.1)
    log_server.resume()


@pytest.mark.parametrize("cut", [Link.cut, lambda link: link.cut(refuse=True), lambda link: link.half("requests")])
def test_a_link_that_is_cut_and_healed(opens, opened, log_server, cut):
    link = opened.enter_context(Link(log_server.port))
    log = opens(link.url)
    filled(log, A, b"1")
    cut(link)
    all_unavailable(log)
    link.heal()
    ends = time.monotonic() + SOON
    while True:
        try:
            assert texts(log, A)[0] == b"1"
            break
        except LogUnavailable:
            assert time.monotonic() < ends


def test_a_link_that_is_reset(opens, opened, log_server):
    link = opened.enter_context(Link(log_server.port))
    log = opens(link.url, timeout=10.0)
    entries = filled(log, A, b"1")
    link.drop()
    time.sleep(0.05)  # until the reset is here
    assert all_of(log, A)[A] == entries  # what was kept for later was seen to be gone


def test_a_connection_that_the_server_closed_meanwhile_is_not_used(opens, log_server):
    log = opens(log_server.url, timeout=10.0)
    entries = filled(log, A, b"1")
    log_server.client().execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
    assert all_of(log, A)[A] == entries
    assert log.listen(log.now(), 0).streams == frozenset()


def test_a_full_server_refuses_can_be_read_and_is_compacted(opens, log_server):
    log = opens(log_server.url, timeout=10.0)
    entries = filled(log, A, *(bytes(100_000) for _ in range(8)))
    position = log.now()
    looking = log_server.client()
    looking.config_set("maxmemory-policy", "noeviction")
    looking.config_set("maxmemory", looking.info("memory")["used_memory"] - 300_000)
    with unavailable("is full"):
        log.append([written(B, b"1")])
    with unavailable("is full"):
        log.found(A, Snapshot(START, b"", b""), FIRST)
    assert log.listen(position, 0).streams == frozenset()
    assert all_of(log, A, B) == {A: entries, B: []}
    assert log.snapshot(A) is None
    assert log.compact(A, Snapshot(entries[-1].position, b"mac", b"small"))
    assert all_of(log, A)[A] == entries[-1:]
    log.append([written(B, b"room again")])
    assert log.listen(position, 10).streams == {B}


@pytest.mark.parametrize(
    ("user", "password", "says"),
    [
        ("replica", PASSWORD + "x", "refuses the user or the password"),
        ("nobody", PASSWORD, "refuses the user or the password"),
        ("", "", "asks for a password|refuses the user"),
        ("idle", PASSWORD, "does not allow this user"),
        ("elsewhere", PASSWORD, "does not allow this user"),
    ],
)
def test_a_user_who_may_not(opens, tmp_path, user, password, says):
    users = [
        User("replica", PASSWORD, ("~contextpilot:*", *ACL_COMMANDS[:-2])),
        User("idle", PASSWORD, ("~*", "+ping")),
        User("elsewhere", PASSWORD, ("~other:*", *ACL_COMMANDS[:-2])),
    ]
    with LogServer(tmp_path, users=users) as server:
        url = server.url_of(User(user, password, ())) if user else server.url
        all_unavailable(opens(url, timeout=10.0), says)
        log = opens(server.url_of(users[0]), timeout=10.0)
        assert filled(log, A, b"1")[0].data == b"1"


@pytest.mark.parametrize("spared", sorted({*ACL_COMMANDS[:-2]} - {"+select"}))
def test_no_right_that_a_user_has_to_have_can_be_spared(opens, tmp_path, spared):
    rights = [right for right in ACL_COMMANDS if right != spared]
    with LogServer(tmp_path, users=[User("replica", PASSWORD, ("~contextpilot:*", *rights))]) as server:
        server.client().set("contextpilot:{bell}:rung", "what makes it be mended")
        server.client().set(f"contextpilot:{{{A}}}:snap", "what makes it be dropped")
        log = opens(server.url_of(User("replica", PASSWORD, ())), timeout=10.0)
        refused = 0
        more = [
            lambda: log.listen(log.now(), 0),
            lambda: log.compact(B, Snapshot(filled(log, B, b"1")[0].position, b"", b"")),
        ]
        for call in [*calls(log), *more]:
            try:
                call()
            except LogUnavailable as error:
                assert "does not allow this user" in str(error)  # noqa: PT017  # which of them does is not of interest
                refused += 1
        assert refused


def test_a_copy_that_cannot_be_written_to(opens, log_server):
    log = opens(log_server.url, timeout=10.0)
    entries = filled(log, A, b"1")
    position = log.now()
    log_server.client().execute_command("REPLICAOF", "127.0.0.1", free_port())
    with unavailable("is a copy"):
        log.append([written(A, b"2")])
    with unavailable("is a copy"):
        log.compact(A, Snapshot(entries[0].position, b"", b""))
    assert all_of(log, A)[A] == entries
    log_server.client().execute_command("REPLICAOF", "NO", "ONE")
    log.append([written(A, b"2")])
    assert log.listen(position, 10).streams == {A}


def test_a_server_that_is_busy_with_a_script(opens, tmp_path):
    with LogServer(tmp_path, args=("--busy-reply-threshold", "1")) as server:
        log = opens(server.url, timeout=0.5)
        log.now()
        with ThreadPoolExecutor(1) as pool:
            looping = pool.submit(server.client().execute_command, "EVAL", "while true do end", 0)
            with unavailable("is busy with a script|does not answer in time"):
                while True:
                    log.now()
            server.client().execute_command("SCRIPT", "KILL")
            assert looping.exception(SOON) is not None
        assert log.now()


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (lambda asked: b"HTTP/1.1 400 Bad Request\r\n\r\n", "answers with what is no answer|broke"),
        (lambda asked: None, "broke the connection off"),
        (lambda asked: b"$abc\r\n", "."),
        (lambda asked: b"*-7\r\n:x\r\n", "."),
        (lambda asked: b"-LOADING it is loading\r\n", "is still reading its data"),
        (lambda asked: b"-MISCONF cannot save " + PASSWORD.encode() + b"\r\n", "cannot write to its disk"),
        (lambda asked: b"-ERR odd " + PASSWORD.encode() + b"\r\n", "answers with an error"),
        (lambda asked: b"-ERR unknown command 'HELLO'\r\n", "has to be Valkey, or Redis 6.2 or later, and is older"),
        (lambda asked: hello(server="redis", version="6.0.16", mode="standalone"), "Redis 6.2 or later, and is 6.0.16"),
        (lambda asked: hello(server="redis", version="7.2.4", mode="sentinel"), "a sentinel"),
        (lambda asked: hello(server="redis"), "has to be Valkey"),
        (lambda asked: b"", "does not answer in time"),
    ],
)
def test_what_is_no_log_server(opens, opened, answer, says):
    server = opened.enter_context(FakeServer(answer))
    log = opens(server.url)
    for call in (log.now, lambda: log.append([written(A, b"1")])):
        with unavailable(says):
            call()


def test_an_answer_that_comes_byte_by_byte_gets_no_more_time(opens, opened):
    server = opened.enter_context(FakeServer(lambda asked: hello(server="valkey", version="9.0.0"), pause=TIMEOUT / 4))
    began = time.monotonic()
    with unavailable("does not answer in time"):
        opens(server.url).now()
    assert time.monotonic() - began < SOON / 2


def test_tls_that_is_not_trusted_or_not_there(opens, opened, log_server, tmp_path):
    try:
        (one, key), (two, _) = certificate(tmp_path, "one"), certificate(tmp_path, "two")
    except FileNotFoundError:
        pytest.skip("needs the openssl command to make a certificate")
    relay = opened.enter_context(TlsRelay(log_server.port, one, key))
    at = f"{relay.host}:{relay.port}"
    for query in ("", f"?ssl_ca_certs={two}"):
        with unavailable("TLS: self.signed certificate; the file that ssl_ca_certs names"):
            opens(f"rediss://:{PASSWORD}@{at}{query}", timeout=10.0).now()
    with unavailable("TLS: .*mismatch[^;]*$"):
        opens(f"rediss://:{PASSWORD}@localhost:{relay.port}?ssl_ca_certs={one}", timeout=10.0).now()
    with unavailable():
        opens(f"redis://:{PASSWORD}@{at}").now()
    with unavailable():
        opens(f"rediss://:{PASSWORD}@127.0.0.1:{log_server.port}").now()
    for query in ("?ssl_cert_reqs=none", f"?ssl_ca_certs={one}"):
        assert opens(f"rediss://{at}{query}", timeout=10.0).now()
    assert opens(f"rediss://localhost:{relay.port}?ssl_ca_certs={one}&ssl_check_hostname=false", timeout=10.0).now()


def test_a_cluster_s_node_that_is_gone_takes_its_own_streams_along_and_no_others(opens, tmp_path):
    with Cluster(tmp_path, persistent=True) as cluster:
        for node in cluster.nodes:
            node.client().config_set("cluster-require-full-coverage", "no")
        log = opens(cluster.url, timeout=5.0)
        names = [f"{number:032x}" for number in range(12)]
        kept = {name: filled(log, name, name.encode()) for name in names}
        seed = cluster.nodes[0]
        of_seed = [name for name in names if cluster.owner(f"contextpilot:{{{name}}}:log") is seed]
        assert 0 < len(of_seed) < len(names)
        seed.kill()
        for name in names:
            if name in of_seed:
                with unavailable():
                    all_of(log, name)
            else:  # who has what is asked of the others
                assert all_of(log, name)[name] == kept[name]
        seed.start()
        cluster.wait()
        assert all_of(log, *names) == kept


def test_a_cluster_where_one_server_was_expected(opens, tmp_path, log_server):
    with Cluster(tmp_path) as cluster:
        with unavailable("is a cluster"):
            log = opens(cluster.url + "?cluster=false", timeout=5.0)
            for number in range(20):
                filled(log, f"{number:032x}", b"1")
        with unavailable("has no database of that number"):
            opens(cluster.url.removesuffix("/0") + "/3", timeout=5.0).now()
    with unavailable("does not say who has what"):
        opens(log_server.url + "?cluster=true", timeout=5.0).now()
