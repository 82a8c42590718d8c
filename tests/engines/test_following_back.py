"""Engines that could not be reached for a while: their caches are told again, whether or not they began anew."""

from __future__ import annotations

import threading
import urllib.error
import urllib.request
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from contextpilot_rag import ContextPilot, Engine
from contextpilot_rag.testing import FakeEngine
from tests.engines.hurrying import hurry
from tests.engines.test_following import BLOCKS, followed, status
from tests.until import until


@pytest.fixture(autouse=True)
def _hurry(monkeypatch):
    hurry(monkeypatch, 5.0)


class Front:
    """In front of an engine's HTTP interface; says that it is not well as long as `ill`."""

    def __init__(self, url: str) -> None:
        self.ill = False
        front, to = self, url.removesuffix("/v1")

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def go(self) -> None:
                length = int(self.headers.get("content-length") or 0)
                body = self.rfile.read(length) if length else None
                status, answer = (503, b"busy") if front.ill else self.passed(body)
                self.send_response(status)
                self.send_header("content-length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            do_GET = do_POST = go  # noqa: N815

            def passed(self, body: bytes | None) -> tuple[int, bytes]:
                headers = {"content-type": "application/json"}
                asked = urllib.request.Request(to + self.path, body, headers, method=self.command)
                try:
                    with urllib.request.urlopen(asked, timeout=10) as answer:
                        return answer.status, answer.read()
                except urllib.error.HTTPError as error:
                    return error.code, error.read()

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/v1"
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        self.thread.start()


@contextmanager
def in_front_of(fake):
    front = Front(fake.base_url)
    try:
        yield front
    finally:
        front.server.shutdown()
        front.server.server_close()
        front.thread.join(10)


def ask(pilot, fake, names):
    """Who asks for other names asks another question: what is expected is of blocks, and equal questions share more."""
    prompt = pilot.align([(name, BLOCKS[name]) for name in names], f"{names}: what?")
    answer = fake.chat({"messages": prompt.messages("Answer."), **prompt.extra_body})
    pilot.observe(prompt, answer)
    assert pilot.engines.drained()
    return prompt, answer["usage"]["prompt_tokens_details"]["cached_tokens"]


def named(pilot, name):
    return next(one for one in pilot.engines if one.name == name)


def in_step(pilot):
    until(lambda: all(one.level == "events" and one.block_size and one.alive for one in pilot.engines), "events")


@pytest.mark.parametrize("replay", [True, False])
def test_an_engine_that_was_only_unwell_is_followed_by_its_events_again(replay):
    with FakeEngine(events=True, capacity_blocks=2_000) as fake, in_front_of(fake) as front:
        where = fake.replay_url if replay else ""
        with ContextPilot(engines=[Engine(front.url, name="fake", events=fake.events_url, replay=where)]) as pilot:
            in_step(pilot)
            ask(pilot, fake, "AB")
            front.ill = True
            until(lambda: not status(pilot).alive, "an engine that is gone")
            assert status(pilot).kv_blocks == 0
            front.ill = False
            in_step(pilot)
            assert status(pilot).why == ""
            prompt, cached = ask(pilot, fake, "BA")
            if replay:
                assert prompt.changed
                assert prompt.expected_cached_tokens == cached > 0
            prompt, cached = ask(pilot, fake, "CD")
            prompt, cached = ask(pilot, fake, "DC")
            assert prompt.changed
            assert 0 < prompt.expected_cached_tokens <= cached


def test_the_cache_of_an_engine_that_could_not_be_reached_is_known_again():
    fake = FakeEngine(events=True, capacity_blocks=2_000).start()
    try:
        ports = [int(url.removesuffix("/v1").rpartition(":")[2]) for url in (fake.base_url, fake.events_url)]
        ports.append(int(fake.replay_url.rpartition(":")[2]))
        with ContextPilot(engines=[followed(fake)]) as pilot:
            in_step(pilot)
            for names in ("AB", "CD", "EF"):
                ask(pilot, fake, names)
            before = status(pilot).kv_blocks
            assert before == len(fake.cached_hashes) > 0
            fake.stop()
            until(lambda: not status(pilot).alive, "an engine that is gone")
            fake.start(*ports)
            in_step(pilot)
            assert pilot.engines.drained()
            assert status(pilot).kv_blocks == before
            for names in ("BA", "DC", "FE"):
                prompt, cached = ask(pilot, fake, names)
                assert prompt.changed
                assert prompt.expected_cached_tokens == cached > 0
    finally:
        fake.stop()


def test_of_several_caches_that_of_one_that_was_unwell_is_known_again():
    """It goes on publishing while it is taken for dead: what it tells then is not all that it has."""
    with (
        FakeEngine(events=True, capacity_blocks=2_000) as one,
        FakeEngine(events=True, capacity_blocks=2_000) as other,
        in_front_of(one) as front,
    ):
        unwell = Engine(front.url, name="one", events=one.events_url, replay=one.replay_url)
        well = Engine(other.base_url, name="other", events=other.events_url, replay=other.replay_url)
        with ContextPilot(engines=[unwell, well], routing="external") as pilot:
            in_step(pilot)
            ask(pilot, one, "AB")
            ask(pilot, other, "CD")
            front.ill = True
            until(lambda: not named(pilot, "one").alive, "an engine that is gone")
            ask(pilot, one, "EF")
            front.ill = False
            in_step(pilot)
            assert pilot.engines.drained()
            assert named(pilot, "one").kv_blocks == len(one.cached_hashes) + len(other.cached_hashes)
            for fake, names in ((one, "BA"), (other, "DC"), (one, "FE")):
                prompt, cached = ask(pilot, fake, names)
                assert prompt.expected_cached_tokens == cached > 0
