"""Several engines behind one proxy: who begins alike meets, conversations stay, and one that is gone is not missed."""

from __future__ import annotations

import asyncio
import threading

import openai
import pytest

from contextpilot_rag.proxy.rewriting import Call
from contextpilot_rag.settings import Settings
from contextpilot_rag.testing import FakeEngine
from tests.proxy.clients import SYSTEM, TEXTS, documents
from tests.proxy.running import living

from .test_rewriter import Sent, body


def ask(client, *messages, **options):
    system = {"role": "system", "content": SYSTEM}
    raw = client.chat.completions.with_raw_response.create(model="m", messages=[system, *messages], **options)
    return raw.headers["x-contextpilot-upstream"], raw.parse()


def user(content):
    return {"role": "user", "content": content}


def test_requests_go_where_their_documents_are_and_conversations_stay_there():
    with FakeEngine() as one, FakeEngine() as two:
        upstreams = f"{one.base_url} name=one, {two.base_url} name=two"
        with living(upstreams=upstreams, chosen=Settings(min_gain=0)) as proxy:
            client = openai.OpenAI(base_url=f"{proxy.address}/v1", api_key="none", max_retries=0)
            places = {names: ask(client, user(documents(names)))[0] for names in ("ABC", "DEF")}
            for names in ("CBA", "BAC", "FDE", "EFD"):
                assert ask(client, user(documents(names, names)))[0] == places["".join(sorted(names))]
            turns = [user(documents("BCA", "First?"))]
            place, answer = ask(client, *turns)
            for question in ("Second?", "Third?", "Fourth?"):
                turns += [{"role": "assistant", "content": answer.choices[0].message.content}, user(question)]
                went, answer = ask(client, *turns)
                assert went == place
                assert answer.usage.prompt_tokens_details.cached_tokens > 0.8 * answer.usage.prompt_tokens


def test_an_engine_that_is_gone_is_not_missed():
    with FakeEngine() as one:
        with FakeEngine() as two:
            upstreams = f"{one.base_url} name=one, {two.base_url} name=two"
            proxy = living(upstreams=upstreams)
            running = proxy.__enter__()
        try:
            client = openai.OpenAI(base_url=f"{running.address}/v1", api_key="none", max_retries=0)
            assert {ask(client, user(documents("ABC", str(number))))[0] for number in range(6)} == {"one"}
            assert client.models.list().data[0].id == "fake-engine"
        finally:
            proxy.__exit__(None, None, None)


def test_many_at_a_time_are_all_answered_by_either():
    slow = {"prefill_tokens_per_second": 20_000}
    with (
        FakeEngine(**slow) as one,
        FakeEngine(**slow) as two,
        living(upstreams=f"{one.base_url}, {two.base_url}") as proxy,
    ):
        client = openai.OpenAI(base_url=f"{proxy.address}/v1", api_key="none", max_retries=0)
        done: list[str] = []

        def many(number):
            for question in range(5):
                done.append(ask(client, user(documents("ABCDEFGH"[number:] + "AB", str(question))))[0])  # noqa: PERF401

        threads = [threading.Thread(target=many, args=(number,)) for number in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert len(done) == 30
        assert len(set(done)) == 2


@pytest.mark.parametrize("form", ["wrapper", "field"])
def test_requests_that_wait_go_in_the_order_of_what_is_cached(form):
    """Of two that wait, the one whose documents are cached is sent before the one that came first."""
    sent = Sent(window=2, window_seconds=5.0)
    went: list[str] = []

    async def rewritten(names):
        system = {"role": "system", "content": SYSTEM}
        raw = body(system, user(documents(names, names)))
        if form == "field":
            raw = body(system, user(names), contextpilot={"blocks": [TEXTS[name] for name in names]})
        await sent.rewriter.rewrite(Call("chat", raw))
        went.append(names)

    async def all_of_them():
        await sent.rewriter.start()
        waiting = [asyncio.ensure_future(rewritten(names)) for names in ("AB", "CD", "EF")]
        await waiting[0]
        await rewritten("BAH")
        await sent.rewriter.stop()
        await asyncio.gather(*waiting)

    asyncio.run(all_of_them())
    assert went == ["AB", "CD", "BAH", "EF"]
