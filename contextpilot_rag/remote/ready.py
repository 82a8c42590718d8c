"""Ready: what a first request needs is loaded before there is one, which would have to wait for it."""

from __future__ import annotations

from contextlib import suppress
from importlib import import_module

# Loaded by others only when they are first used: httpcore's kinds of connection, what anyio (which is httpcore's, for
# whoever awaits) does here and how it does that in asyncio, and the codec of hosts' names.
_LATE = (
    ("httpcore", ("HTTP11Connection", "AsyncHTTP11Connection")),
    ("anyio", ("Event", "Lock", "Semaphore", "fail_after", "CancelScope")),
    ("anyio.lowlevel", ()),
    ("anyio._backends._asyncio", ()),
    ("sniffio", ()),
    ("encodings.idna", ()),
)


def load() -> None:
    """Load all of it that this version of each has."""
    for module, names in _LATE:
        with suppress(ImportError):
            loaded = import_module(module)
            for name in names:
                getattr(loaded, name, None)
