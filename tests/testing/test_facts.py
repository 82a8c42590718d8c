"""What the FakeEngine says of itself: metrics, server information, versions, names of tokens."""

from __future__ import annotations

import asyncio
import http.client
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from prometheus_client.parser import text_string_to_metric_families

from contextpilot_rag.testing import EventOptions, FakeEngine
from tests.testing.common import ENGLISH, MESSAGES, chat_body, post


def text(engine, path):
    connection = http.client.HTTPConnection("127.0.0.1", int(engine.base_url.rsplit(":", 1)[1][:-3]), timeout=30)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        assert response.status == 200
        return response.read().decode()
    finally:
        connection.close()


def samples(engine):
    return {
        sample.name: sample
        for family in text_string_to_metric_families(text(engine, "/metrics"))
        for sample in family.samples
    }


def test_vllms_metrics():
    with FakeEngine(block_size=8, capacity_blocks=99, model='a "model"\\') as engine:
        answers = [engine.chat({"messages": MESSAGES})["usage"] for _ in range(2)]
        engine.waiting = 3
        found = samples(engine)
    config = found["vllm:cache_config_info"].labels
    assert found["vllm:cache_config_info"].value == 1
    # vLLM counts one block that it keeps for itself.
    assert (config["block_size"], config["num_gpu_blocks"], config["kv_cache_size_tokens"]) == ("8", "100", "800")
    values = {name: sample.value for name, sample in found.items()}
    assert values["vllm:num_requests_running"] == 0
    assert values["vllm:num_requests_waiting"] == 3
    assert values["vllm:prefix_cache_queries_total"] == sum(usage["prompt_tokens"] for usage in answers)
    assert values["vllm:prefix_cache_hits_total"] == answers[1]["prompt_tokens_details"]["cached_tokens"] > 0
    assert 0 < values["vllm:kv_cache_usage_perc"] <= 1
    assert found["vllm:num_requests_running"].labels["model_name"] == 'a "model"\\'


@pytest.mark.parametrize("stream", [False, True])
def test_requests_at_work_are_counted_until_they_end(stream):
    entered, go = threading.Event(), threading.Event()

    async def sleep(_):
        entered.set()
        await asyncio.to_thread(go.wait, 20)

    with FakeEngine(delay_seconds=1, sleep=sleep) as engine, ThreadPoolExecutor(1) as pool:
        answer = pool.submit(post, engine, chat_body(stream=False))
        assert entered.wait(20)
        assert samples(engine)["vllm:num_requests_running"].value == 1
        go.set()
        assert answer.result(20)[0] == 200
        assert samples(engine)["vllm:num_requests_running"].value == 0


def test_vllms_addresses():
    with FakeEngine() as engine:
        assert post(engine, None, "/version", "GET")[1]["version"].startswith("fake-")
        assert post(engine, None, "/server_info", "GET")[0] == 404
        assert post(engine, None, "/flush_cache")[0] == 404


def test_sglangs_addresses():
    options = EventOptions(topic="kv")
    with FakeEngine(block_size=8, capacity_blocks=99, model="m", dialect="sglang", events=options) as engine:
        for path in ("/server_info", "/get_server_info"):
            info = post(engine, None, path, "GET")[1]
            assert (info["max_total_num_tokens"], info["page_size"], info["served_model_name"]) == (792, 8, "m")
            assert info["kv_events"] == {
                "publisher": "zmq",
                "endpoint": engine.events_url,
                "replay_endpoint": engine.replay_url,
                "topic": "kv",
                "block_size": 8,
            }
        values = {name: sample.value for name, sample in samples(engine).items()}
        assert values["sglang:num_running_reqs"] == values["sglang:num_queue_reqs"] == 0
        assert values["sglang:max_total_num_tokens"] == 792
        assert not [name for name in values if name.startswith("vllm:")]
        for method in ("GET", "POST"):
            engine.chat({"messages": MESSAGES})
            assert post(engine, None, "/flush_cache", method)[0] == 200
            assert not engine.cached_hashes
        assert post(engine, b'{"prompt":"A slice."}', "/v1/tokenize")[1] == engine.tokenize({"prompt": "A slice."})
        assert post(engine, None, "/version", "GET")[0] == 404
        assert post(engine, None, "/reset_prefix_cache")[0] == 404
    with FakeEngine(dialect="sglang") as engine:
        assert post(engine, None, "/server_info", "GET")[1]["kv_events"] is None


def test_names_of_tokens():
    engine = FakeEngine()
    body = {"prompt": ENGLISH, "return_token_strs": True}
    found = engine.tokenize(body)
    assert "".join(found["token_strs"]) == ENGLISH
    assert found["tokens"] == engine.tokenize({"prompt": ENGLISH, "add_special_tokens": False})["tokens"]
    assert engine.tokenize({"prompt": ENGLISH})["token_strs"] is None
    parts = [{"type": "text", "text": "a"}, {"type": "image_url", "image_url": {"url": "x"}}]
    found = engine.tokenize({"messages": [{"role": "user", "content": parts}], "return_token_strs": True})
    assert len(found["token_strs"]) == len(found["tokens"]) == found["count"]
    assert "".join(found["token_strs"]) == "<|im_start|>user\na<|other|><|im_end|>\n<|im_start|>assistant\n"
