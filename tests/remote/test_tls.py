"""https: with a certificate that is trusted by a file, by a context, or by nobody."""

from __future__ import annotations

import asyncio
import shutil
import socket
import ssl
import subprocess
import sys
import threading

import pytest

from contextpilot_rag import BlockRef, RemoteIndex, Request
from contextpilot_rag.errors import IndexUnreachable
from tests.remote.service import any_tenant

REQUEST = Request((BlockRef(b"a" * 16, 100), BlockRef(b"b" * 16, 50)))
BOTH = pytest.mark.parametrize("awaited", [False, True], ids=["blocking", "awaited"])

if shutil.which("openssl") is None:
    pytest.skip("needs the openssl command to make a certificate", allow_module_level=True)


def ask(index: RemoteIndex, awaited: bool) -> tuple[int, ...]:
    if not awaited:
        return index.align(REQUEST).order

    async def several() -> tuple[int, ...]:
        answers = await asyncio.gather(*(index.aalign(REQUEST) for _ in range(5)))
        return answers[0].order

    return asyncio.run(several())


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tls")
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=test"
    files = ["-keyout", str(folder / "key.pem"), "-out", str(folder / "cert.pem")]
    names = ["-addext", "subjectAltName=IP:127.0.0.1"]
    subprocess.run([*command.split(), *files, *names], check=True, capture_output=True)
    return folder / "cert.pem", folder / "key.pem"


@pytest.fixture(scope="module")
def secure(certificate):
    with any_tenant(tls_certificate=certificate[0], tls_key=certificate[1]) as service:
        assert service.address.startswith("https://")
        yield service


@BOTH
def test_a_certificate_that_is_trusted(secure, certificate, awaited):
    context = ssl.create_default_context(cafile=certificate[0])
    for verify in (certificate[0], str(certificate[0]), context):
        with RemoteIndex(secure.address, timeout=20, verify=verify) as index:
            for _ in range(3):
                assert ask(index, awaited) == (0, 1)
            transport = index._own().calls.transport
            lines = [pair[0] for pair in (transport._idle_async if awaited else transport._idle)]
            assert lines
            assert all(line.usable for line in lines)  # they are kept, and used again
            assert len(lines) <= 5


@BOTH
def test_the_first_request_waits_for_nothing_to_be_loaded(secure, certificate, awaited):
    code = f"""
import asyncio, sys
from contextpilot_rag import BlockRef, RemoteIndex, Request
index = RemoteIndex({secure.address!r}, verify={str(certificate[0])!r}, timeout=20)
request = Request((BlockRef(b"a" * 16, 100),))
loop = asyncio.new_event_loop()
loop.run_until_complete(asyncio.sleep(0))
before = set(sys.modules)
loop.run_until_complete(index.aalign(request)) if {awaited} else index.align(request)
print(sorted(set(sys.modules) - before))
loop.close()
"""
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "[]"


@BOTH
def test_a_large_request_and_answer(secure, certificate, awaited):
    many = Request(tuple(BlockRef(number.to_bytes(16, "big"), 10) for number in range(1_000)))
    with RemoteIndex(secure.address, timeout=20, verify=certificate[0]) as index:
        answer = asyncio.run(index.aalign(many)) if awaited else index.align(many)
    assert len(answer.order) == 1_000


@BOTH
def test_a_certificate_that_nobody_trusts(secure, awaited):
    expected = pytest.raises(IndexUnreachable, match=r"certificate verify failed: [a-z -]*\(_ssl.c:\d+\)$")
    with RemoteIndex(secure.address, timeout=20) as index, expected:
        ask(index, awaited)


@BOTH
def test_a_certificate_of_another_host(secure, certificate, awaited):
    address = secure.address.replace("127.0.0.1", "localhost")
    expected = pytest.raises(IndexUnreachable, match=r"certificate verify failed|Hostname mismatch")
    with RemoteIndex(address, timeout=20, verify=certificate[0]) as index, expected:
        ask(index, awaited)


@BOTH
def test_no_tls_where_there_should_be(service, awaited):
    expected = pytest.raises(IndexUnreachable, match=r"does it speak http, without the s\?$")
    with RemoteIndex(service.address.replace("http:", "https:"), timeout=20) as index, expected:
        ask(index, awaited)


@BOTH
def test_tls_where_none_is_expected(secure, awaited):
    expected = pytest.raises(IndexUnreachable, match=r"does it speak https\?$")
    with RemoteIndex(secure.address.replace("https:", "http:"), timeout=20) as index, expected:
        ask(index, awaited)


@BOTH
def test_a_handshake_that_drips_does_not_prolong_the_call(awaited):
    """Each byte comes long before a time-out of its own would be over."""
    ended = threading.Event()

    def drip(listening: socket.socket) -> None:
        sock, _ = listening.accept()
        with sock:
            sock.recv(10_000)
            record = b"\x16\x03\x03\x40\x00" + b"\x02\x00\x3f\xfc\x03\x03" + bytes(16_378)
            for byte in record:
                try:
                    sock.sendall(bytes([byte]))
                except OSError:
                    break
                if ended.wait(0.05):
                    break

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=drip, args=(listening,))
        thread.start()
        try:
            expected = pytest.raises(IndexUnreachable, match="did not answer within 500 ms")
            with RemoteIndex(f"https://127.0.0.1:{listening.getsockname()[1]}", timeout=0.5) as index, expected:
                ask(index, awaited)
        finally:
            ended.set()
            thread.join(30)
