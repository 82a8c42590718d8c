"""What an engine's prefix cache finds again, as it reports itself. The FakeEngine is held to what vLLM does."""

from __future__ import annotations

import itertools

import openai
import pytest

from .under_test import BLOCK, cacheable

_NUMBERS = itertools.count(1)


def text(words: int, about: str = "caches") -> str:
    """A text that no other test has, from its first word on."""
    number = next(_NUMBERS)
    return f"{number} {about} " + " ".join(f"Line {line} of {number} says {about}." for line in range(words // 6))


def of_length(engine, remainder: int) -> str:
    """A text whose prompt is so many tokens longer than full KV blocks."""
    begun = text(120)
    for more in range(200):
        one = begun + " a" * more
        if len(engine.tokens(one)) % BLOCK == remainder:
            return one
    raise AssertionError("no such length")


def test_a_prompt_is_found_again_but_never_its_last_token(engine):
    for remainder in (0, 1, BLOCK - 1):
        prompt = of_length(engine, remainder)
        length = len(engine.tokens(prompt))
        assert engine.chat(prompt) == (length, 0)
        assert engine.chat(prompt) == (length, (length - 1) // BLOCK * BLOCK)


def test_what_is_shared_is_found_in_whole_kv_blocks(engine):
    shared = text(150)
    one, other = f"{shared} What is first?", f"{shared} And what comes last of all?"
    ids, others = engine.tokens(one), engine.tokens(other)
    same = sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], zip(ids, others, strict=False)))
    assert 100 < same < len(others) - 3
    engine.chat(one)
    assert engine.chat(other) == (len(others), same // BLOCK * BLOCK)


def test_what_stands_after_a_difference_is_not_found(engine):
    first, second = text(120), text(120)
    engine.chat(f"{first} {second}")
    assert engine.chat(f"{second} {first}")[1] == 0


def test_a_salt_finds_its_own_only(engine):
    prompt = text(150)
    length, cold = engine.chat(prompt, salt="tenant-a")
    assert cold == 0
    assert engine.chat(prompt, salt="tenant-a") == (length, cacheable(length))
    assert engine.chat(prompt, salt="tenant-b")[1] == 0
    assert engine.chat(prompt)[1] == 0
    assert engine.chat(prompt)[1] == cacheable(length)
    assert engine.chat(prompt, salt="tenant-a")[1] == cacheable(length)


def test_nothing_is_found_after_a_reset(engine):
    prompt = text(150)
    engine.chat(prompt)
    engine.reset()
    assert engine.chat(prompt)[1] == 0


@pytest.fixture
def client(engine):
    with openai.OpenAI(base_url=engine.base_url, api_key="none", max_retries=0, timeout=60) as one:
        yield one


def chat(client, model, prompt):
    answer = client.chat.completions.create(
        model=model, messages=[{"role": "user", "content": prompt}], max_tokens=2, temperature=0
    )
    return answer.usage.prompt_tokens, answer.usage.prompt_tokens_details.cached_tokens


def chat_stream(client, model, prompt):
    *_, last = client.chat.completions.create(
        model=model,
        messages=[{"role": "user", "content": prompt}],
        max_tokens=2,
        temperature=0,
        stream=True,
        stream_options={"include_usage": True},
    )
    assert last.choices == []
    return last.usage.prompt_tokens, last.usage.prompt_tokens_details.cached_tokens


def completion(client, model, prompt):
    answer = client.completions.create(model=model, prompt=prompt, max_tokens=2, temperature=0)
    return answer.usage.prompt_tokens, answer.usage.prompt_tokens_details.cached_tokens


def completion_stream(client, model, prompt):
    options = {"stream": True, "stream_options": {"include_usage": True}}
    *_, last = client.completions.create(model=model, prompt=prompt, max_tokens=2, temperature=0, **options)
    return last.usage.prompt_tokens, last.usage.prompt_tokens_details.cached_tokens


def response(client, model, prompt):
    answer = client.responses.create(model=model, input=prompt, max_output_tokens=2, temperature=0)
    return answer.usage.input_tokens, answer.usage.input_tokens_details.cached_tokens


def response_stream(client, model, prompt):
    *_, last = client.responses.create(model=model, input=prompt, max_output_tokens=2, temperature=0, stream=True)
    assert last.type in {"response.completed", "response.incomplete"}
    return last.response.usage.input_tokens, last.response.usage.input_tokens_details.cached_tokens


@pytest.mark.parametrize("ask", [chat, chat_stream, completion, completion_stream, response, response_stream])
def test_every_way_of_asking_reports_what_was_found(engine, client, ask):
    prompt = text(150)
    length, cold = ask(client, engine.model, prompt)
    assert cold == 0
    assert ask(client, engine.model, prompt) == (length, cacheable(length))


def test_a_stream_reports_only_if_asked(engine, client):
    chunks = client.chat.completions.create(
        model=engine.model, messages=[{"role": "user", "content": "Hello"}], max_tokens=2, stream=True
    )
    assert all(chunk.usage is None for chunk in chunks)


def test_token_ids_are_a_prompt_as_well(engine, client):
    prompt = text(150)
    ids = engine.tokens(prompt)
    length, cold = completion(client, engine.model, ids)
    assert (length, cold) == (len(ids), 0)
    assert engine.chat(prompt) == (length, cacheable(length))


def test_a_request_that_does_not_fit_is_refused_and_changes_nothing(engine, client):
    prompt = text(150)
    length, _ = engine.chat(prompt)
    with pytest.raises(openai.BadRequestError):
        chat(client, engine.model, text(20_000))
    assert engine.chat(prompt) == (length, cacheable(length))
