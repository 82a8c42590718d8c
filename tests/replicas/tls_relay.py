"""TLS in front of a server that knows none, as stunnel does it."""

from __future__ import annotations

import ssl
from os import PathLike

from .relay import Relay


class TlsRelay(Relay):
    """A relay that its clients speak TLS to. For faults of the network, put a `Link` before or behind it.

    Args:
        target_port: The server's port.
        certificate: Its certificate's file.
        key: The file of the certificate's key.
        client_ca: Clients have to show a certificate that this file vouches for; none if not given.
    """

    scheme = "rediss"

    def __init__(
        self,
        target_port: int,
        certificate: str | PathLike[str],
        key: str | PathLike[str],
        client_ca: str | PathLike[str] | None = None,
    ) -> None:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(certificate, key)
        if client_ca is not None:
            context.load_verify_locations(client_ca)
            context.verify_mode = ssl.CERT_REQUIRED
        super().__init__(target_port, context=context)
