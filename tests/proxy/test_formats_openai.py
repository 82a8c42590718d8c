"""Formats: what the openai package sends, history that it was answered included, is read."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from openai import OpenAI

from contextpilot_rag.proxy.formats.table import api_of
from tests.proxy.bodies import CALL, shown

ANSWER = {
    "id": "c",
    "object": "chat.completion",
    "created": 1,
    "model": "m",
    "choices": [
        {
            "index": 0,
            "finish_reason": "tool_calls",
            "message": {"role": "assistant", "content": None, "refusal": None, "tool_calls": [CALL]},
        }
    ],
}
RESPONSE = {
    "id": "r",
    "object": "response",
    "created_at": 1,
    "model": "m",
    "output": [
        {"type": "reasoning", "id": "t", "summary": []},
        {"type": "function_call", "id": "f", "call_id": "a", "name": "read", "arguments": "{}", "status": "completed"},
    ],
}


@pytest.fixture
def sent():
    """A client of the openai package, and the requests that it sent, as paths and bodies."""
    requests = []

    class Answering(BaseHTTPRequestHandler):
        def do_POST(self):
            requests.append((self.path, json.loads(self.rfile.read(int(self.headers["content-length"])))))
            body = json.dumps(RESPONSE if "responses" in self.path else ANSWER).encode()
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args):
            pass

    with HTTPServer(("127.0.0.1", 0), Answering) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        with OpenAI(base_url=f"http://127.0.0.1:{server.server_port}/v1", api_key="none", max_retries=0) as client:
            yield client, requests
        server.shutdown()
        thread.join()


def test_chat_messages_that_the_openai_package_sends_back_are_read(sent):
    client, requests = sent
    question = {"role": "user", "content": [{"type": "text", "text": "Why?"}]}
    call = client.chat.completions.create(model="m", messages=[question]).choices[0].message
    result = {"role": "tool", "tool_call_id": "a", "content": "42"}
    client.chat.completions.create(model="m", messages=[question, call, result])
    path, body = requests[-1]
    assert shown(api_of("POST", path), body) == [
        (1, "user", ("user", 1, "Why?")),
        (2, "assistant"),
        (3, "tool", ("tool", None, "42")),
    ]


def test_items_that_the_openai_package_sends_back_are_read(sent):
    client, requests = sent
    question = {"role": "user", "content": "Why?"}
    output = client.responses.create(model="m", input=[question]).output
    result = {"type": "function_call_output", "call_id": "a", "output": [{"type": "input_text", "text": "42"}]}
    client.responses.create(model="m", instructions="Be brief.", input=[question, *output, result])
    path, body = requests[-1]
    assert shown(api_of("POST", path), body) == [
        (1, "system", ("system", None, "Be brief.")),
        (2, "user", ("user", None, "Why?")),
        (3, "assistant"),
        (4, "assistant"),
        (5, "tool", ("tool", None, "42")),
    ]


def test_prompts_that_the_openai_package_sends_are_read(sent):
    client, requests = sent
    client.completions.create(model="m", prompt=["Once"])
    path, body = requests[-1]
    assert shown(api_of("POST", path), body) == [(1, "user", ("user", None, "Once"))]
