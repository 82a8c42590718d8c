"""Against an engine of a few lines that answers as vLLM does; `tests/evaluation/test_run.py` has the FakeEngine."""

from __future__ import annotations

import pytest

from contextpilot_rag.errors import EngineRefused, EngineUnreachable
from contextpilot_rag.evaluation.asking import Asker, Terms, salted_by, scoring_of

ASKED = [{"role": "user", "content": "What?"}]


class Engine:
    """Tokens are characters; how probable one is stands in its code."""

    def __init__(self, *, without=()):
        self.without, self.bodies = set(without), []

    def post(self, path, body):
        self.bodies.append((path, body))
        lacking = self.without & {path, *body}
        if lacking:
            raise EngineRefused(f"no {min(lacking)} here", 400)
        if path == "/v1/completions":
            (token,) = body["allowed_token_ids"]
            return {"choices": [{"text": chr(token), "logprobs": {"token_logprobs": [-token / 100]}}]}
        text = "".join(message["content"] for message in body["messages"])
        if path == "/tokenize":
            return {"tokens": list(map(ord, text))}
        return {
            "choices": [{"message": {"content": "An answer."}}],
            "usage": {"prompt_tokens": len(text), "prompt_tokens_details": {"cached_tokens": 2}},
            "prompt_logprobs": [None, *({"x": {"logprob": -ord(one) / 100}} for one in text[1:])],
        }


@pytest.mark.parametrize("scoring", ["forced", "prompt"])
def test_both_ways_of_scoring_find_the_same(scoring):
    engine = Engine()
    outcome = Asker(engine, Terms("m", 16, scoring)).ask("key", ASKED, "abc", "salt")
    assert (outcome.key, outcome.text, outcome.prompt_tokens, outcome.cached_tokens) == ("key", "An answer.", 5, 2)
    assert (outcome.logprob, outcome.scored) == (pytest.approx(-(97 + 98 + 99) / 100), 3)
    asked = [body for path, body in engine.bodies if path != "/tokenize"]
    assert all(body["cache_salt"] == "salt" and body["temperature"] == 0 for body in asked)
    assert asked[0]["max_tokens"] == 16


@pytest.mark.parametrize("scoring", ["forced", "prompt"])
def test_only_the_beginning_of_a_long_answer_is_scored(scoring):
    outcome = Asker(Engine(), Terms("m", 16, scoring, most_scored=2)).ask("key", ASKED, "abc")
    assert (outcome.logprob, outcome.scored) == (pytest.approx(-(97 + 98) / 100), 2)


def test_without_a_right_answer_nothing_is_scored_and_without_a_salt_none_is_sent():
    engine = Engine()
    outcome = Asker(engine, Terms("m")).ask("key", ASKED, None)
    assert (outcome.logprob, outcome.scored, len(engine.bodies)) == (None, 0, 1)
    assert "cache_salt" not in engine.bodies[0][1]


@pytest.mark.parametrize(
    ("without", "scoring"),
    [
        ([], "forced"),
        (["/tokenize"], "prompt"),
        (["allowed_token_ids"], "prompt"),
        (["allowed_token_ids", "prompt_logprobs"], "none"),
        (["continue_final_message"], "none"),
    ],
)
def test_the_best_way_that_an_engine_has_is_taken(without, scoring):
    assert scoring_of(Engine(without=without), "m") == scoring


def test_an_engine_that_takes_no_salt_is_asked_without():
    assert salted_by(Engine(), "m")
    assert not salted_by(Engine(without=["cache_salt"]), "m")


def test_an_engine_that_refuses_all_or_does_not_answer_is_an_error():
    with pytest.raises(EngineRefused, match="no messages here"):
        salted_by(Engine(without=["messages"]), "m")

    class Gone:
        def post(self, *_):
            raise EngineUnreachable("nothing answers")

    for ask in (salted_by, scoring_of):
        with pytest.raises(EngineUnreachable):
            ask(Gone(), "m")


@pytest.mark.parametrize("answer", [{}, {"choices": []}, {"choices": [{"message": {"content": "x"}}]}, [], None])
def test_an_answer_that_is_none_is_refused(answer):
    class Odd:
        def post(self, *_):
            return answer

    with pytest.raises(EngineRefused, match="none that this understands"):
        Asker(Odd(), Terms("m")).ask("key", ASKED, None)


@pytest.mark.parametrize(
    "answer",
    [
        {"choices": [{"message": {"content": ["parts"]}}], "usage": {"prompt_tokens": 3}},
        {"choices": [{"message": {"content": "x"}}], "usage": {"prompt_tokens": "3"}},
        {
            "choices": [{"message": {"content": "x"}}],
            "usage": {"prompt_tokens": 3, "prompt_tokens_details": {"cached_tokens": "all"}},
        },
        *(
            {
                "choices": [{"message": {"content": "x"}}],
                "usage": {"prompt_tokens": 0},
                "prompt_logprobs": [{} if odd is None else {"x": {"logprob": odd}}],
            }
            for odd in (float("nan"), 1.5, 10**400, "low", None)
        ),
    ],
)
def test_an_answer_that_would_spoil_what_is_kept_is_refused(answer):
    class Odd:
        def post(self, *_):
            return answer

    with pytest.raises(EngineRefused, match="none that this understands"):
        Asker(Odd(), Terms("m", scoring="prompt")).ask("key", ASKED, "x")


def test_what_cannot_be_is_as_improbable_as_vllm_writes_it():
    class Sure:
        def post(self, *_):
            entries = [{"x": {"logprob": float("-inf")}}, {"y": {"logprob": 1e-7}}]
            usage = {"prompt_tokens": 0}
            return {"choices": [{"message": {"content": "x"}}], "usage": usage, "prompt_logprobs": entries}

    assert Asker(Sure(), Terms("m", scoring="prompt")).ask("key", ASKED, "x").logprob == -9999.0


def test_an_engine_that_has_no_time_has_not_said_what_it_can():
    class Busy:
        def post(self, *_):
            raise EngineRefused("later", 429)

    for ask in (salted_by, scoring_of):
        with pytest.raises(EngineRefused, match="later"):
            ask(Busy(), "m")


def test_who_waits_to_ask_again_need_not_once_it_is_given_up():
    class Busy:
        def __init__(self):
            self.asked = 0

        def post(self, *_):
            self.asked += 1
            raise EngineRefused("later", 503, 60.0)

    busy = Busy()
    asker = Asker(busy, Terms("m"), retries=1_000)
    asker.give_up()
    with pytest.raises(EngineRefused, match="later"):
        asker.ask("key", ASKED, None)
    assert busy.asked == 1


def test_terms_name_all_that_answers_depend_on():
    every = [Terms("m"), Terms("n"), Terms("m", 8), Terms("m", scoring="none"), Terms("m", most_scored=3)]
    assert len({str(terms) for terms in every}) == len(every)
