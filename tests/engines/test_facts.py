"""What engines say of themselves, in the words of each; also where they say it badly, or not at all."""

from __future__ import annotations

import socket
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextpilot_rag.engines.engine import Engine, EngineFacts
from contextpilot_rag.engines.facts import Metrics, healthy, read_facts
from contextpilot_rag.testing import FakeEngine
from tests.engines.answering import answering
from tests.remote.stub import stub

MODELS = (200, {"object": "list", "data": [{"id": "served", "max_model_len": 4096}]})

# Written from the schemas of the engines' own metrics.
VLLM = """\
# HELP python_info Python platform information
# TYPE python_info gauge
python_info{implementation="CPython",major="3",minor="12",version="3.12.1"} 1.0
# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="served"} 3.0
vllm:num_requests_running{engine="1",model_name="served"} 2.0
# TYPE vllm:num_requests_waiting gauge
vllm:num_requests_waiting{engine="0",model_name="served"} 0.0
vllm:num_requests_waiting{engine="1",model_name="served"} 4.0
# TYPE vllm:time_to_first_token_seconds histogram
vllm:time_to_first_token_seconds_bucket{engine="0",le="0.001",model_name="served"} 0.0
vllm:time_to_first_token_seconds_bucket{engine="0",le="+Inf",model_name="served"} 0.0
# TYPE vllm:cache_config_info gauge
vllm:cache_config_info{block_size="16",cache_dtype="auto",calculate_kv_scales="False",cpu_offload_gb="0",\
enable_prefix_caching="True",engine="0",gpu_memory_utilization="0.9",is_attention_free="False",\
kv_cache_memory_bytes="None",num_cpu_blocks="None",num_gpu_blocks="1001",num_gpu_blocks_override="None",\
prefix_caching_hash_algo="sha256",sliding_window="None",swap_space_bytes="4294967296",user_block="a{\\"b\\"} c"} 1.0
vllm:cache_config_info{block_size="16",engine="1",num_gpu_blocks="999"} 1.0
"""
SGLANG = """\
# HELP sglang:num_running_reqs The number of running requests.
# TYPE sglang:num_running_reqs gauge
sglang:num_running_reqs{engine_type="unified",model_name="served",moe_ep_rank="0",pp_rank="0",tp_rank="0"} 5.0
# TYPE sglang:num_queue_reqs gauge
sglang:num_queue_reqs{engine_type="unified",model_name="served",moe_ep_rank="0",pp_rank="0",tp_rank="0"} 1.0
# TYPE sglang:max_total_num_tokens gauge
sglang:max_total_num_tokens{engine_type="unified",model_name="served",pp_rank="0",tp_rank="0"} 120000.0
"""
SERVER_INFO = {
    "model_path": "some/model",
    "page_size": 64,
    "kv_events_config": '{"publisher":"zmq"}',
    "max_total_num_tokens": 120_064,
    "internal_states": [{"last_gen_throughput": 0.0, "memory_usage": {"token_capacity": 120_064}}],
    "version": "0.5.23",
    "kv_events": {"publisher": "zmq", "endpoint_host": "*", "endpoint_port_base": 5557, "dp_size": 1, "block_size": 64},
}
LLAMA_CPP = """\
# HELP llamacpp:prompt_tokens_total Number of prompt tokens processed.
# TYPE llamacpp:prompt_tokens_total counter
llamacpp:prompt_tokens_total 100
# TYPE llamacpp:requests_processing gauge
llamacpp:requests_processing 1
# TYPE llamacpp:requests_deferred gauge
llamacpp:requests_deferred 2
"""
PROPS = {
    "default_generation_settings": {"id": 0, "n_ctx": 1024, "params": {}},
    "total_slots": 4,
    "model_path": "m.gguf",
}
SLOTS = [{"id": number, "n_ctx": 1024, "is_processing": number == 1, "params": {}} for number in range(4)]


def facts_of(answers, **engine):
    with answering(answers, **engine) as server:
        return read_facts(server.engine)


def test_vllm():
    found = facts_of({"/metrics": (200, VLLM.encode()), "/v1/models": MODELS})
    assert found == EngineFacts("vllm", 1000 * 16, 16, "served", running=5, waiting=4)


def test_vllm_that_says_its_tokens_and_has_large_blocks():
    text = 'vllm:cache_config_info{block_size="784",kv_cache_size_tokens="156800",num_gpu_blocks="10"} 1.0\n'
    found = facts_of({"/metrics": (200, text.encode())}, model="mine")
    assert found == EngineFacts("vllm", 156_800 - 784, 784, "mine")


@pytest.mark.parametrize("said", ["None", "", "auto", "-1", "nan", "1e400", "0", "16.5"])
def test_vllm_that_says_nothing_of_use(said):
    text = f'vllm:cache_config_info{{block_size="{said}",num_gpu_blocks="{said}"}} 1.0\nvllm:num_requests_running NaN\n'
    assert facts_of({"/metrics": (200, text.encode())}) == EngineFacts("vllm")


def test_sglang():
    answers = {"/metrics": (200, SGLANG.encode()), "/server_info": (200, SERVER_INFO), "/v1/models": MODELS}
    assert facts_of(answers) == EngineFacts("sglang", 120_064, 64, "served", 5, 1, events=True)
    del answers["/metrics"]  # without --enable-metrics
    assert facts_of(answers) == EngineFacts("sglang", 120_064, 64, "served", events=True)
    answers["/server_info"] = (200, {**SERVER_INFO, "kv_events": None})
    assert facts_of(answers).events is False
    del answers["/server_info"]
    answers["/metrics"] = (200, SGLANG.encode())
    assert facts_of(answers) == EngineFacts("sglang", 120_000, None, "served", 5, 1)
    answers["/get_server_info"] = (200, {"page_size": 1, "internal_states": [], "kv_events_config": None})
    assert facts_of(answers) == EngineFacts("sglang", 120_000, 1, "served", 5, 1, events=False)


def test_llama_cpp():
    answers = {
        "/metrics": (200, LLAMA_CPP.encode()),
        "/props": (200, PROPS),
        "/slots": (200, SLOTS),
        "/v1/models": MODELS,
    }
    assert facts_of(answers) == EngineFacts("llama.cpp", 4096, 1, "served", 1, 2, events=False)
    answers["/metrics"] = (501, {"error": {"message": "This server does not support metrics endpoint."}})
    assert facts_of(answers) == EngineFacts("llama.cpp", 4096, 1, "served", 1, None, events=False)
    answers["/slots"] = (501, {"error": {}})
    assert facts_of(answers) == EngineFacts("llama.cpp", 4096, 1, "served", None, None, events=False)
    del answers["/props"]
    assert facts_of(answers) == EngineFacts(model="served")


def test_an_engine_that_is_none_of_these():
    assert facts_of({"/v1/models": MODELS}) == EngineFacts(model="served")
    assert facts_of({}) == EngineFacts()
    assert facts_of({"/metrics": (200, b"\xff\x00"), "/server_info": (200, []), "/props": (200, 1)}) == EngineFacts()


def test_the_fake_engine():
    with FakeEngine(model="mine") as fake:
        engine = Engine(fake.base_url)
        assert healthy(engine)
        assert read_facts(engine).model == "mine"
    assert not healthy(engine)
    assert read_facts(engine) == EngineFacts()


def test_health_is_what_the_engine_says():
    with answering({"/health": (503, {"error": {"message": "Loading model"}})}) as server:
        assert not healthy(server.engine)
    with answering({"/health": (200, b"")}, "/behind/v1") as server:
        assert not healthy(server.engine)
    with answering({"/behind/health": (200, b"")}, "/behind/v1") as server:
        assert healthy(server.engine)


def test_an_engine_that_hangs_costs_no_more_than_was_said():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        engine = Engine(f"http://127.0.0.1:{silent.getsockname()[1]}")
        began = time.monotonic()
        assert not healthy(engine, 0.2)
        assert read_facts(engine, 0.3) == EngineFacts()
        assert time.monotonic() - began < 5


def test_an_answer_without_an_end_is_left():
    def endless(sock, _):
        sock.sendall(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
        part = b"10000\r\n" + b"x" * 65_536 + b"\r\n"
        while not server.ended.is_set():
            sock.sendall(part)
        return False

    with stub(endless) as server:
        assert read_facts(Engine(server.address, model="m"), 5) == EngineFacts(model="m")


def test_metrics_as_they_may_be_written():
    text = (
        "\ufeffa 9\n"
        'b{} 1 1700000000000\n b {x="1" , y="}\\\\",} 2e0 # {trace_id="t"} 1\n'
        "c +Inf\nd\ne{ 1\nf abc\n# TYPE g gauge\n\n  \nh{x=1} 1\ni 3\r\n"
    )
    metrics = Metrics(text)
    assert metrics.total("b") == 3
    assert list(metrics.labels("b")) == [{}, {"x": "1", "y": "}\\"}]
    assert metrics.total("c") is None
    assert [metrics.total(name) for name in "defgh"] == [None, None, None, None, 1]
    assert metrics.one("i") == 3


@given(st.text() | st.lists(st.sampled_from(['a{b="', "\\", '"', "}", "{", ",", " 1\n", "=", "vllm:x"])).map("".join))
def test_any_text_is_read(text):
    Metrics(text)


@given(
    st.dictionaries(st.from_regex(r"[a-z_]{1,8}", fullmatch=True), st.text(max_size=20), max_size=4),
    st.integers(0, 2**53 - 1),
)
def test_what_is_written_is_read(labels, value):
    def escaped(text):
        return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')

    told = ",".join(f'{name}="{escaped(text)}"' for name, text in labels.items())
    metrics = Metrics(f"other 1\nname{{{told}}} {value}\n")
    assert list(metrics.labels("name")) == [labels]
    assert metrics.total("name") == value


@pytest.mark.parametrize(
    "bad", ['a{b="' + "\\" * 60_000, "a{" + 'b="c"' * 13_000, "a" * 60_000 + "{", "a{" + '"' * 60_000]
)
def test_no_line_takes_long(bad):
    began = time.process_time()
    Metrics("\n".join([bad] * 20))
    assert time.process_time() - began < 10
