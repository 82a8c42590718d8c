"""Apart: work on large bodies in a thread, so that others need not wait for it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from typing_extensions import ParamSpec

    P = ParamSpec("P")
T = TypeVar("T")
_LARGE = 256 * 2**10  # bytes, or characters


async def apart(size: int, work: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """The result of some work; of a large body, in a thread.

    Args:
        size: of what is worked on.
        work: is to be done.
        *args: for it.
        **kwargs: for it.
    """
    if size < _LARGE:
        return work(*args, **kwargs)
    return await asyncio.to_thread(work, *args, **kwargs)
