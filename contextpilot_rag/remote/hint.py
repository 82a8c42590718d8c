"""Hint: the most likely mistake in an address is its scheme, and what is said of it by libraries tells nobody."""

from __future__ import annotations

import ssl

import httpcore

HTTPS = "; does it speak https?"
HTTP = "; does it speak http, without the s?"
_NO_TLS = frozenset(
    {
        "HTTP_REQUEST",
        "PACKET_LENGTH_TOO_LONG",
        "RECORD_LAYER_FAILURE",
        "UNEXPECTED_EOF_WHILE_READING",
        "UNKNOWN_PROTOCOL",
        "WRONG_VERSION_NUMBER",
    }
)
# What httpcore says where nothing came, and h11 of a first byte that is none of HTTP, such as that of a TLS alert.
_UNREAD = ("Server disconnected", "illegal request line")


def scheme_hint(error: Exception, tls: bool) -> str:
    """What to add to what is said of a connection that failed; nothing where the scheme is not to blame.

    Args:
        error: what was raised.
        tls: whether it was tried with https.

    >>> scheme_hint(ConnectionResetError(), tls=False)
    '; does it speak https?'
    >>> scheme_hint(ConnectionRefusedError(), tls=False)
    ''
    """
    if tls:
        return HTTP if isinstance(error, ssl.SSLError) and error.reason in _NO_TLS else ""
    unread = isinstance(error, httpcore.RemoteProtocolError) and str(error).startswith(_UNREAD)
    return HTTPS if unread or isinstance(error, ConnectionResetError) else ""
