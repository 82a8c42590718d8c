"""Token ids from engines of every kind, over HTTP, and from tokenizers at hand; and what an engine may do wrong."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import time
from types import SimpleNamespace
from urllib.parse import urlsplit

import pytest

from contextpilot_rag.engines.engine import Engine
from contextpilot_rag.engines.http import EngineHttp
from contextpilot_rag.engines.tokenizing import EngineTokenizer, KeptIds, LocalTokenizer
from contextpilot_rag.errors import (
    EngineBrokeOff,
    EngineError,
    EngineRefused,
    EngineUnreachable,
    SettingsError,
)
from contextpilot_rag.testing import FakeEngine
from tests.engines.answering import answering
from tests.remote.stub import stub

MESSAGES = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Where do slices start?"}]
MODELS = (200, {"object": "list", "data": [{"id": "served"}, {"id": "other"}]})


def ids(text):
    return list(text.encode())


def chatted(messages):
    return "".join(f"<{one['role']}>{one['content']}" for one in messages) + "<assistant>"


def vllm(asked):
    body = asked.body
    if body.get("model") not in {None, "served", "named"}:
        return 404, {"error": {"message": "The model does not exist."}}
    if "messages" in body:
        text = chatted(body["messages"]) + str(body.get("tools") or "")
        assert body["add_generation_prompt"] is True
    elif "prompt" in body:
        text = body["prompt"] if body.get("add_special_tokens", True) is False else "^" + body["prompt"]
    else:
        return 400, {"error": {"message": "2 validation errors"}}
    return 200, {"count": len(ids(text)), "max_model_len": 4096, "tokens": ids(text), "token_strs": None}


def old_sglang(asked):
    if "prompt" not in asked.body:
        return 400, {"object": "error", "message": "body.prompt: Field required", "code": 400}
    return vllm(asked)


def llama_cpp(asked):
    body = asked.body
    text = body.get("content", "")
    return 200, {"tokens": ids(("^" if body.get("add_special") else "") + text)}


def template(asked):
    return 200, {"prompt": chatted(asked.body["messages"]) + str(asked.body.get("tools") or "")}


def test_vllm_and_newer_sglang():
    with answering({"/tokenize": vllm, "/v1/models": MODELS}, api_key="secret") as server:
        tokens = EngineTokenizer(server.engine)
        assert tokens.of_messages(MESSAGES) == ids(chatted(MESSAGES))
        assert tokens.of_messages(MESSAGES, [{"type": "function"}]) == ids(chatted(MESSAGES) + "[{'type': 'function'}]")
        assert tokens.of_text("Slices") == ids("Slices")
        bodies = [one.body for one in server.asked if one.path == "/tokenize"]
        assert {body["model"] for body in bodies} == {"served"}
        assert {one.headers["authorization"] for one in server.asked} == {"Bearer secret"}
        asked = len(server.asked)
        assert tokens.of_text("Slices") == ids("Slices")  # remembered
        assert len(server.asked) == asked


def test_a_model_that_is_named_is_not_looked_up_and_a_path_before_the_api_is_kept():
    with answering({"/behind/tokenize": vllm}, "/behind/v1", model="named") as server:
        assert EngineTokenizer(server.engine).of_text("Slices") == ids("Slices")
        assert set(server.paths) == {"/behind/tokenize"}
        assert "authorization" not in server.asked[0].headers


def test_a_name_in_the_address_is_sent_as_such():
    with answering({"/health": (200, "")}) as server:
        engine = Engine(server.engine.url.replace("127.0.0.1", "me:p%40ss@127.0.0.1"))
        EngineHttp(engine).get("/health")
        assert server.asked[0].headers["authorization"] == "Basic bWU6cEBzcw=="


def test_an_older_sglang_has_texts_and_refuses_messages():
    with answering({"/tokenize": old_sglang, "/v1/models": MODELS}) as server:
        tokens = EngineTokenizer(server.engine)
        assert tokens.of_text("Slices") == ids("Slices")
        with pytest.raises(EngineRefused, match=r"/tokenize of engine 127.0.0.1:\d+ is answered with 400: .*prompt"):
            tokens.of_messages(MESSAGES)


def test_llama_cpp():
    answers = {"/tokenize": llama_cpp, "/apply-template": template, "/v1/models": MODELS}
    with answering(answers) as server:
        tokens = EngineTokenizer(server.engine)
        assert tokens.of_messages(MESSAGES) == ids("^" + chatted(MESSAGES))
        assert tokens.of_text("Slices") == ids("Slices")
        assert server.paths.count("/tokenize") == 3  # one of them to find out what it is
        assert all(one.body.get("parse_special") for one in server.asked if "add_special" in (one.body or {}))


def test_the_fake_engine_over_http():
    with FakeEngine() as fake:
        tokens = EngineTokenizer(Engine(fake.base_url))
        assert tokens.of_messages(MESSAGES) == fake.tokenize({"messages": MESSAGES})["tokens"]
        assert tokens.of_text("Slices") == fake.tokenize({"prompt": "Slices"})["tokens"]
        fake.chat({"messages": MESSAGES})
        assert len(tokens.of_messages(MESSAGES)) == fake.requests[-1].prompt_tokens


@pytest.mark.parametrize(
    "answer",
    [
        (200, {"count": 1}),
        (200, {"count": 1, "tokens": ["a"]}),
        (200, {"count": 1, "tokens": [-1]}),
        (200, {"count": 1, "tokens": [True]}),
        (200, {"count": 1, "tokens": [2**64]}),
        (200, {"count": 1, "tokens": [[1], [2]]}),
        (200, [1]),
        (200, b"no json"),
        (200, b"[" * 100_000),
        (302, {}),
        (401, {"error": "unauthorized"}),
        (503, b"\xff\x00"),
    ],
)
def test_answers_that_are_none(answer):
    with answering({"/tokenize": answer}, model="m") as server:
        tokens = EngineTokenizer(server.engine)
        with pytest.raises(EngineRefused) as raised:
            tokens.of_messages(MESSAGES)
        assert server.engine.name in str(raised.value)
        if answer[0] >= 300:
            assert raised.value.status == answer[0]
            assert raised.value.retry_after == 7


@pytest.mark.parametrize("models", [(200, {"data": []}), (200, {"data": [{}]}), (200, []), (500, {})])
def test_an_engine_that_lists_no_model(models):
    with answering({"/tokenize": vllm, "/v1/models": models}) as server, pytest.raises(EngineRefused):
        EngineTokenizer(server.engine).of_text("Slices")


def test_nobody_listens():
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with pytest.raises(EngineUnreachable, match="is not answered"):
        EngineTokenizer(Engine(f"http://127.0.0.1:{port}", model="m")).of_text("Slices")


def test_an_answer_that_breaks_off():
    with (
        stub(lambda sock, _: sock.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{") or False) as server,
        pytest.raises(EngineBrokeOff),
    ):
        EngineHttp(Engine(server.address)).get("/metrics")


def test_an_answer_that_takes_too_long_or_is_too_long():
    def trickle(sock, _):
        sock.sendall(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
        while True:
            sock.sendall(b"1\r\nx\r\n")
            if server.ended.wait(0.01):
                return False

    with stub(trickle) as server:
        began = time.monotonic()
        with pytest.raises(EngineUnreachable, match="in time"):
            EngineHttp(Engine(server.address), seconds=0.3).get("/metrics")
        assert time.monotonic() - began < 5
    with answering({"/metrics": (200, b"x" * 100_001)}) as server:
        http = EngineHttp(server.engine, most=100_000)
        with pytest.raises(EngineRefused, match="longer"):
            http.get("/metrics")


def test_what_cannot_be_sent():
    with answering({"/tokenize": vllm}, model="m") as server:
        with pytest.raises(EngineError, match="JSON"):
            EngineTokenizer(server.engine).of_messages([{"role": "user", "content": object()}])
        assert [one.body for one in server.asked if "messages" in one.body] == []


def test_an_engine_that_comes_back_is_asked_again():
    with answering({"/tokenize": (503, {})}, model="named") as server:
        tokens = EngineTokenizer(server.engine)
        with pytest.raises(EngineRefused):
            tokens.of_text("Slices")
        port = urlsplit(server.engine.url).port
    with pytest.raises(EngineUnreachable):
        tokens.of_text("Slices")
    with FakeEngine().start(port or 0) as fake:
        assert tokens.of_text("Slices") == fake.tokenize({"prompt": "Slices"})["tokens"]
        tokens.close()
        assert tokens.of_text("Sets") == fake.tokenize({"prompt": "Sets"})["tokens"]
        tokens.close()


class Tokenizer:
    """As those of transformers."""

    def __init__(self, wrap):
        self.wrap = wrap
        self.encoded = 0

    def apply_chat_template(self, messages, *, tokenize, add_generation_prompt, tools=None):
        assert tokenize
        assert add_generation_prompt
        messages[0]["content"] += "!"  # what a template does to messages is its own business
        return self.wrap(ids(chatted(messages) + str(tools or "")))

    def encode(self, text, *, add_special_tokens):
        assert add_special_tokens is False
        self.encoded += 1
        return self.wrap(ids(text))


@pytest.mark.parametrize(
    "wrap", [list, tuple, lambda made: {"input_ids": made}, lambda made: SimpleNamespace(ids=made)]
)
def test_a_tokenizer_at_hand(wrap):
    own = Tokenizer(wrap)
    tokens = LocalTokenizer(own)
    messages = [dict(one) for one in MESSAGES]
    expected = [{**MESSAGES[0], "content": "Be brief.!"}, MESSAGES[1]]
    assert tokens.of_messages(messages) == ids(chatted(expected))
    assert tokens.of_messages(messages, [{"a": 1}]) == ids(chatted(expected) + "[{'a': 1}]")
    assert messages == MESSAGES
    assert tokens.of_text("Slices") == tokens.of_text("Slices") == ids("Slices")
    assert own.encoded == 1


@pytest.mark.parametrize("made", [None, ["a"], [-1], [2**64], [[1]]])
def test_a_tokenizer_at_hand_that_fails(made):
    tokens = LocalTokenizer(Tokenizer(lambda _: made))
    with pytest.raises(EngineError):
        tokens.of_text("Slices")
    with pytest.raises(EngineError):
        tokens.of_messages(MESSAGES)


@pytest.mark.parametrize("none", [None, "gpt2", object(), len])
def test_what_is_no_tokenizer(none):
    with pytest.raises(SettingsError, match="apply_chat_template"):
        LocalTokenizer(none)


def test_what_is_remembered_is_bounded_and_the_oldest_goes():
    kept = KeptIds(most=1_000)
    asked = []

    def make(text):
        asked.append(text)
        return list(range(68))  # 100 with what an entry takes besides

    for number in range(10):
        kept.get(f"text {number}", make)
    assert len(kept) == 10
    kept.get("text 0", make)
    kept.get("text 10", make)
    assert len(kept) == 10
    assert len(asked) == 11
    kept.get("text 0", make)
    kept.get("text 1", make)
    assert asked[11:] == ["text 1"]
    assert kept.get("large", lambda _: list(range(2_000))) == list(range(2_000))
    assert len(kept) == 0


def test_many_threads_share_what_is_remembered():
    kept = KeptIds(most=3_000)
    wrong = []

    def use(seed):
        for step in range(2_000):
            number = (seed * 7 + step * step) % 50
            if kept.get(str(number), lambda text: [int(text)] * 20) != [number] * 20:
                wrong.append(number)

    threads = [threading.Thread(target=use, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not wrong
    assert kept._held == sum(len(one) + 32 for one in kept._ids.values()) <= 3_000


def test_many_threads_ask_one_engine():
    with answering({"/tokenize": vllm}, model="named") as server:
        tokens = EngineTokenizer(server.engine)
        wrong = []

        def use(seed):
            for step in range(20):
                text = f"{seed} {step}"
                if tokens.of_text(text) != ids(text):
                    wrong.append(text)

        threads = [threading.Thread(target=use, args=(seed,)) for seed in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert not wrong
        tokens.close()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes cannot fork here")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_asks_over_connections_of_its_own():
    with answering({"/tokenize": vllm}, model="named") as server:
        tokens = EngineTokenizer(server.engine)
        assert tokens.of_text("a") == ids("a")
        tokens._http._lock.acquire()  # as a thread would have it that is not in the child
        child = os.fork()
        if not child:
            os._exit(0 if tokens.of_text("b") == ids("b") else 1)
        tokens._http._lock.release()
        assert os.waitpid(child, 0)[1] == 0
        assert tokens.of_text("c") == ids("c")
        tokens.close()


def test_importing_loads_no_http():
    code = (
        "import sys, contextpilot_rag.engines.tokenizing, contextpilot_rag.engines.facts; "
        "print([name for name in ('httpcore', 'anyio', 'zmq') if name in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"
