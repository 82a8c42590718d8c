"""Upstreams: which to try first, which to leave alone, and connections that are kept no longer than they are good."""

import asyncio
import ssl
import subprocess
from collections import Counter
from dataclasses import dataclass
from types import SimpleNamespace

import pytest

from contextpilot_rag.engines.engine import Engine
from contextpilot_rag.proxy.line import LineError
from contextpilot_rag.proxy.problems import Busy
from contextpilot_rag.proxy.upstreams import UnreachableError, Upstreams

from .harness import Raw, proxying

ENGINES = [Engine(f"http://127.0.0.1:{port}", name=name) for port, name in enumerate("abc", start=1)]


@dataclass
class Clock:
    now: float = 100.0

    def __call__(self):
        return self.now


class Pilot:
    """What upstreams ask of a pilot."""

    def __init__(self, dead=(), chosen=None):
        self.dead, self.chosen, self.looks = set(dead), chosen, 0

    @property
    def engines(self):
        self.looks += 1
        return [SimpleNamespace(name=one.name, alive=one.name not in self.dead) for one in ENGINES]

    @property
    def blocking(self):
        return self

    def route(self, engine, tokens):
        assert engine is None
        return self.chosen


def names(order):
    return "".join(one.name for one in order)


def test_one_that_is_named_goes_first():
    upstreams = Upstreams(ENGINES, Pilot(chosen="a"))
    assert names(upstreams.choose("b", 10))[0] == "b"


def test_where_none_is_named_the_pilot_chooses():
    upstreams = Upstreams(ENGINES, Pilot(chosen="c"))
    assert {names(upstreams.choose(None, 10))[0] for _ in range(5)} == {"c"}
    assert names(upstreams.choose("gone", 10))[0] == "c"


def test_one_that_has_much_more_to_do_than_others_is_not_given_more_by_chance():
    upstreams = Upstreams(ENGINES, Pilot())
    first = upstreams.choose(None, 0, b"all begin like this")
    first[0]._open.update(object() for _ in range(3))
    then = upstreams.choose(None, 0, b"all begin like this")
    assert names(then) == names([*first[1:], first[0]])


def test_dead_ones_come_last_and_are_still_tried():
    pilot = Pilot(dead="b", chosen="a")
    upstreams = Upstreams(ENGINES, pilot)
    assert names(upstreams.choose("b", 10)) == "acb"
    assert sorted(names(upstreams.choose(None, 10))) == ["a", "b", "c"]


def test_the_pilot_is_asked_who_is_alive_now_and_then_only():
    clock, pilot = Clock(), Pilot()
    upstreams = Upstreams(ENGINES, pilot, clock=clock)
    for _ in range(10):
        upstreams.choose("a", 1)
    assert pilot.looks == 1
    pilot.dead = {"a"}
    clock.now += 0.6
    assert names(upstreams.choose("a", 1))[-1] == "a"


def test_equal_keys_go_to_the_same_one_and_others_stay_when_it_dies():
    upstreams = Upstreams(ENGINES)
    keys = [b"conversation %d" % number for number in range(300)]
    before = {key: names(upstreams.choose(None, 0, key)) for key in keys}
    assert before == {key: names(upstreams.choose(None, 0, key)) for key in keys}
    assert min(Counter(order[0] for order in before.values()).values()) > 60
    upstreams.failed("b")
    for key in keys:
        order = names(upstreams.choose(None, 0, key))
        assert order == before[key].replace("b", "") + "b"


def test_requests_without_a_key_go_to_each_in_turn():
    upstreams = Upstreams(ENGINES)
    assert Counter(names(upstreams.choose(None, 0))[0] for _ in range(30)) == {"a": 10, "b": 10, "c": 10}


def test_one_that_failed_is_left_alone_for_two_seconds():
    clock = Clock()
    upstreams = Upstreams(ENGINES, clock=clock)
    upstreams.failed("a")
    assert upstreams.alive() == {"b", "c"}
    clock.now += 2.1
    assert upstreams.alive() == {"a", "b", "c"}


def test_one_request_finds_out_whether_it_is_back_and_no_other_waits_for_that():
    clock = Clock()
    upstreams = Upstreams(ENGINES, clock=clock)
    seen = []

    async def unreachable():
        seen.append(upstreams.alive())
        clock.now += 5
        raise OSError

    async def run(one):
        with pytest.raises(UnreachableError):
            await upstreams.connect(one)

    one = upstreams.choose("a", 0)[0]
    one._opened = unreachable
    upstreams.failed("a")
    clock.now += 2.1
    asyncio.run(run(one))
    assert seen == [{"b", "c"}]
    assert upstreams.alive() == {"b", "c"}


@pytest.mark.parametrize(
    ("url", "host", "root", "key"),
    [
        ("http://h:8000", b"h:8000", b"", None),
        ("https://h/v1/", b"h", b"", None),
        ("http://h:80/openai/v1", b"h", b"/openai", None),
        ("http://[::1]:8000/engine", b"[::1]:8000", b"/engine", None),
        ("http://b\u00fccher.example:8000", b"xn--bcher-kva.example:8000", b"", None),
        ("http://me:p%40ss@h", b"h", b"", (b"authorization", b"Basic bWU6cEBzcw==")),
    ],
)
def test_addresses_are_taken_apart(url, host, root, key):
    (one,) = Upstreams([Engine(url, name="one")]).choose(None, 0)
    assert (one.host, one.root, one.key) == (host, root, key)


def test_anthropics_cloud_takes_keys_in_a_header_of_its_own():
    (one,) = Upstreams([Engine("https://h", api_key="k")], cloud="anthropic").choose(None, 0)
    assert one.key == (b"x-api-key", b"k")


async def test_there_are_no_more_connections_than_allowed():
    with Raw() as raw:
        upstreams = Upstreams([Engine(raw.url)], max_connections=1)
        (one,) = upstreams.choose(None, 0)
        await upstreams.connect(one)
        with pytest.raises(Busy):
            await upstreams.connect(one)
        upstreams.close()
        await asyncio.sleep(0.01)
        await upstreams.connect(one)
        upstreams.close()
        await asyncio.sleep(0.01)


async def test_a_connection_that_the_upstream_closes_is_forgotten():
    with Raw(lambda request, one: None) as raw:
        upstreams = Upstreams([Engine(raw.url)])
        (one,) = upstreams.choose(None, 0)
        line = await upstreams.connect(one)
        assert len(one) == 1
        line.ask(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n", method=b"GET", whole=True)
        with pytest.raises(LineError):
            await line.head(5)
        one.keep(line)
        assert one.kept() is None
        await asyncio.sleep(0.01)
        assert len(one) == 0


@pytest.mark.parametrize("keepalive", [0.01, 30.0])
async def test_connections_are_kept_only_so_long(keepalive):
    with Raw() as raw:
        upstreams = Upstreams([Engine(raw.url)], keepalive=keepalive)
        (one,) = upstreams.choose(None, 0)
        line = await upstreams.connect(one)
        line.ask(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n", method=b"GET", whole=True)
        await line.head(5)
        assert await line.piece(5) == (b'{"ok": true}', True)
        one.keep(line)
        await asyncio.sleep(0.02)
        assert (one.kept() is line) == (keepalive == 30.0)
        upstreams.close()
        await asyncio.sleep(0.01)


async def test_why_there_is_no_connection_is_said_without_an_address():
    (one,) = (upstreams := Upstreams([Engine("http://me:secret@127.0.0.1:1", name="x")])).choose(None, 0)
    with pytest.raises(UnreachableError) as error:
        await upstreams.connect(one)
    assert error.value.detail == "Connection refused"


@pytest.fixture
def certificate(tmp_path):
    files = tmp_path / "one.pem", tmp_path / "one.key"
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=one"
    options = ["-addext", "subjectAltName=IP:127.0.0.1", "-out", files[0], "-keyout", files[1]]
    try:
        subprocess.run([*command.split(), *options], check=True, capture_output=True)
    except FileNotFoundError:
        pytest.skip("needs the openssl command to make a certificate")
    return files


@pytest.mark.parametrize("trusted", [True, False])
def test_upstreams_speak_tls_and_have_to_be_who_they_say(certificate, monkeypatch, trusted):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)
    if trusted:
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate[0]))
    with Raw(tls=context) as upstream, proxying(upstream.url) as proxy:
        for body in (b"{}", b"x" * 300_000):
            reply = proxy.ask("POST", "/v1/chat/completions", body)
            assert reply.status == (200 if trusted else 502)
            if trusted:
                assert upstream.last.body == body
            else:
                assert b"certificate" in reply.body.lower()
