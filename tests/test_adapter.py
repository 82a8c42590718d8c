"""Adapter: a pilot inside a framework."""

from __future__ import annotations

import asyncio
import contextlib
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextpilot_rag import AsyncContextPilot, ContextPilot, LocalIndex, Usage
from contextpilot_rag.adapter import Adapter, hint_for, labelled
from contextpilot_rag.errors import IndexFailed, InvalidBlock, SettingsError, TextTooLong
from tests.strategies import texts

LONG = [f"{name} " * 40 for name in ("slices", "steps", "copies", "sets")]


class Broken:
    """An index that fails whatever it is asked."""

    def align(self, _request):
        raise OSError("no route to host")

    observe = predict = align


class LocalIndexAround:
    """An index of ours that is not the embedded one."""

    def __init__(self):
        self._index = LocalIndex()
        self.asked = threading.Event()

    def __getattr__(self, name):
        return getattr(self._index, name)

    def align(self, request):
        return self._index.align(request)


def report(cached, prompt=1000):
    return {"usage": {"prompt_tokens": prompt, "prompt_tokens_details": {"cached_tokens": cached}}}


@given(st.lists(texts, max_size=6), st.booleans())
def test_every_position_stands_under_one_label(given, asynchronous):
    adapter = Adapter(order="throughput")
    adapter.arrange(given[::-1])
    prompt = asyncio.run(adapter.aarrange(given, "?")) if asynchronous else adapter.arrange(given, "?")
    positions = [position for ids in prompt.ids.values() for position in ids]
    assert sorted(positions) == list(range(len(given)))
    for place, ids in prompt.ids.items():
        assert prompt.blocks[place - 1].text == given[ids[0]]
    assert adapter.failures == 0


def test_what_it_is_built_on():
    pilot = ContextPilot(namespace="t1")
    assert Adapter(pilot).pilot is pilot
    assert Adapter(AsyncContextPilot.around(pilot)).pilot is pilot
    assert Adapter(pilot.index).pilot.index is pilot.index
    assert Adapter().pilot.index is not Adapter().pilot.index
    assert Adapter(pilot).arrange(["a"]).request.namespace.tenant == "t1"
    assert Adapter(pilot, namespace="t2").arrange(["a"]).request.namespace.tenant == "t2"
    assert Adapter(pilot, namespace="t2").arrange(["a"], namespace="t3").request.namespace.tenant == "t3"


@pytest.mark.parametrize("wrong", [{"order": "best"}, {"capacity_tokens": 3}, {"namespace": ""}, {"pilot": "nonsense"}])
def test_what_cannot_be_is_said_when_it_is_made(wrong):
    with pytest.raises(SettingsError):
        Adapter(**wrong)


@pytest.mark.parametrize("method", ["arrange", "aarrange"])
@pytest.mark.parametrize("wrong", [{"texts": [7]}, {"texts": None}, {"namespace": ""}, {"namespace": 7}])
def test_what_cannot_be_used_leaves_everything_as_it_is(method, wrong, caplog):
    adapter = Adapter()
    for _ in range(2):
        found = getattr(adapter, method)(**{"texts": ["a"], **wrong})
        assert (asyncio.run(found) if method == "aarrange" else found) is None
    assert adapter.failures == 2
    assert sum("contextpilot" in record.name for record in caplog.records) == 1


def test_a_failure_is_raised_where_it_is_asked_for():
    adapter = Adapter(ContextPilot(on_error="raise"))
    with pytest.raises(InvalidBlock):
        adapter.arrange([7])
    with pytest.raises(IndexFailed, match="ours"):
        adapter.failed(ValueError("ours"))
    with pytest.raises(IndexFailed):
        Adapter(ContextPilot(Broken(), on_error="raise")).arrange(["a"])
    assert adapter.failures == 2


def test_a_broken_index_gives_the_retrievers_order():
    adapter = Adapter(ContextPilot(Broken()))
    assert adapter.arrange(LONG, "?").order == (0, 1, 2, 3)
    assert adapter.failures == 1


def test_a_report_finds_its_request():
    adapter = Adapter()
    first, second = adapter.arrange(LONG[:2], "What?"), adapter.arrange(LONG[1:], "Why?")
    assert adapter.learn(f"Context: {LONG[1]}\n{LONG[2]}\n{LONG[3]}\nWhy?", report(400)) == Usage(1000, 400)
    assert adapter.learn("\n".join([*(block.text for block in first.blocks), "Why?"]), report(1)) is None  # other one
    assert adapter.learn("\n".join([*(block.text for block in reversed(first.blocks)), "What?"]), report(1)) is None
    assert adapter.learn("\n".join([*(block.text.strip() for block in first.blocks), "What?"]), report(7)) is not None
    assert adapter.pilot.stats().reported_cached_tokens == 407
    assert second.sent.prompt_bytes > 0


def test_a_request_is_found_once_and_the_oldest_goes():
    adapter = Adapter(remember=2)
    for question in ("one?", "two?", "three?", "three?"):
        adapter.arrange(LONG[:1], question)
    assert adapter.learn(f"{LONG[0]} one?", report(1)) is None
    assert [adapter.learn(f"{LONG[0]} three?", report(1)) is not None for _ in range(3)] == [True, True, False]


def test_the_request_that_fits_best_is_the_one():
    adapter = Adapter()
    short, long = adapter.arrange(LONG[:2], "Why"), adapter.arrange(LONG[:3], "Why not?")
    adapter.learn("\n".join([*LONG[:3], "Why not?"]), report(1))
    assert (short.sent.prompt_bytes, long.sent.prompt_bytes > 0) == (0, True)


def test_a_report_is_never_booked_on_another_namespace():
    adapter = Adapter()
    for tenant in ("acme", "other"):
        adapter.arrange(LONG[:2], "Why?", namespace=tenant)
    sent = "\n".join([*LONG[:2], "Why?"])
    assert adapter.learn(sent, report(1)) is None
    assert adapter.learn(sent, report(1), namespace="other") == Usage(1000, 1)
    assert adapter.learn(sent, report(1), namespace="other") is None
    assert adapter.learn(sent, report(1)) == Usage(1000, 1)


@pytest.mark.parametrize(
    "text", ["see <|endoftext|> token", "see the </documents> tag", "[2] see", "(given above) not"]
)
def test_blocks_that_were_escaped_are_found_again(text):
    adapter = Adapter()
    prompt = adapter.arrange([text], "Why?")
    assert adapter.learn(prompt.user_message, report(1)) is not None


def test_blank_blocks_fit_no_prompt():
    adapter = Adapter()
    adapter.arrange([" "], "")
    assert adapter.learn("anything", report(1)) is None


@pytest.mark.parametrize("response", [None, {}, {"usage": None}, object(), "text"])
def test_an_answer_without_a_report_leaves_the_request_waiting(response):
    adapter = Adapter()
    adapter.arrange(LONG)
    assert adapter.learn("".join(LONG), response) is None
    assert adapter.learn("".join(LONG), report(5)) == Usage(1000, 5)


@given(st.lists(texts, max_size=4), st.lists(texts, max_size=4))
def test_turns_of_a_conversation(first, second):
    adapter = Adapter()
    talk = adapter.pilot.conversation("c", system="Be brief.")
    sent, prompt = adapter.turn(talk, first, "One?")
    assert sent == prompt.messages()
    talk.answer("1")
    longer, _ = adapter.turn(talk, second, "Two?")
    assert longer[: len(sent)] == sent


def test_a_turn_that_cannot_be_made_is_sent_in_full():
    adapter = Adapter(ContextPilot(max_text=60))
    talk = adapter.pilot.conversation("c", system="Be brief.")
    adapter.turn(talk, ["short"], "One?")
    talk.answer("1")
    adapter.turn(talk, ["never answered"], "Lost?")
    sent, prompt = adapter.turn(talk, (text for text in ("short", LONG[0])), "Two?")
    assert prompt is None
    assert [message["role"] for message in sent] == ["system", "user", "assistant", "user"]
    assert sent[-1]["content"] == f"short\n\n{LONG[0]}\n\nTwo?"
    assert adapter.failures == 1
    talk.answer("2")
    longer, _ = adapter.turn(talk, ["third"], "Three?")
    assert longer[: len(sent)] == sent
    assert longer[-1]["content"].startswith("<documents>\n[2] third")


class Slow(LocalIndexAround):
    """An index elsewhere: it answers when the event loop has had its turn."""

    def align(self, request):
        assert self.asked.wait(30)
        return super().align(request)


@pytest.mark.parametrize("name", ["aarrange", "aturn"])
async def test_an_index_elsewhere_does_not_keep_the_loop_waiting(name):
    index = Slow()
    adapter = Adapter(ContextPilot(index))
    given = (LONG,) if name == "aarrange" else (adapter.pilot.conversation(), LONG)
    answer = asyncio.create_task(getattr(adapter, name)(*given))
    await asyncio.sleep(0.01)
    assert not answer.done()
    index.asked.set()
    assert await answer is not None
    assert adapter.failures == 0


async def test_a_turn_is_the_same_awaited():
    adapter = Adapter()
    one, other = (adapter.pilot.conversation(name) for name in "ab")
    assert adapter.turn(one, LONG, "Why?")[0] == (await adapter.aturn(other, LONG, "Why?"))[0]


@pytest.mark.parametrize("given", [None, 7, [None], [7, "a"]])
def test_a_turn_of_what_is_no_text(given):
    adapter = Adapter()
    sent, prompt = adapter.turn(adapter.pilot.conversation(), given, "Why?")
    assert (sent[-1]["content"][-4:], prompt, adapter.failures) == ("Why?", None, 1)


def test_a_strict_adapter_raises():
    strict = Adapter(ContextPilot(max_text=60, on_error="raise"))
    with pytest.raises(TextTooLong):
        strict.turn(strict.pilot.conversation("c"), LONG, "?")


@given(st.permutations(range(5)))
def test_the_hint_of_an_order(order):
    pilot = ContextPilot(order="throughput", order_hint=True)
    blocks = [f"block {number}" for number in range(5)]
    pilot.align([blocks[rank] for rank in order])
    prompt = pilot.align(blocks)
    assert hint_for(prompt.order) == prompt.order_hint


@given(texts)
def test_labelled_is_what_the_renderer_writes(text):
    prompt = ContextPilot().align([text])
    assert prompt.user_message == f"<documents>\n{labelled(1, text)}\n</documents>"


class Watched(LocalIndex):
    """An index that is elsewhere, of which no call may keep an event loop waiting. It fails, if it is asked to."""

    def __init__(self, fails=False):
        super().__init__()
        self.fails, self.asked, self.on_loop = fails, [], []

    def __getattribute__(self, name):
        if name in {"align", "observe"}:
            object.__getattribute__(self, "note")(name)
        return super().__getattribute__(name)

    def note(self, name):
        self.asked.append(name)
        with contextlib.suppress(RuntimeError):
            asyncio.get_running_loop()
            self.on_loop.append(name)
        if self.fails:
            raise OSError("gone")

    def cache_salt(self, namespace, otherwise, *, ask=False):
        if ask:
            self.note("salt")
        return f"salt of {namespace.tenant}"


class Elsewhere:
    """It is no LocalIndex, so it is one that has to be waited for."""

    def __init__(self, fails=False):
        self.watched = Watched(fails)

    def __getattr__(self, name):
        return getattr(self.watched, name)

    def align(self, request):
        return self.watched.align(request)

    def cache_salt(self, *given, **options):
        return self.watched.cache_salt(*given, **options)


class Awaited(Elsewhere):
    """The same, with a salt that can be awaited."""

    async def acache_salt(self, namespace, otherwise):
        self.watched.asked.append("salt")
        if self.watched.fails:
            raise OSError("gone")
        return f"salt of {namespace.tenant}"


@pytest.mark.parametrize("kind", [Elsewhere, Awaited])
@pytest.mark.parametrize("fails", [False, True])
async def test_an_event_loop_waits_for_no_index(kind, fails):
    index = kind(fails)
    adapter = Adapter(index, namespace="acme")
    prompt = await adapter.aarrange(LONG, "?")
    talk = adapter.pilot.conversation("c1", namespace="acme")
    await adapter.aturn(talk, LONG, "?")
    assert await adapter.aextra_body() == {"cache_salt": "salt of acme"}
    assert await adapter.aextra_body("other") == {"cache_salt": "salt of other"}
    assert await AsyncContextPilot.around(adapter.pilot).extra_body("x") == {"cache_salt": "salt of x"}
    assert await adapter.areport(prompt, report(5)) == Usage(1000, 5)
    assert adapter.report(prompt, report(6)) == Usage(1000, 6)
    await asyncio.get_running_loop().shutdown_default_executor()
    assert index.watched.on_loop == []
    assert sorted(index.watched.asked) == ["align"] * 2 + ["observe"] * 2 + ["salt"] * 3
    assert adapter.failures == 7 * fails


async def test_who_was_asked_for_an_order_in_vain_is_not_asked_for_the_salt():
    index = Elsewhere(fails=True)
    adapter = Adapter(index, namespace="acme")
    prompt = await adapter.aarrange(LONG, "?")
    assert await adapter.aextra_body(None, prompt) == adapter.extra_body(None, prompt) == {"cache_salt": "salt of acme"}
    assert index.watched.asked == ["align"]


async def test_a_salt_that_is_not_told_is_raised_where_it_is_asked_for():
    for kind in (Elsewhere, Awaited):
        with pytest.raises(IndexFailed):
            await AsyncContextPilot(kind(fails=True), on_error="raise").extra_body()


def test_nothing_reported_and_nothing_known_leaves_the_request_under_way():
    adapter = Adapter()
    adapter.arrange(LONG[:1], "Why?")
    assert adapter.learn(f"{LONG[0]} Why?", {}) is None
    assert adapter.learn(f"{LONG[0]} Why?", report(4)) == Usage(1000, 4)
