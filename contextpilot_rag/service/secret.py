"""What cache salts are derived with: given, or made once and kept in the state folder."""

from __future__ import annotations

import logging
import os
import re
import secrets
import stat
from contextlib import suppress
from pathlib import Path

from ..errors import SettingsError
from ..identity import warn_of_short_secret
from .settings import PREFIX, ServiceSettings

logger = logging.getLogger("contextpilot_rag.service")

_NAME = "secret"
_FORM = re.compile(r"[A-Za-z0-9_-]{43}")


def secret_of(settings: ServiceSettings) -> str:
    """The secret that the settings ask for.

    Replicas have the same. Where none is given, and no keys are asked for, that is none: then whoever knows a namespace
    can compute its salt, and whoever reaches the log's server can write into it.

    With neither a secret nor a state folder it is one for this process: its prompts share nothing in the engine's cache
    with those of a later one.

    Raises:
        SettingsError: the state folder cannot be used, or what is kept there is no secret, or no secret from others.
    """
    if settings.salt_secret:
        warn_of_short_secret(settings.salt_secret)
        return settings.salt_secret
    if settings.replicate:
        logger.warning(
            "replicas without a secret: whoever can write to the log's server can have them believe anything of what "
            "is cached; give all of them the same %sSALT_SECRET",
            PREFIX,
        )
        return ""
    if settings.state is None:
        return secrets.token_urlsafe(32)
    path = settings.state / _NAME
    try:
        settings.state.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not path.exists():
            _make(path)
        status = path.stat()
        if stat.S_ISREG(status.st_mode) and status.st_mode & (stat.S_IROTH | stat.S_IWOTH) and os.name == "posix":
            raise SettingsError(f"{path}: everybody may read or write the secret of the cache salts; chmod 600 {path}")
        with path.open("rb") as file:
            kept = file.read(100).decode("ascii", "replace").strip()
    except OSError as error:
        raise SettingsError(f"--state {error.filename or settings.state}: {error.strerror or error}") from None
    if not _FORM.fullmatch(kept):
        raise SettingsError(f"{path}: this is not the secret that was made here; remove it to have a new one made")
    return kept


def _make(path: Path) -> None:
    """Make it in one step: another process sees it whole or not at all, and all processes see the same."""
    new = path.with_name(f"{path.name}.{secrets.token_hex(8)}")
    try:
        descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(secrets.token_urlsafe(32).encode("ascii"))
            file.flush()
            os.fsync(file.fileno())
        with suppress(FileExistsError):  # somebody was faster: theirs counts
            os.link(new, path)
    finally:
        new.unlink(missing_ok=True)
