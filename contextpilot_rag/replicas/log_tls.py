"""TLS to the log's server, made of what its address says."""

from __future__ import annotations

import ssl

from ..errors import SettingsError
from .address import LogTls


def client_context(tls: LogTls) -> ssl.SSLContext:
    """What TLS is to be like.

    Raises:
        SettingsError: a file cannot be used.
    """
    try:
        context = ssl.create_default_context(cafile=tls.ca_certs)
    except (OSError, ValueError) as error:
        raise SettingsError(f"ssl_ca_certs={tls.ca_certs}: cannot be used: {error}") from None
    if not tls.verify or not tls.check_hostname:
        context.check_hostname = False
    if not tls.verify:
        context.verify_mode = ssl.CERT_NONE
    if tls.certfile is not None:
        try:
            context.load_cert_chain(tls.certfile, tls.keyfile, password=lambda: "")  # else it would ask at the terminal
        except (OSError, ValueError) as error:
            named = f"ssl_certfile={tls.certfile} ssl_keyfile={tls.keyfile or tls.certfile}"
            raise SettingsError(f"{named}: cannot be used: {error}") from None
    return context
