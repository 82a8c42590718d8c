"""Many threads share one memory, one pilot and a few conversations."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

from contextpilot_rag.errors import InputError

from mem0_contextpilot import ContextPilotMemory, ContextPilotReranker

from .stage import LONG, item


class Turning:
    """A memory that ranks a user's texts differently for each query. Thread-safe."""

    def search(self, query, *, filters):
        turned = int(query) % len(LONG)
        user = filters["user_id"]
        texts = [f"{text} {user}" for text in [*LONG[turned:], *LONG[:turned]]]
        return {"results": [item(text.split()[0], text, user_id=user) for text in texts]}


def test_nothing_is_mixed_up_or_lost():
    memory = ContextPilotMemory(Turning(), order="throughput")
    reranker = ContextPilotReranker(memory.pilot)

    def one(number):
        user = f"user-{number % 3}"
        found = memory.search(str(number), user_id=user)["results"]
        assert {one["memory"] for one in found} == {f"{text} {user}" for text in LONG}
        assert len(reranker.rerank("?", found)) == len(found)
        context = memory.context(str(number), user_id=user, conversation=number % 2)
        sent = "\n".join(message["content"] for message in context.messages())
        assert all(f"{text} {user}" in sent for text in LONG)
        assert f"user-{(number + 1) % 3}" not in sent
        context.observe({"usage": {"prompt_tokens": 1000, "prompt_tokens_details": {"cached_tokens": 16}}})
        if number % 5 == 0:
            with suppress(InputError):  # another thread's turn took this one's place
                context.answer("yes")
        return len(context.labels)

    with ThreadPoolExecutor(8) as threads:
        counts = list(threads.map(one, range(200)))
    assert counts == [len(LONG)] * 200
    assert memory.failures == 0
