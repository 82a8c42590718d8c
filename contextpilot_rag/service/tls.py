"""TLS: the service's certificate and key, which may be renewed while it runs."""

from __future__ import annotations

import logging
import ssl
from pathlib import Path

from ..errors import SettingsError

logger = logging.getLogger("contextpilot_rag")


class Tls:
    """A certificate in force.

    Args:
        certificate: PEM file.
        key: PEM file.

    Raises:
        SettingsError: they cannot be used.
    """

    def __init__(self, certificate: Path, key: Path) -> None:
        self._files = (certificate, key)
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.minimum_version = ssl.TLSVersion.TLSv1_2
        self._load()

    @classmethod
    def of(cls, certificate: Path | None, key: Path | None) -> Tls | None:
        """What settings ask for; None: no TLS.

        Raises:
            SettingsError: the files cannot be used.
        """
        return None if certificate is None or key is None else cls(certificate, key)

    def reload(self) -> None:
        """Take the files as they are now for connections to come; if they cannot be used, those from before."""
        try:
            self._load()
        except SettingsError as error:
            logger.error("%s; the certificate from before stays in force", error)  # noqa: TRY400  it says all there is

    def _load(self) -> None:
        certificate, key = self._files
        try:
            # A trial first: a key that does not belong to its certificate would leave the context with neither.
            for context in (ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), self.context):
                context.load_cert_chain(certificate, key, password=lambda: "")  # else it would ask at the terminal
        except (OSError, ValueError) as error:
            raise SettingsError(f"--tls-certificate {certificate} --tls-key {key}: cannot be used: {error}") from None
