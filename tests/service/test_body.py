"""A body in pieces is put together as they come, and is in memory once."""

from __future__ import annotations

import tracemalloc

import pytest

from contextpilot_rag.service.body import read
from contextpilot_rag.service.problems import Malformed, TooLarge

PIECE = 2**16


def pieces(number):
    left = iter(range(number - 1, -1, -1))

    async def receive():
        return {"type": "http.request", "body": bytes([97 + number % 7]) * PIECE, "more_body": next(left) > 0}

    return receive


async def test_a_long_body_is_in_memory_once():
    size = 256 * PIECE
    tracemalloc.start()
    try:
        body = await read(pieces(256), size, size, 60.0)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(body) == size
    assert most < 1.5 * size


@pytest.mark.parametrize("length", [None, 3 * PIECE])
async def test_what_came_is_what_is_given(length):
    assert await read(pieces(3), length, 3 * PIECE, 60.0) == b"d" * 3 * PIECE
    with pytest.raises(TooLarge):
        await read(pieces(3), None, 3 * PIECE - 1, 60.0)
    with pytest.raises(Malformed):
        await read(pieces(3), 3 * PIECE + 1, 4 * PIECE, 60.0)
