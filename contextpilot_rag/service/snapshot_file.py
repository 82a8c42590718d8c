"""The file of a snapshot: written whole or not at all, and checked before anything in it is believed.

A head (what it is, in which version, how long, and a checksum), and then frames: each a length and a message.
"""

from __future__ import annotations

import hashlib
import os
import struct
from collections.abc import Iterator
from pathlib import Path

from ..errors import StateError

VERSION = 1

_MAGIC = b"contextpilot-rag snapshot\n"
_HEAD = struct.Struct(f">{len(_MAGIC)}sHQ32s")
_LENGTH = struct.Struct(">I")


class SnapshotWriter:
    """Writes a snapshot beside the one that is there, and puts it in its place at the end. May be slow: for a thread.

    Args:
        path: where it is to stand.

    Raises:
        OSError: it cannot be written; so do all methods. The one that is there stays.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._new = path.with_name(path.name + ".new")
        self._sum = hashlib.blake2b(digest_size=32)
        self._length = 0
        self._new.unlink(missing_ok=True)  # left over from a process that was killed
        descriptor = os.open(self._new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        self._file = os.fdopen(descriptor, "wb")  # closed by `finish` or `abandon`
        self._file.write(bytes(_HEAD.size))

    def write(self, frames: bytes | bytearray) -> None:
        """Add frames."""
        self._sum.update(frames)
        self._length += len(frames)
        self._file.write(frames)

    def finish(self) -> None:
        """Put the file in its place, so that it is there even after the machine has lost its power."""
        self._file.seek(0)
        self._file.write(_HEAD.pack(_MAGIC, VERSION, self._length, self._sum.digest()))
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        self._new.replace(self._path)
        sync_folder(self._path.parent)

    def abandon(self) -> None:
        """Leave what was there as it was. Does not raise."""
        try:
            self._file.close()
            self._new.unlink(missing_ok=True)
        except OSError:
            return  # the next one tries again


def frame(message: bytes) -> bytes:
    """A message as a frame."""
    return _LENGTH.pack(len(message)) + message


def read(path: Path) -> list[memoryview]:
    """The messages of a snapshot.

    Raises:
        FileNotFoundError: there is none.
        OSError: it cannot be read.
        StateError: it is damaged, or of another version.
    """
    if not path.is_file() and path.exists():
        raise StateError("it is no file")
    raw = memoryview(path.read_bytes())
    if len(raw) < _HEAD.size or bytes(raw[: len(_MAGIC)]) != _MAGIC:
        raise StateError("it does not begin as a snapshot does")
    _, version, length, digest = _HEAD.unpack(raw[: _HEAD.size])
    if version != VERSION:
        raise StateError(f"it is of version {version}, and this service reads version {VERSION}")
    body = raw[_HEAD.size :]
    if len(body) != length:
        raise StateError(f"it has {len(body)} bytes where there should be {length}")
    if hashlib.blake2b(body, digest_size=32).digest() != digest:
        raise StateError("its checksum is wrong")
    return list(_frames(body))


def _frames(body: memoryview) -> Iterator[memoryview]:
    start = 0
    while start < len(body):
        if start + _LENGTH.size > len(body):
            raise StateError("its last message is cut off")
        (length,) = _LENGTH.unpack_from(body, start)
        start += _LENGTH.size
        if start + length > len(body):
            raise StateError("its last message is cut off")
        yield body[start : start + length]
        start += length


def sync_folder(folder: Path) -> None:
    """Have a folder's names written to disk, where the system can."""
    if os.name != "posix":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
