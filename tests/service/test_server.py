"""A service's start and end: where it may listen, drain, signals, TLS."""

from __future__ import annotations

import asyncio
import http.client
import signal
import socket
import ssl
import subprocess
import threading
import time

import pytest

from contextpilot_rag.errors import SettingsError
from contextpilot_rag.service.life import Life, assemble
from contextpilot_rag.service.listening import OPEN, listening
from contextpilot_rag.service.server import Server
from contextpilot_rag.service.settings import ServiceSettings
from tests.until import until

from .harness import SECONDS, process, serving

LOOPBACK = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", 0))]
HEAD = b"POST /v1/align HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
BODY = b'{"blocks":[{"id":"a","tokens":100}]}'


class SlowClient:
    """A request of which only the head was sent, and which the service is at: it has asked for the rest."""

    def __init__(self, port):
        self.connection = socket.create_connection(("127.0.0.1", port), timeout=SECONDS)
        self.connection.sendall(HEAD + b"Expect: 100-continue\r\nContent-Length: %d\r\n\r\n" % len(BODY))
        assert self.connection.recv(1_000) == b"HTTP/1.1 100 Continue\r\n\r\n"

    def finish(self):
        self.connection.sendall(BODY)
        return self.read()

    def read(self):
        reply = http.client.HTTPResponse(self.connection)
        try:
            reply.begin()
            reply.read()
        except (OSError, http.client.HTTPException):
            return None
        finally:
            self.connection.close()
        return reply.status


class Recorded:
    """A part that notes what becomes of it."""

    def __init__(self, notes, name, failing=False):
        self.notes, self.name, self.failing = notes, name, failing

    async def start(self):
        self.notes.append(f"start {self.name}")
        if self.failing:
            raise SettingsError("it cannot")

    async def stop(self):
        self.notes.append(f"stop {self.name}")

    def reload(self):
        self.notes.append(f"reload {self.name}")


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "example.invalid"])
def test_without_keys_only_loopback(host):
    with pytest.raises(SettingsError, match=r"keys add"):
        Server(assemble(ServiceSettings(host=host, port=0)))


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "127.0.0.5"])
def test_loopback_is_served(host):
    with serving(host=host) as service:
        connection = http.client.HTTPConnection(host, service.port, timeout=SECONDS)
        connection.request("GET", "/readyz")
        assert connection.getresponse().status == 200
        connection.close()


@pytest.mark.parametrize(("address", "refused"), [("127.0.0.1", False), ("::1", False), ("192.0.2.7", True)])
def test_localhost_is_what_it_stands_for(monkeypatch, address, refused):
    found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, 0))]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *given, **more: LOOPBACK + found)
    settings = ServiceSettings(host="localhost", port=0)
    if refused:
        with pytest.raises(SettingsError, match=r"--host localhost: here it stands for 192\.0\.2\.7.*keys add"):
            listening(settings, OPEN)
    else:
        listening(settings, OPEN).close()


def test_a_taken_port_is_an_error():
    with serving() as service, pytest.raises(SettingsError, match=str(service.port)):
        Server(assemble(ServiceSettings(port=service.port)))


def test_parts_are_started_in_order_and_stopped_in_the_other():
    notes = []
    hub = assemble(ServiceSettings(port=0)).hub
    with serving(ServiceSettings(port=0), Life(hub, [Recorded(notes, "a"), Recorded(notes, "b")])) as service:
        assert service.ask("GET", "/readyz").status == 200
        service.server.reload()
        until(lambda: "reload b" in notes)
        notes.append("served")
    assert notes == ["start a", "start b", "reload a", "reload b", "served", "stop b", "stop a"]


def test_a_part_that_cannot_be_started_keeps_the_service_from_starting():
    notes = []
    hub = assemble(ServiceSettings(port=0)).hub
    life = Life(hub, [Recorded(notes, "a"), Recorded(notes, "b", failing=True), Recorded(notes, "c")])
    with pytest.raises(SettingsError, match="it cannot"), serving(ServiceSettings(port=0), life):
        pass
    assert notes == ["start a", "start b", "stop b", "stop a"]


def test_a_drain_answers_what_is_under_way_and_refuses_the_rest():
    with serving() as service:
        client = SlowClient(service.port)
        ending = threading.Thread(target=service.stop)
        ending.start()
        until(lambda: service.ask("GET", "/readyz").status == 503)
        assert service.ask("POST", "/v1/align", {"blocks": []}).status == 503
        assert service.ask("GET", "/healthz").json() == {"state": "draining"}
        assert ending.is_alive()
        assert client.finish() == 200
        ending.join(SECONDS)
        assert not ending.is_alive()
        with pytest.raises(OSError):  # noqa: PT011  refused or reset
            service.ask("GET", "/healthz")


def test_a_drain_has_an_end(caplog):
    with serving(drain_seconds=0.3) as service:
        client = SlowClient(service.port)
        service.stop()
        assert client.read() is None
        assert service.server.connections == 0
    assert "1 requests were not answered within 0.3 s (--drain-seconds)" in caplog.text
    assert "ASGI" not in caplog.text


def test_a_drain_waits_for_nobody_who_asks_nothing():
    with serving(drain_seconds=1_000, idle_seconds=1_000) as service:
        idle = socket.create_connection(("127.0.0.1", service.port), timeout=SECONDS)
        until(lambda: service.server.connections == 1)
        service.stop()
        assert idle.recv(1) == b""
        idle.close()


def test_stopped_before_it_began_it_ends():
    life = assemble(ServiceSettings(port=0))
    server = Server(life)
    server.stop()
    notes = []
    asyncio.run(asyncio.wait_for(server.serve(lambda: notes.append("ready")), SECONDS))
    assert notes == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_process_in_order(tmp_path, number):
    with process(tmp_path, "--drain-seconds", "20") as service:
        client = SlowClient(service.port)
        service.popen.send_signal(number)
        until(lambda: service.ask("GET", "/readyz").status == 503)
        assert client.finish() == 200
        assert service.popen.wait(SECONDS) == 0
    assert "Traceback" not in service.log.read_text()


def test_a_second_signal_ends_it_at_once(tmp_path):
    with process(tmp_path, "--drain-seconds", "1000") as service:
        client = SlowClient(service.port)
        service.popen.send_signal(signal.SIGTERM)
        until(lambda: service.ask("GET", "/readyz").status == 503)
        assert service.stop(signal.SIGINT) == 128 + signal.SIGINT
        assert client.read() is None


def test_a_hangup_is_no_end(tmp_path):
    with process(tmp_path) as service:
        service.popen.send_signal(signal.SIGHUP)
        assert service.ask("GET", "/readyz").status == 200
        assert service.stop() == 0


def certificate(folder, name):
    files = folder / f"{name}.pem", folder / f"{name}.key"
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2"
    options = [f"/CN={name}", "-addext", "subjectAltName=IP:127.0.0.1", "-out", files[0], "-keyout", files[1]]
    subprocess.run([*command.split(), "-subj", *options], check=True, capture_output=True)
    return files


@pytest.fixture
def certificates(tmp_path):
    try:
        return certificate(tmp_path, "one"), certificate(tmp_path, "two")
    except FileNotFoundError:
        pytest.skip("needs the openssl command to make a certificate")


def asked_over_tls(port, trusted):
    context = ssl.create_default_context(cafile=trusted)
    connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=SECONDS, context=context)
    try:
        connection.request("POST", "/v1/align", BODY, {"Content-Type": "application/json"})
        return connection.getresponse().status
    finally:
        connection.close()


def test_tls_and_a_renewed_certificate(certificates, caplog):
    (one, one_key), (two, two_key) = certificates
    with serving(tls_certificate=one, tls_key=one_key, header_seconds=0.5) as service:
        assert service.address.startswith("https://")
        assert asked_over_tls(service.port, one) == 200
        with socket.create_connection(("127.0.0.1", service.port), timeout=SECONDS) as silent:
            assert silent.recv(1) == b""  # no handshake, no connection
        good, good_key = one.read_bytes(), one_key.read_bytes()
        one_key.write_text("broken")
        service.server.reload()
        until(lambda: "stays in force" in caplog.text)
        assert asked_over_tls(service.port, one) == 200
        one.write_bytes(two.read_bytes())
        one_key.write_bytes(two_key.read_bytes())
        service.server.reload()
        asked_over_tls_by_two = False
        deadline = time.monotonic() + SECONDS
        while not asked_over_tls_by_two and time.monotonic() < deadline:
            try:
                asked_over_tls_by_two = asked_over_tls(service.port, two) == 200
            except ssl.SSLCertVerificationError:
                time.sleep(0.02)
        assert asked_over_tls_by_two
        assert (good, good_key) != (one.read_bytes(), one_key.read_bytes())


def test_files_that_are_no_certificate_are_an_error(certificates, tmp_path):
    (one, one_key), (_, two_key) = certificates
    for files in ((tmp_path / "none", one_key), (one, two_key), (one_key, one)):
        with pytest.raises(SettingsError, match="--tls-certificate"):
            Server(assemble(ServiceSettings(port=0, tls_certificate=files[0], tls_key=files[1])))
