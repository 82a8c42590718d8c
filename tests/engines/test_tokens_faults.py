"""Token ids where engines and tokenizers are not what they were, hang, or are used by several threads at once."""

from __future__ import annotations

import threading
import time
from types import SimpleNamespace

import pytest

from contextpilot_rag import ContextPilot
from contextpilot_rag.engines import follower as follower_module
from contextpilot_rag.engines.engine import Engine
from contextpilot_rag.engines.facts import ailment, asking, read_facts
from contextpilot_rag.engines.fleet import Fleet
from contextpilot_rag.engines.follower import Answered, Follower
from contextpilot_rag.engines.kv import Stored
from contextpilot_rag.engines.tokenizing import EngineTokenizer, LocalTokenizer
from contextpilot_rag.index.local import LocalIndex
from contextpilot_rag.remote import lookup
from contextpilot_rag.tokens import TokenCounter
from contextpilot_rag.types import Usage
from tests.engines.answering import answering
from tests.until import until

TEXT = "Slices count from zero, and sets have no order at all."


class Served:
    """A vLLM: which model it has now, and what it makes of texts."""

    def __init__(self, **more):
        self.model, self.plus, self.hanging = "one", 0, None
        self.answers = {
            "/health": (200, {}),
            "/v1/models": lambda _: (200, {"data": [{"id": self.model}]}),
            "/tokenize": self.tokenize,
            **more,
        }

    def tokenize(self, asked):
        if self.hanging is not None:
            self.hanging.wait(30)
        body = asked.body
        if body.get("model") not in {None, self.model}:
            return 404, {"error": {"message": f"The model `{body['model']}` does not exist."}}
        if "content" in body and "prompt" not in body:
            return 400, {"error": {"message": "prompt: Field required"}}
        text = body["prompt"] if "prompt" in body else "".join(one["content"] for one in body["messages"])
        made = [one + self.plus for one in text.encode()]
        return 200, {"count": len(made), "tokens": made}


def test_another_model_at_the_same_address_is_asked_by_its_own_name():
    served = Served()
    with answering(served.answers) as server:
        tokens = EngineTokenizer(server.engine)
        assert tokens.of_text(TEXT) == list(TEXT.encode())
        served.model, served.plus = "two", 1
        assert tokens.of_messages([{"content": "ab"}]) == [98, 99]
        assert tokens.of_text(TEXT) == [one + 1 for one in TEXT.encode()]  # what was kept went with the name
        assert not tokens.renewed()
        served.plus = 2  # under the same name
        assert tokens.renewed()
        assert tokens.of_text(TEXT) == [one + 2 for one in TEXT.encode()]
        tokens.close()


def test_a_name_that_was_given_is_no_other():
    served = Served()
    with answering(served.answers, model="one") as server:
        tokens = EngineTokenizer(server.engine)
        assert tokens.of_text("a") == [97]
        served.model = "two"
        with pytest.raises(Exception, match="does not exist"):
            tokens.of_text("b")
        assert "/v1/models" not in server.paths
        tokens.close()


def test_other_software_at_the_same_address_is_asked_as_it_wants_to_be():
    served = Served()
    with answering(served.answers) as server:
        tokens = EngineTokenizer(server.engine)
        assert tokens.of_text("a") == [97]
        served.answers["/tokenize"] = lambda asked: (200, {"tokens": [7] * len(asked.body.get("content", ""))})
        tokens.forget()
        assert tokens.of_text("abc") == [7, 7, 7]
        tokens.close()


def test_what_was_being_asked_when_all_was_forgotten_is_not_remembered():
    served = Served()
    with answering(served.answers) as server:
        tokens = EngineTokenizer(server.engine)
        assert tokens.of_text("a") == [97]
        served.hanging = threading.Event()
        thread = threading.Thread(target=tokens.of_text, args=(TEXT,))
        before = len(server.asked)
        thread.start()
        until(lambda: len(server.asked) > before)
        tokens.forget()
        served.hanging.set()
        thread.join(20)
        served.plus = 1
        assert tokens.of_text(TEXT) == [one + 1 for one in TEXT.encode()]
        tokens.close()


class Heard:
    """Who is told by a follower."""

    def __init__(self):
        self.lives, self.coverings, self.reasons = [], [], []

    def alive(self, name, alive, why=""):
        self.lives.append(alive)

    def facts(self, name, facts):
        pass

    def say(self, name):
        pass

    def cover(self, alignment, salt, covering, cached_tokens):
        self.coverings.append(covering)

    def covered(self, name, why_not=None, detail=""):
        self.reasons.append(why_not)


def answered(*texts):
    prompt = ContextPilot(order="retrieved").align(list(texts), "Why?")
    return Answered(prompt, prompt.messages(), None, Usage())


@pytest.fixture
def _hurry(monkeypatch):
    monkeypatch.setattr(follower_module, "CHECK_SECONDS", 0.2)
    monkeypatch.setattr(follower_module, "SOON", 0.05)


@pytest.mark.usefixtures("_hurry")
def test_token_ids_that_hang_keep_nobody_from_noticing_that_the_engine_is_gone():
    served, told = Served(), Heard()
    with answering(served.answers) as server:
        tokens = EngineTokenizer(server.engine, seconds=25)
        follower = Follower(server.engine, told, tokens, lambda: 16, time.monotonic)
        follower.start()
        until(lambda: told.lives)
        served.hanging = threading.Event()
        follower.put(answered(TEXT))
        until(lambda: "/tokenize" in server.paths)
        served.answers["/health"] = (503, {})
        follower.check_soon()
        until(lambda: told.lives[-1] is False, seconds=5)
        assert not follower.drained(0)
        served.hanging.set()
        follower.stop()
        tokens.close()


@pytest.mark.usefixtures("_hurry")
def test_prompts_are_covered_again_once_another_model_is_there():
    served, told = Served(), Heard()
    with answering(served.answers) as server:
        tokens = EngineTokenizer(server.engine)
        follower = Follower(server.engine, told, tokens, lambda: 16, time.monotonic)
        follower.start()
        for name, plus in (("one", 0), ("two", 1), ("two", 2)):  # restarted so quickly that no check found it gone
            served.model, served.plus = name, plus
            follower.put(answered(TEXT, f"{TEXT} Steps may be negative."))
            assert follower.drained(20)
        assert told.reasons == [None, None, None]
        assert len({one.keys for one in told.coverings}) == 3
        assert set(told.lives) == {True}
        follower.stop()
        tokens.close()


class Busy:
    """A tokenizer that notices when two threads use it at once."""

    def __init__(self):
        self.inside, self.most = 0, 0

    def encode(self, text, add_special_tokens=False):
        self.inside += 1
        self.most = max(self.most, self.inside)
        time.sleep(0.002)
        self.inside -= 1
        return list(text.encode())

    def apply_chat_template(self, messages, **_):
        return self.encode("".join(one["content"] for one in messages))


def test_a_tokenizer_is_used_by_one_thread_at_a_time_whoever_has_it():
    own = Busy()
    one, other, counter = LocalTokenizer(own), LocalTokenizer(own), TokenCounter(own)
    uses = [
        lambda number: one.of_text(f"one {number}"),
        lambda number: other.of_messages([{"content": f"other {number}"}]),
        lambda number: counter.count(f"counted {number}"),
    ]
    threads = [threading.Thread(target=lambda use=use: [use(number) for number in range(20)]) for use in uses]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert own.most == 1
    two = Busy()
    assert LocalTokenizer(two)._turn is not LocalTokenizer(own)._turn
    assert LocalTokenizer(SimpleNamespace(encode=two.encode, apply_chat_template=len))


def test_a_name_that_is_not_found_is_looked_up_once_at_a_time(monkeypatch):
    begun, let_go = [], threading.Event()

    def hang(self, looking):
        begun.append(self)
        let_go.wait(20)
        looking.set_exception(OSError("no such name"))

    monkeypatch.setattr(lookup.Lookup, "_look", hang)
    engine = Engine("http://engine.invalid:8000")
    http = asking(engine)
    for _ in range(5):
        assert ailment(engine, 0.05, http)
        assert read_facts(engine, 0.05, http).model is None
    assert len(begun) == 1
    let_go.set()


def test_the_size_of_kv_blocks_is_what_events_tell():
    engine = Engine("http://127.0.0.1:8000", name="e", events="tcp://127.0.0.1:5557", block_size=16)
    fleet = Fleet([engine], lambda _: LocalIndex())
    assert fleet.block_size("e") == 16
    fleet.events("e", 0, [Stored((1,), None, tuple(range(32)), 32)])
    assert fleet.block_size("e") == 32
    assert next(iter(fleet.engines())).block_size == 32
    fleet.events("e", 0, [Stored((2,), None, tuple(range(64)), 64, sliding=True)])
    assert fleet.block_size("e") == 32
    fleet.lost("e", 0, "it began anew")
    assert fleet.block_size("e") == 16
