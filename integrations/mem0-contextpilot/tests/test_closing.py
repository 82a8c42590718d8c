"""with: the memory is entered and left, or closed if it is no context manager."""

from __future__ import annotations

from mem0_contextpilot import AsyncContextPilotMemory, ContextPilotMemory

from .stage import Notes, reply


class Recording(Notes):
    def __init__(self):
        super().__init__(reply("tea"))
        self.told = []

    def close(self):
        self.told.append("close")


class Entered(Recording):
    def __enter__(self):
        self.told.append("enter")
        return self

    def __exit__(self, *error):
        self.told.append("exit")
        return True  # and swallows the error

    async def __aenter__(self):
        return self.__enter__()

    async def __aexit__(self, *error):
        return self.__exit__(*error)


class ClosedLater(Recording):
    async def close(self):
        self.told.append("close")


def test_a_memory():
    for memory, told in ((Entered(), ["enter", "exit"]), (Recording(), ["close"])):
        with ContextPilotMemory(memory) as same:
            assert isinstance(same, ContextPilotMemory)
        assert memory.told == told
    with ContextPilotMemory(Entered()):
        raise ValueError("swallowed by the memory")


async def test_an_async_memory():
    for memory, told in ((Entered(), ["enter", "exit"]), (Recording(), ["close"]), (ClosedLater(), ["close"])):
        async with AsyncContextPilotMemory(memory) as same:
            assert isinstance(same, AsyncContextPilotMemory)
        assert memory.told == told
    async with AsyncContextPilotMemory(Notes(reply("tea"))):
        pass
