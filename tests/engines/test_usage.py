from __future__ import annotations

from types import SimpleNamespace
from unittest.mock import MagicMock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextpilot_rag import Usage
from contextpilot_rag.engines.usage import usage_of

DETAILS = {"cached_tokens": 64, "audio_tokens": None}
json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: (
        st.lists(inner)
        | st.dictionaries(
            st.sampled_from(
                "usage prompt_tokens prompt_tokens_details cached_tokens response timings raw generations input_tokens "
                "cache_read_input_tokens usage_metadata input_token_details x".split()
            ),
            inner,
        )
    ),
)


def as_object(value):
    return SimpleNamespace(**{k: as_object(v) for k, v in value.items()}) if isinstance(value, dict) else value


@pytest.mark.parametrize("wrap", [lambda value: value, as_object], ids=["json", "objects"])
@pytest.mark.parametrize(
    ("response", "expected"),
    [
        (
            {"usage": {"prompt_tokens": 100, "completion_tokens": 5, "prompt_tokens_details": DETAILS}},
            Usage(100, 64, 5),
        ),
        (
            {"choices": [], "usage": {"prompt_tokens": 100, "prompt_tokens_details": {"cached_tokens": 0}}},
            Usage(100, 0),
        ),
        ({"usage": {"prompt_tokens": 100, "prompt_tokens_details": None}}, Usage(100, None)),
        ({"usage": {"prompt_tokens": 100, "prompt_tokens_details": {"cached_tokens": None}}}, Usage(100, None)),
        ({"usage": {"prompt_tokens": 100}}, Usage(100, None)),
        (
            {"usage": {"input_tokens": 9, "input_tokens_details": {"cached_tokens": 8}, "output_tokens": 1}},
            Usage(9, 8, 1),
        ),
        ({"type": "response.completed", "response": {"usage": {"input_tokens": 9}}}, Usage(9)),
        ({"prompt_tokens": 7, "completion_tokens": 2}, Usage(7, None, 2)),
        # Anthropic: what was read from a cache, or written to it, is not in its input
        (
            {"usage": {"input_tokens": 3, "cache_read_input_tokens": 40, "cache_creation_input_tokens": 7}},
            Usage(50, 40),
        ),
        ({"usage": {"input_tokens": 3, "cache_read_input_tokens": 0, "output_tokens": 2}}, Usage(3, 0, 2)),
        ({"usage": {"input_tokens": 3, "cache_read_input_tokens": None}}, Usage(3)),
        (
            {"type": "message_start", "message": {"usage": {"input_tokens": 3, "cache_read_input_tokens": 4}}},
            Usage(7, 4),
        ),
        # a gateway that speaks OpenAI's words and keeps Anthropic's beside them
        ({"usage": {"prompt_tokens": 50, "cache_read_input_tokens": 40}}, Usage(50, 40)),
        # SGLang's native answer
        ({"text": "", "meta_info": {"prompt_tokens": 9, "completion_tokens": 1, "cached_tokens": 8}}, Usage(9, 8, 1)),
        ({"meta_info": {"prompt_tokens": 9, "cached_tokens": None}}, Usage(9)),
        # llama.cpp's, alone and beside a usage that does not say
        ({"timings": {"prompt_n": 2, "cache_n": 30, "predicted_n": 4}}, Usage(32, 30, 4)),
        ({"usage": {"prompt_tokens": 32}, "timings": {"prompt_n": 2, "cache_n": 30}}, Usage(32, 30)),
        ({"timings": {"prompt_n": 32, "predicted_n": 4}}, Usage(None, None, 4)),
        # LlamaIndex: its own words do not say what was cached, the engine's answer does
        (
            {
                "additional_kwargs": {"prompt_tokens": 9, "completion_tokens": 1, "total_tokens": 10},
                "raw": {"usage": {"prompt_tokens": 9, "completion_tokens": 1, "prompt_tokens_details": DETAILS}},
            },
            Usage(9, 64, 1),
        ),
        ({"text": "", "raw": None, "additional_kwargs": {"prompt_tokens": 9}}, Usage(9)),
        # LangChain's messages and results
        (
            {"usage_metadata": {"input_tokens": 9, "output_tokens": 2, "input_token_details": {"cache_read": 4}}},
            Usage(9, 4, 2),
        ),
        ({"usage_metadata": {"input_tokens": 9, "output_tokens": 2, "input_token_details": {}}}, Usage(9, None, 2)),
        ({"usage_metadata": None, "response_metadata": {"token_usage": {"prompt_tokens": 9}}}, Usage(9)),
        (
            {
                "usage_metadata": {"input_tokens": 9},
                "response_metadata": {"token_usage": {"prompt_tokens": 9, "prompt_tokens_details": DETAILS}},
            },
            Usage(9, 64),
        ),
        ({"llm_output": {"token_usage": {"prompt_tokens": 9, "prompt_tokens_details": DETAILS}}}, Usage(9, 64)),
        ({"usage": None, "choices": []}, None),
        ({"usage": {"prompt_tokens": -1}}, None),
        ({"usage": {"prompt_tokens": True}}, None),
        ({}, None),
    ],
)
def test_reads_every_shape(wrap, response, expected):
    assert usage_of(wrap(response)) == expected


def test_takes_our_own_and_objects_that_carry_it():
    usage = Usage(5, 4)
    assert usage_of(usage) is usage
    assert usage_of(SimpleNamespace(usage=usage)) is usage
    assert usage_of(None) is None


def test_a_mapping_that_raises_says_nothing():
    class Broken(dict):
        def get(self, *_):
            raise RuntimeError("broken")

    assert usage_of(Broken()) is None


def test_an_object_whose_properties_raise_says_nothing():
    class Lazy:
        @property
        def usage(self):
            raise RuntimeError("not read yet")

    assert usage_of(Lazy()) is None


@given(json)
def test_never_raises_and_never_invents(response):
    usage = usage_of(response)
    assert usage is None or usage != Usage()


def test_reads_the_openai_clients_own_objects():
    from openai.types import CompletionUsage

    usage = CompletionUsage.model_validate(
        {"prompt_tokens": 3, "completion_tokens": 1, "total_tokens": 4, "prompt_tokens_details": {"cached_tokens": 2}}
    )
    assert usage_of(usage) == Usage(3, 2, 1)


def test_finds_what_a_result_says_in_its_messages():
    told = {"input_tokens": 9, "output_tokens": 2, "input_token_details": {"priority_cache_read": 4}}
    message = SimpleNamespace(usage_metadata=told, response_metadata={})
    result = SimpleNamespace(llm_output=None, generations=[[SimpleNamespace(message=message, text="")]])
    assert usage_of(result) == Usage(9, 4, 2)
    result.llm_output = {"token_usage": {"prompt_tokens": 9}}
    assert usage_of(result) == Usage(9, 4, 2)
    assert usage_of(SimpleNamespace(llm_output=None, generations=[[SimpleNamespace(text="")]])) is None


def test_an_answer_that_holds_itself_ends():
    answer: dict[str, object] = {"prompt_tokens": 3}
    answer["response"] = answer["raw"] = answer["usage"] = answer["generations"] = answer
    assert usage_of(answer) == Usage(3)


def test_what_was_read_before_an_object_breaks_is_kept():
    class Broken:
        usage = {"prompt_tokens": 3}  # noqa: RUF012

        @property
        def raw(self):
            raise RuntimeError("closed")

    assert usage_of(Broken()) == Usage(3)


def test_a_mock_says_nothing_soon():
    mock = MagicMock()
    assert usage_of(mock) is None
    assert len(mock.mock_calls) == 0


def test_lists_of_chunks_and_texts_say_nothing():
    assert usage_of([{"usage": {"prompt_tokens": 3}}]) is None
    assert usage_of("usage") is None
