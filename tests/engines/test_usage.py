from __future__ import annotations

from types import SimpleNamespace

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
            st.sampled_from(["usage", "prompt_tokens", "prompt_tokens_details", "cached_tokens", "response", "x"]),
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
