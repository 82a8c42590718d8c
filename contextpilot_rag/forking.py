"""Forking: what threads of the parent held at the moment of a fork, nobody gives back in the child.

`os.fork` copies locks as they are, but only the thread that forks. So whoever has locks has them renewed here, and
makes whole what another thread was in the middle of. Without a fork that costs a weak reference for each owner.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, Protocol, TypeVar
from weakref import WeakKeyDictionary

OwnerT = TypeVar("OwnerT")


class AnyLock(Protocol):
    """A lock, also one that may be taken several times by the thread that has it."""

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """Take it."""
        ...


_owners: WeakKeyDictionary[Any, Callable[[Any], None]] = WeakKeyDictionary()


def after_fork(owner: OwnerT, renew: Callable[[OwnerT], None]) -> None:
    """Have an object made usable in each forked child, before the child goes on; as long as the object lives.

    Args:
        owner: is not kept alive.
        renew: is called with it: gives it new locks. A function, or a method of the class and not of the object.
    """
    _owners[owner] = renew


def was_held(lock: AnyLock) -> bool:
    """In a forked child: whether a thread that is not here any more held a lock, so that its work is half done."""
    return not lock.acquire(blocking=False)


def _renew_all() -> None:
    for owner, renew in list(_owners.items()):
        renew(owner)


if hasattr(os, "register_at_fork"):  # where processes cannot fork, there is nothing to do
    os.register_at_fork(after_in_child=_renew_all)
