"""Turns of one conversation at the same time: none is lost, none waits for ever, whatever mixes threads and tasks."""

from __future__ import annotations

import asyncio
import gc
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from contextpilot_rag import expand
from li_support import LONG, Listed, pick
from llama_index.core.llms import MockLLM
from llama_index.core.memory import ChatMemoryBuffer, Memory

from llama_index.postprocessor.contextpilot import ContextPilotChatEngine
from llama_index.postprocessor.contextpilot.guarded import guarded

MEMORIES = {
    "default": lambda: None,
    "memory": lambda: Memory.from_defaults(token_limit=10**9),
    "buffer": lambda: ChatMemoryBuffer.from_defaults(token_limit=10**9),
}


class Recording(MockLLM):
    """Keeps what it was sent; is slow enough for others to get between."""

    def chat(self, messages, **kwargs):
        self.__dict__.setdefault("sent", []).append(list(messages))
        return super().chat(messages, **kwargs)

    async def achat(self, messages, **kwargs):
        await asyncio.sleep(0.005)
        return self.chat(messages, **kwargs)


@pytest.fixture(autouse=True)
def collected():
    """What is left open is collected here, and not in another test."""
    yield
    gc.collect()


@pytest.fixture(params=MEMORIES)
def memory(request):
    return MEMORIES[request.param]()


def chatting(*lists, **options):
    return ContextPilotChatEngine.from_defaults(
        Listed(*(lists or (pick(0),))), llm=Recording(max_tokens=3), system_prompt="Be brief.", **options
    )


def questions(messages):
    return [message.content for message in messages if message.role == "user"]


def is_sound(messages, expected):
    """Each question is followed by its answer, and all are there."""
    assert sorted(questions(messages)) == sorted(expected)
    assert [message.role.value for message in messages] == ["user", "assistant"] * len(expected)


@pytest.mark.parametrize("warm", [False, True])
async def test_tasks(memory, warm):
    chat = chatting(memory=memory)
    asked = [f"q{number}" for number in range(8)]
    if warm:
        await chat.achat("warm")
    await asyncio.gather(*map(chat.achat, asked))
    is_sound(await asyncio.to_thread(lambda: chat.chat_history), [*["warm"] * warm, *asked])


async def test_streams_of_tasks(memory):
    chat = chatting(memory=memory)

    async def ask(question):
        response = await chat.astream_chat(question)
        return [piece async for piece in response.async_response_gen()]

    asked = [f"q{number}" for number in range(4)]
    await asyncio.gather(*map(ask, asked))
    is_sound(await asyncio.to_thread(lambda: chat.chat_history), asked)


def test_threads(memory):
    chat = chatting(memory=memory)
    asked = [f"q{number}" for number in range(12)]
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(chat.chat, asked))
    is_sound(chat.chat_history, asked)


def test_streams_of_threads(memory):
    chat = chatting(memory=memory)
    responses = [chat.stream_chat(f"q{number}") for number in range(4)]
    for response in responses:
        list(response.response_gen)
    is_sound(chat.chat_history, [f"q{number}" for number in range(4)])


def test_event_loops_one_after_another_and_at_once(memory):
    chat = chatting(memory=memory)
    for number in range(3):
        asyncio.run(chat.achat(f"one after another {number}"))
    chat.chat("without")

    async def several(number):
        await asyncio.gather(*(chat.achat(f"at once {number} {place}") for place in range(3)))

    with ThreadPoolExecutor(3) as threads:
        list(threads.map(lambda number: asyncio.run(several(number)), range(3)))
    assert len(questions(chat.chat_history)) == 3 + 1 + 9
    assert len(set(questions(chat.chat_history))) == 13


async def test_blocking_calls_between_tasks():
    """A blocking call inside of an event loop, whose tasks are in the middle of theirs."""
    chat = chatting()
    tasks = [asyncio.create_task(chat.achat(f"task {number}")) for number in range(4)]
    for number in range(6):
        await asyncio.sleep(0.003)
        chat.chat(f"blocking {number}")
        assert len(chat.chat_history) % 2 == 0
    await asyncio.gather(*tasks)
    is_sound(chat.chat_history, [f"task {n}" for n in range(4)] + [f"blocking {n}" for n in range(6)])


async def test_a_memory_that_is_bound_to_an_event_loop_is_never_waited_for_inside_of_it():
    asked, free = asyncio.Event(), asyncio.Event()

    class Bound(ChatMemoryBuffer):
        async def aget_all(self):
            asked.set()
            await free.wait()
            return self.get_all()

    chat = chatting(memory=Bound.from_defaults(token_limit=10**9))
    task = asyncio.create_task(chat.achat("task"))
    await asyncio.wait_for(asked.wait(), 30)
    with pytest.raises(RuntimeError, match="await achat"):
        chat.chat("blocking")
    free.set()
    await asyncio.gather(task, chat.achat("another"))
    await asyncio.to_thread(chat.chat, "thread")
    is_sound(chat.chat_history, ["task", "another", "thread"])


async def test_a_task_that_is_cancelled_leaves_the_memory_free():
    for kind in ("default", "buffer"):
        chat = chatting(memory=MEMORIES[kind]())
        for delay in (0.0, 0.001, 0.004, 0.006, 0.01):
            task = asyncio.create_task(chat.achat("cancelled"))
            await asyncio.sleep(delay)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        await asyncio.wait_for(chat.achat("last"), 5)
        assert questions(chat.chat_history)[-1] == "last"


def test_engines_that_share_a_memory_share_its_lock():
    memory = Memory.from_defaults(token_limit=10**9)
    chats = [chatting(memory=memory) for _ in range(4)]
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda number: chats[number % 4].chat(f"q{number}"), range(8)))
    is_sound(chats[0].chat_history, [f"q{number}" for number in range(8)])
    assert guarded(memory) is guarded(memory) is chats[0]._guarded


def test_histories_that_are_given_at_once_do_not_get_between_each_other():
    chat = chatting()
    chat.chat("seed")
    given = chat.chat_history
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda number: chat.chat(f"q{number}", chat_history=given), range(8)))
    assert questions(chat.chat_history)[0] == "seed"
    for messages in chat._llm.__dict__["sent"]:
        assert len(questions(messages)) == len(set(questions(messages)))


@pytest.mark.parametrize("kind", ["default", "buffer"])
async def test_what_parallel_turns_gave_is_not_pointed_at_where_it_is_ambiguous(kind):
    chat = chatting(pick(0), pick(1), pick(0, 1), pick(1, 0), memory=MEMORIES[kind]())
    await asyncio.gather(chat.achat("One?"), chat.achat("Two?"))  # both call what they have [1]
    await chat.achat("Three?")
    await chat.achat("Four?")
    sent = chat._llm.__dict__["sent"]
    third, fourth = questions(sent[2])[-1], questions(sent[3])[-1]
    assert LONG[0].strip() in third
    assert LONG[1].strip() in third
    assert fourth.count("(given above)") == 2
    restored = expand([{"role": one.role.value, "content": one.content} for one in sent[3]])
    assert all(LONG[place].strip() in restored[-1]["content"] for place in (0, 1))
    assert [one.content for one in sent[3]][: len(sent[2])] == [one.content for one in sent[2]]


def test_reading_the_history_while_others_ask(memory):
    chat, stop, lengths = chatting(memory=memory), threading.Event(), []

    def read():
        while not stop.is_set():
            lengths.append(len(chat.chat_history))

    reader = threading.Thread(target=read)
    reader.start()
    for number in range(6):
        asyncio.run(chat.achat(f"q{number}"))
    stop.set()
    reader.join()
    is_sound(chat.chat_history, [f"q{number}" for number in range(6)])
    assert all(length % 2 == 0 for length in lengths)
