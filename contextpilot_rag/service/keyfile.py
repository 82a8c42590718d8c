"""The file of API keys: what stands in it, how it is read and changed. Keys themselves never stand in it.

A key is ``cpk_`` + its public id + ``_`` + 43 characters from 256 random bits. Of these the file has a plain SHA-256: a
slow hash is there for passwords that can be guessed one after another; nobody gets through 2**256, and a slow hash at
each request would only be a way to keep the service busy.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
import secrets
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime, timezone
from pathlib import Path
from typing import Annotated, Any, NoReturn

import msgspec
from msgspec import Meta, Struct, field

from ..checking import in_words
from ..errors import SettingsError
from ..types import short

logger = logging.getLogger("contextpilot_rag.service")

KEY = re.compile(r"cpk_([A-Za-z0-9]{1,32})_[A-Za-z0-9_-]{43}")
_MOST_BYTES = 64 * 2**20

# Names stand in logs, in files and in what operators see; no line breaks or the like.
Name = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=256,
        pattern=r"^[^\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]*$(?!\n)",
        description="A name without control characters.",
    ),
]
KeyId = Annotated[str, Meta(pattern=r"^[A-Za-z0-9]{1,32}$(?!\n)", description="1 to 32 letters or digits.")]
Sha256 = Annotated[str, Meta(pattern=r"^[0-9a-f]{64}$(?!\n)", description="64 lower-case hexadecimal digits.")]


class KeyEntry(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """One key: its public id and its hash."""

    id: KeyId
    sha256: Sha256
    created: datetime | None = None
    note: Annotated[str, Meta(max_length=1_024)] = ""


class TenantEntry(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """One tenant. Without keys it cannot ask, and yet keeps what is its own."""

    keys: list[KeyEntry] = field(default_factory=list)
    operator: bool = False
    rate: Annotated[float, Meta(ge=0, le=10**9)] | None = None


class KeyFile(Struct, forbid_unknown_fields=True):
    """All of it."""

    tenants: dict[Name, TenantEntry] = field(default_factory=dict)
    shared_corpora: dict[Name, Annotated[list[Name], Meta(min_length=1)]] = field(default_factory=dict)

    def ids(self) -> set[str]:
        """Of all keys."""
        return {key.id for tenant in self.tenants.values() for key in tenant.keys}


def sha256_of(key: str) -> bytes:
    """What is kept of a key, and compared."""
    return hashlib.sha256(key.encode("ascii")).digest()


def new_key(note: str = "") -> tuple[str, KeyEntry]:
    """A key, and what stands in the file of it."""
    name = secrets.token_hex(6)
    key = f"cpk_{name}_{secrets.token_urlsafe(32)}"
    now = datetime.now(timezone.utc).replace(microsecond=0)
    return key, KeyEntry(name, sha256_of(key).hex(), now, note)


def read(path: Path) -> tuple[KeyFile, os.stat_result]:
    """The file, checked, and what it looked like before it was read.

    Raises:
        SettingsError: it cannot be read, others may write to it, or it is not of this form; the message says where.
    """
    try:
        with open(_opened(path), "rb") as file:
            status = os.fstat(file.fileno())
            _check_mode(path, status)
            raw = file.read(_MOST_BYTES + 1)
    except OSError as error:
        raise SettingsError(f"{path}: the file of keys cannot be read: {error.strerror or error}") from None
    if len(raw) > _MOST_BYTES:
        raise SettingsError(f"{path}: more than {_MOST_BYTES} bytes is no file of keys")
    return decode(raw, str(path)), status


def decode(raw: bytes, where: str) -> KeyFile:
    """What stands in it.

    Raises:
        SettingsError: it is not of this form; the message says where, and shows no value.
    """
    try:
        plain = json.loads(raw.decode("utf-8"), object_pairs_hook=_each_once, parse_constant=_no_number)
    except (ValueError, RecursionError) as error:
        raise SettingsError(f"{where}: no file of keys: {error}") from None
    try:
        content = msgspec.convert(plain, KeyFile)
    except msgspec.ValidationError as error:
        raise SettingsError(f"{where}: no file of keys: {_told(plain, error)}") from None
    owner: dict[str, str] = {}
    for name, tenant in content.tenants.items():
        for key in tenant.keys:
            if key.id in owner:
                raise SettingsError(f"{where}: two keys have the id {key.id} (of {owner[key.id]!r} and {name!r})")
            owner[key.id] = name
    for corpus, members in content.shared_corpora.items():
        for member in members:
            if member not in content.tenants:
                raise SettingsError(f"{where}: shared_corpora.{corpus}: {member!r} is no tenant")
    return content


@contextmanager
def changing(path: Path, *, create: bool = False, first: Callable[[], None] | None = None) -> Iterator[KeyFile]:
    """Change the file: what is made of the content inside is written, all at once, if nothing is raised.

    Two that change it at a time wait for each other; the service sees the old file or the new one, nothing between.

    Args:
        path: the file.
        create: it need not be there yet.
        first: done when all is checked and before it is written; if it raises, nothing is.

    Raises:
        SettingsError: it cannot be read or written, or would not be of its form.
    """
    path = path.resolve()
    held = _lock(path, create=create)
    try:
        content, status = (KeyFile(), None) if held is None else read(path)
        yield content
        try:
            raw = msgspec.json.format(msgspec.json.encode(content), indent=1) + b"\n"
        except UnicodeEncodeError:
            raise SettingsError(f"{path}: a name or note that is no valid text") from None
        decode(raw, f"{path}, changed like this")
        if first is not None:
            first()
        _write(path, raw, status)
    finally:
        if held is not None:
            os.close(held)


def _opened(path: Path) -> int:
    """Open for reading; what is a pipe does not make us wait for a writer."""
    return os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))


def _lock(path: Path, *, create: bool) -> int | None:
    """Hold the file that stands there now; None: there is none yet."""
    while True:
        try:
            held = _opened(path)
        except FileNotFoundError:
            if create:
                return None
            raise SettingsError(f"{path}: there is no such file of keys") from None
        except OSError as error:
            raise SettingsError(f"{path}: the file of keys cannot be read: {error.strerror or error}") from None
        if sys.platform == "win32":
            return held
        import fcntl

        fcntl.flock(held, fcntl.LOCK_EX)
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(held), path.stat()):
                return held
        os.close(held)  # while we waited, somebody else put a new file in its place


def _write(path: Path, raw: bytes, before: os.stat_result | None) -> None:
    """For the owner alone, or, as it was, for a group to read; whole, or not at all."""
    new = path.with_name(f".{path.name}.{secrets.token_hex(4)}.new")
    try:
        descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            with open(descriptor, "wb") as file:  # noqa: PTH123  a descriptor
                file.write(raw)
                file.flush()
                os.fsync(file.fileno())
                if before is not None and sys.platform != "win32":
                    os.fchown(file.fileno(), before.st_uid, before.st_gid)
                    os.fchmod(file.fileno(), 0o600 | before.st_mode & stat.S_IRGRP)
            if before is None:
                _place_first(new, path)
            else:
                new.replace(path)
        finally:
            new.unlink(missing_ok=True)
    except OSError as error:
        raise SettingsError(f"{path}: the file of keys cannot be written: {error.strerror or error}") from None


def _place_first(new: Path, path: Path) -> None:
    """Fails if somebody else was first: their keys are not to be lost."""
    if sys.platform == "win32":
        new.rename(path)
    else:
        os.link(new, path)


def _check_mode(path: Path, status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise SettingsError(f"{path}: the file of keys is no regular file")
    if sys.platform == "win32":
        return
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise SettingsError(f"{path}: others than its owner may write to the file of keys; chmod go-w {path}")
    if status.st_mode & stat.S_IROTH:
        logger.warning("%s: everybody may read the file of keys; chmod o-r %s", path, path)


def _told(plain: Any, error: msgspec.ValidationError) -> str:  # noqa: ANN401
    """The error, with the tenant's name if it is about one: msgspec does not say which."""
    tenants = plain.get("tenants") if isinstance(plain, dict) else None
    for name, tenant in tenants.items() if isinstance(tenants, dict) else ():
        try:
            msgspec.convert({name: tenant}, dict[Name, TenantEntry])
        except msgspec.ValidationError as inner:
            return f"tenant {short(name)}: {in_words(str(inner), (Name, KeyId, Sha256))}"
    return in_words(str(error), (Name, KeyId, Sha256))


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise ValueError(f"{name!r} stands twice")
        found[name] = value
    return found


def _no_number(text: str) -> NoReturn:
    raise ValueError(f"{text} is no number")
