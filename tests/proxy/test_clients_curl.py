"""The proxy with curl: whole, streamed, compressed, from a file."""

from __future__ import annotations

import gzip
import json
import shutil
import subprocess
import threading

import pytest

from .clients import FIRST, SECOND, SYSTEM, documents, pair
from .harness import CHUNKED, SECONDS, Raw, chunk, plain, proxying

CURL = shutil.which("curl")
pytestmark = pytest.mark.skipif(CURL is None, reason="curl is not installed")
JSON = ("-H", "content-type: application/json")


def curl(*arguments, given=None):
    """What it writes."""
    done = subprocess.run(
        [CURL, "-q", "--silent", "--show-error", "--noproxy", "*", "--max-time", str(int(SECONDS)), *arguments],
        input=given,
        capture_output=True,
        check=True,
        timeout=2 * SECONDS,
    )
    return done.stdout


def body(names, **more):
    messages = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": documents(names)}]
    return json.dumps({"model": "any", "messages": messages, **more}).encode()


def test_a_body_from_a_file_and_the_answers_headers(tmp_path):
    with pair() as them:
        url = f"{them.urls()[1]}/chat/completions"
        for names in (FIRST, SECOND):
            file = tmp_path / "body.json"
            file.write_bytes(body(names))
            head, _, answer = curl("--include", *JSON, "-d", f"@{file}", url).partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200 ")
        assert b"\r\nx-contextpilot-order: changed\r\n" in head + b"\r\n"
        usage = json.loads(answer)["usage"]
        assert usage["prompt_tokens_details"]["cached_tokens"] == them.behind.requests[-1].cached_tokens > 1000
        chunked = curl(*JSON, "-H", "transfer-encoding: chunked", "--data-binary", f"@{file}", url)
        assert json.loads(chunked)["usage"]["prompt_tokens_details"]["cached_tokens"] > 1000


def test_a_stream_comes_as_it_is_sent():
    """The second part is sent only after curl has shown the first."""
    seen = threading.Event()
    parts = [b'data: {"choices": [%d]}\n\n' % number for number in range(3)]

    def answer(_, connection):
        connection.sendall(CHUNKED + chunk(parts[0]))
        assert seen.wait(SECONDS)
        connection.sendall(chunk(parts[1]) + chunk(parts[2]) + chunk(b""))

    with Raw(answer) as upstream, proxying(upstream.url) as proxy:
        command = [CURL, "-q", "--silent", "-N", "--noproxy", "*", "--max-time", str(int(SECONDS)), *JSON]
        asked = [*command, "-d", '{"stream": true}', f"{proxy.address}/v1/chat/completions"]
        with subprocess.Popen(asked, stdout=subprocess.PIPE) as running:
            first = running.stdout.read(len(parts[0]))
            seen.set()
            rest = running.stdout.read()
            assert running.wait(SECONDS) == 0
    assert first + rest == b"".join(parts)


def test_compressed_answers_and_bodies_pass_as_they_are():
    said, sent = b'{"usage": "' + b"a" * 5_000 + b'"}', gzip.compress(body(FIRST))
    with Raw(plain(200, gzip.compress(said), b"content-encoding: gzip")) as upstream, proxying(upstream.url) as proxy:
        url = f"{proxy.address}/v1/chat/completions"
        assert curl("--compressed", *JSON, "-d", "{}", url) == said
        assert b"gzip" in upstream.last.headers[b"accept-encoding"]
        assert gzip.decompress(curl("--raw", *JSON, "-d", "{}", url)) == said
        curl(*JSON, "-H", "content-encoding: gzip", "--data-binary", "@-", url, given=sent)
        assert upstream.last.body == sent


def test_other_paths_and_queries():
    with Raw(plain()) as upstream, proxying(upstream.url) as proxy:
        curl("--path-as-is", f"{proxy.address}/v1/files/a%2Fb?x=%20&y=1&x=2")
        assert upstream.last.target == b"/v1/files/a%2Fb?x=%20&y=1&x=2"
        curl("--head", f"{proxy.address}/health")
        assert upstream.last.line == b"HEAD /health HTTP/1.1"
        curl("-X", "DELETE", "-u", "user:pass", f"{proxy.address}/v1/files/a")
        assert upstream.last.line == b"DELETE /v1/files/a HTTP/1.1"
        assert upstream.last.headers[b"authorization"] == b"Basic dXNlcjpwYXNz"
