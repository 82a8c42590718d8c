"""FileGate: who may ask, from a file of keys that is looked at again and again."""

from __future__ import annotations

import asyncio
import hmac
import logging
import os
import re
import secrets
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ..errors import SettingsError
from . import keyfile
from .audit import audit
from .auth import Caller, Gate, OpenGate, shown_key
from .core import Service
from .heads import is_loopback_address
from .keyfile import KEY, KeyFile, sha256_of
from .problems import Unauthorized
from .settings import ServiceSettings

logger = logging.getLogger("contextpilot_rag.service")

_MOUNTS = Path("/proc/self/mountinfo")
_Looks = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _InForce:
    """What the file said when it was last in order. Replaced as a whole."""

    callers: Mapping[str, tuple[bytes, Caller]]
    sharing: Mapping[str, frozenset[str]]
    tenants: frozenset[str]


class FileGate:
    """Knows callers by the keys of a file.

    A changed file that is in order counts at once; one that is not (or is gone) is logged, once, and the one before
    stays in force.

    Args:
        path: the file of keys.

    Raises:
        SettingsError: it cannot be used; the message says why and where.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._nobody = (secrets.token_bytes(32), Caller())  # compared with where there is no such id
        content, status = keyfile.read(path)
        self._looks: _Looks | None = _looks(status)
        self._in_force = _in_force(content)

    @property
    def sharing(self) -> Mapping[str, frozenset[str]]:
        """Corpora that several tenants share, and which."""
        return self._in_force.sharing

    @property
    def tenants(self) -> frozenset[str] | None:
        """All tenants of the file."""
        return self._in_force.tenants

    def identify(self, authorization: str | None) -> Caller:
        """Who sent this header. An id that is not known takes as long as one that is.

        Raises:
            Unauthorized: there is no key, or none that is known; which of these, it does not say.
        """
        key = shown_key(authorization) or ""
        form = KEY.fullmatch(key)
        digest, caller = self._in_force.callers.get(form[1], self._nobody) if form else self._nobody
        same = hmac.compare_digest(sha256_of(key if form else ""), digest)
        if not same or not form:
            raise Unauthorized("give a key that is known: Authorization: Bearer KEY, or Basic with the key as password")
        return caller

    def reload(self, *, force: bool = False) -> bool:
        """Look whether the file is another now; True: it is in force. Never raises; may be called in any thread."""
        try:
            looks = _looks(self._path.stat())
        except OSError:
            looks = None
        if looks == self._looks and not force:
            return False
        self._looks = looks
        try:
            content, status = keyfile.read(self._path)
        except SettingsError as error:
            logger.error("%s; the keys from before stay in force", error)  # noqa: TRY400  it says all there is
            return False
        self._looks = _looks(status)
        before, after = self._in_force, _in_force(content)
        self._in_force = after
        audit(
            "keys reloaded",
            None,
            keys_added=after.callers.keys() - before.callers.keys(),
            keys_removed=before.callers.keys() - after.callers.keys(),
            tenants_removed=before.tenants - after.tenants,
            shared=sorted(after.sharing),
            result="done",
        )
        return True


def gate_from(settings: ServiceSettings) -> Gate:
    """The gate that the settings ask for.

    Raises:
        SettingsError: its file cannot be used.
    """
    if settings.keys is None:
        return OpenGate()
    if not settings.tls_certificate and settings.host != "localhost" and not is_loopback_address(settings.host):
        logger.warning("on %s keys can be read on their way, unless something in front speaks TLS", settings.host)
    if is_mounted(settings.keys):
        logger.warning(
            "%s is mounted as a file: it stays as it is now when `keys` puts a new one in its place; mount its folder",
            settings.keys,
        )
    return FileGate(settings.keys)


def is_mounted(path: Path) -> bool:
    """Whether a file is mounted by itself, as containers do: what replaces it outside is not seen here."""
    real = path.resolve()
    try:
        mounts = _MOUNTS.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:  # another system than Linux
        return os.path.ismount(real)
    escaped = re.sub(r"[ \t\n\\]", lambda found: f"\\{ord(found[0]):03o}", str(real))
    return any(line.split(" ")[4:5] == [escaped] for line in mounts)


def enforce(gate: Gate, service: Service) -> None:
    """Let the service hold what the gate says: who shares what, and nothing of tenants that are no more."""
    service.share(gate.sharing)
    if gate.tenants is not None:
        gone = {name for kind, name in service.pools() if kind == "tenant"} | service.tenants.keys()
        service.drop(sorted(gone - gate.tenants))


class KeyWatch:
    """A part of the service: looks at the gate's file again and again, and enforces what it says.

    It starts after whatever brings back what the service held before: that may be of tenants that are no more.

    Args:
        gate: who may ask.
        service: what is held; None: nothing that the gate has to say something of.
        seconds: between two looks.
        regrouped: called when what the gate says has changed, and is enforced.
    """

    def __init__(
        self,
        gate: Gate,
        service: Service | None,
        seconds: float = 2.0,
        regrouped: Callable[[], object] = lambda: None,
    ) -> None:
        self._regrouped = regrouped
        self._gate = gate
        self._service = service
        self._seconds = seconds
        self._forced = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Enforce what is in force, and begin to look."""
        self._enforce()
        if self._gate.tenants is not None:
            self._task = asyncio.create_task(self._look())

    async def stop(self) -> None:
        """Look no more."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
            self._task = None

    def reload(self) -> None:
        """Read the file now, even if it looks as before."""
        self._forced.set()

    def _enforce(self) -> None:
        if self._service is not None:
            enforce(self._gate, self._service)

    async def _look(self) -> None:
        while True:
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._forced.wait(), self._seconds)
            force = self._forced.is_set()
            self._forced.clear()
            try:
                changed = await asyncio.to_thread(self._gate.reload, force=force)  # files may be slow: nobody waits
                self._enforce()
                if changed:
                    self._regrouped()
            except Exception:
                logger.exception("looking at the file of keys failed; it is tried again")


def _looks(status: os.stat_result) -> _Looks:
    return status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino, status.st_mode


def _in_force(content: KeyFile) -> _InForce:
    callers = {
        key.id: (bytes.fromhex(key.sha256), Caller(name, tenant.operator, tenant.rate, key.id))
        for name, tenant in content.tenants.items()
        for key in tenant.keys
    }
    sharing = {corpus: frozenset(members) for corpus, members in content.shared_corpora.items()}
    return _InForce(callers, sharing, frozenset(content.tenants))
