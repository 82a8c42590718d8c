"""Bodies: whole or in part, and never waited for without end."""

import asyncio

import pytest

from contextpilot_rag.proxy.bodies import Patience, beginning, piece
from contextpilot_rag.proxy.problems import TooSlow
from contextpilot_rag.service.body import ClientGoneError


def pieces(*parts, more=False, gone=False, waits=False):
    """What `receive` gives of a body."""
    messages = [{"type": "http.request", "body": part, "more_body": True} for part in parts]
    if messages and not more:
        messages[-1]["more_body"] = False
    if gone:
        messages.append({"type": "http.disconnect"})
    left = iter(messages)

    async def receive():
        message = next(left, None)
        if message is None:
            assert waits, "more was asked for than there is"
            await asyncio.Event().wait()
        return message

    return receive


async def test_a_body_is_joined_up_to_its_end():
    assert await beginning(pieces(b"ab", b"", b"c"), 3, 5) == (b"abc", False)
    assert await beginning(pieces(b"abc"), 3, 5) == (b"abc", False)


async def test_what_is_longer_is_read_one_piece_further_and_no_more():
    receive = pieces(b"ab", b"cd", b"ef", more=True)
    assert await beginning(receive, 3, 5) == (b"abcd", True)
    assert await piece(receive, 5) == (b"ef", True)


async def test_the_end_is_waited_for_where_only_that_is_missing():
    assert await beginning(pieces(b"abc", b""), 3, 5) == (b"abc", False)


async def test_a_client_that_goes_away_ends_it():
    with pytest.raises(ClientGoneError):
        await beginning(pieces(b"ab", more=True, gone=True), 10, 5)


async def test_a_client_that_sends_nothing_more_ends_it():
    with pytest.raises(TooSlow):
        await beginning(pieces(b"ab", more=True, waits=True), 10, 0.01)


async def test_who_is_cancelled_is_cancelled_and_not_late():
    async def wait():
        with Patience(30):
            await asyncio.Event().wait()

    task = asyncio.ensure_future(wait())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
