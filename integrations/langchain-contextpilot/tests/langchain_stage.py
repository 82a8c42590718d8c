"""What the tests share: documents, questions, retrievers, and a chat server that calls tools as a script says."""

from __future__ import annotations

import json
import math
import threading
from contextlib import contextmanager
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from contextpilot_rag.demo.corpus import python_documentation
from contextpilot_rag.retrieval.words import words
from contextpilot_rag.testing import FakeEngine
from langchain_community.retrievers import BM25Retriever
from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding, Embeddings
from langchain_openai import ChatOpenAI

SYSTEM = "You help people with Python. Answer from the documents, and say which ones you used."

# As a team's help desk sees them while one change is being worked on: the same few things, in other words.
QUESTIONS = (
    "How do I cancel an asyncio task after a timeout?",
    "What happens to an asyncio task when a timeout cancels it?",
    "Can a task ignore that asyncio cancels it after the timeout?",
    "Why is my asyncio task cancelled although the timeout has not passed?",
    "How long is the timeout after which asyncio cancels a task?",
    "Does asyncio wait for a cancelled task after the timeout?",
    "Which exception does an asyncio task see when its timeout cancels it?",
    "How do I shield an asyncio task, so that no timeout cancels it?",
    "Is an asyncio task that a timeout cancels done, or cancelled?",
    "How do I wait for several asyncio tasks, with one timeout that cancels all?",
)


class Broken:
    """An index that fails whatever it is asked."""

    def align(self, _request):
        raise OSError("no route to host")

    observe = predict = forget = align


class WordEmbedding(Embeddings):
    """Documents with the same words are near each other; offline, and the same in every process."""

    def embed_documents(self, texts):
        return [self.embed_query(text) for text in texts]

    def embed_query(self, text):
        vector = [sum(parts) for parts in zip([1e-9] * 64, *map(_of_word, words(text)), strict=True)]
        length = math.hypot(*vector)
        return [part / length for part in vector]


@cache
def _of_word(word):
    return DeterministicFakeEmbedding(size=64).embed_query(word)


@cache
def documents():
    """The documentation that Python carries."""
    return [
        Document(block.text, id=str(block.id), metadata={"source": str(block.id).split("#")[0]})
        for block in python_documentation()
    ]


@cache
def bm25(k=8):
    """A retriever over it. Its documents have no ids, as BM25Retriever drops none of what it is given."""
    return BM25Retriever.from_documents(documents(), preprocess_func=words, k=k)


def chat(engine, **options):
    """A chat model that asks an engine over HTTP."""
    return ChatOpenAI(base_url=engine.base_url, api_key="none", model="fake-engine", max_retries=0, **options)


def cached(engine):
    """How many tokens an engine reported as cached, over all requests."""
    return sum(request.cached_tokens for request in engine.requests)


def begins_with(prompt, earlier):
    """Whether a prompt's messages begin with all of an earlier prompt's."""
    return list(prompt.messages[: len(earlier.messages)]) == list(earlier.messages)


class ToolEngine(FakeEngine):
    """A FakeEngine whose answers call tools, as a script says: for each request the calls, or None for a plain answer.

    The FakeEngine's own server has no tool calls; this one adds them to its answers, and what it says of its cache is
    the FakeEngine's.
    """

    def __init__(self, script, **options):
        super().__init__(**options)
        self.script = list(script)
        self.bodies = []

    def respond(self, body):
        self.bodies.append(body)
        completion = self.chat(body)
        calls = self.script.pop(0) if self.script else None
        if calls:
            message = completion["choices"][0]["message"]
            message["content"] = None
            message["tool_calls"] = [
                {
                    "id": f"call-{len(self.bodies)}-{number}",
                    "type": "function",
                    "function": {"name": name, "arguments": json.dumps(arguments)},
                }
                for number, (name, arguments) in enumerate(calls)
            ]
            completion["choices"][0]["finish_reason"] = "tool_calls"
        return completion


@contextmanager
def served(engine):
    """A `ToolEngine` at ``engine.base_url`` in the ``with`` block; loopback only."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self):
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            answer = json.dumps(engine.respond(body)).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield Address(engine, f"http://127.0.0.1:{server.server_port}/v1")
    finally:
        server.shutdown()
        server.server_close()
        thread.join(5)


class Address:
    """An engine, and where it is served."""

    def __init__(self, engine, base_url):
        self.engine = engine
        self.base_url = base_url
