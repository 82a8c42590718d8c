"""Address: where the server of the logs is, checked when it is given, and without the package that connects."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import parse_qsl, unquote, urlsplit

from ..errors import SettingsError
from ..types import short

SCHEMES = {"redis": False, "rediss": True, "valkey": False, "valkeys": True}
"""What an address may begin with, and whether that asks for TLS."""
_PREFIX = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_TRUTH = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
_CERT_REQS = ("required", "none")
_OURS = ("prefix", "cluster")
_TLS = ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile", "ssl_cert_reqs", "ssl_check_hostname")
_ESCAPES = "write / : @ # ? in a password as %2F %3A %40 %23 %3F"
_MOST_DB = 2**31 - 1


@dataclass(frozen=True, slots=True)
class LogTls:
    """How the server is known by, and knows us.

    Args:
        ca_certs: file of certificates that vouch for it; None: those of this machine.
        certfile: file of our own certificate.
        keyfile: of its key; None: it stands in the same file.
        verify: whether its certificate has to be good.
        check_hostname: whether it has to be one for the name that was asked for.
    """

    ca_certs: str | None = None
    certfile: str | None = None
    keyfile: str | None = None
    verify: bool = True
    check_hostname: bool = True


@dataclass(frozen=True, slots=True)
class LogAddress:
    """Where the server is, and as whom it is asked. Neither `str` nor `repr` shows the password.

    Args:
        host: name or number, without brackets.
        port: of TCP.
        user: empty: the default one.
        password: empty: none is given.
        db: the number of the database; most clusters have 0 only.
        prefix: of all keys there.
        cluster: whether it is a cluster; None: the server says so.
        tls: None: without.
    """

    host: str
    port: int = 6379
    user: str = ""
    password: str = field(default="", repr=False)
    db: int = 0
    prefix: str = "contextpilot"
    cluster: bool | None = None
    tls: LogTls | None = None

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'redis' if self.tls is None else 'rediss'}://{host}:{self.port}/{self.db}"


def parse_address(url: str) -> LogAddress:
    """An address from a URL: ``redis://[[USER]:PASSWORD@]HOST[:PORT][/DB]``, ``rediss://`` with TLS, or valkey's names.

    What has a meaning in URLs is written as ``%40`` in users and passwords.

    Raises:
        SettingsError: it is none. The message shows nothing of it that could be a password.

    >>> parse_address("rediss://replica:secret@log.example?prefix=shop").prefix
    'shop'
    >>> parse_address("valkey://:secret@10.0.0.7:7000/2")
    LogAddress(host='10.0.0.7', port=7000, user='', db=2, prefix='contextpilot', cluster=None, tls=None)
    """
    if not isinstance(url, str):
        raise SettingsError(f"the log's address must be a text, not {short(url)}")
    if not (url.isascii() and url.isprintable()) or " " in url:
        raise SettingsError("the log's address must be plain ASCII without blanks")
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        raise SettingsError(f"the log's address is no URL; {_ESCAPES}") from None
    if "@" in parts.path:  # what looks like a host is the beginning of a password
        raise SettingsError(f"the log's address is no URL; {_ESCAPES}")
    if parts.scheme not in SCHEMES or not host:
        known = ", ".join(f"{scheme}://" for scheme in SCHEMES)
        raise SettingsError(f"the log's address must be redis://[USER:PASSWORD@]HOST[:PORT][/DB] ({known})")
    if parts.fragment or "#" in url:
        raise SettingsError("the log's address has a fragment, which means nothing there; write # in a password as %23")
    given = _query(parts.query)
    prefix = given.get("prefix", "contextpilot")
    if not _PREFIX.fullmatch(prefix):
        raise SettingsError("prefix= in the log's address: 1 to 64 letters, digits, and _ . -")
    address = LogAddress(
        host=host,
        port=6379 if port is None else port,
        user=unquote(parts.username or ""),
        password=unquote(parts.password or ""),
        db=_db(parts.path),
        prefix=prefix,
        cluster=_truth(given, "cluster"),
        tls=_tls(given) if SCHEMES[parts.scheme] else None,
    )
    if address.tls is None and any(name in given for name in _TLS):
        raise SettingsError("the log's address has ssl_... settings and no TLS: it has to begin with rediss://")
    if address.user and not address.password:
        raise SettingsError("the log's address has a user without a password; a password alone is :PASSWORD@")
    return address


def _query(query: str) -> Mapping[str, str]:
    given: dict[str, str] = {}
    for name, value in parse_qsl(query, keep_blank_values=True):
        if name not in (*_OURS, *_TLS):
            allowed = ", ".join((*_OURS, *_TLS))
            raise SettingsError(f"the query of the log's address has a setting that is none; there are: {allowed}")
        if name in given or not value:
            raise SettingsError(f"{name}= in the log's address must be there once, with a value")
        given[name] = value
    return given


def _db(path: str) -> int:
    number = path.removeprefix("/")
    if not number:
        return 0
    if not number.isdecimal() or int(number) > _MOST_DB:
        raise SettingsError("the log's address: after the port comes the number of a database, as /0, or nothing")
    return int(number)


def _truth(given: Mapping[str, str], name: str) -> bool | None:
    if name not in given:
        return None
    if given[name].lower() not in _TRUTH:
        raise SettingsError(f"{name}= in the log's address must be true or false")
    return _TRUTH[given[name].lower()]


def _tls(given: Mapping[str, str]) -> LogTls:
    verify = given.get("ssl_cert_reqs", "required")
    if verify not in _CERT_REQS:
        raise SettingsError(f"ssl_cert_reqs= in the log's address must be {' or '.join(_CERT_REQS)}")
    if "ssl_keyfile" in given and "ssl_certfile" not in given:
        raise SettingsError("the log's address has ssl_keyfile= and no ssl_certfile= that it belongs to")
    return LogTls(
        ca_certs=given.get("ssl_ca_certs"),
        certfile=given.get("ssl_certfile"),
        keyfile=given.get("ssl_keyfile"),
        verify=verify == "required",
        check_hostname=_truth(given, "ssl_check_hostname") is not False,
    )
