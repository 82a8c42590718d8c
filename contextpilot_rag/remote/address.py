"""Address: where a service listens, checked when it is given."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import urlsplit

from ..errors import SettingsError
from ..types import short

_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class Address:
    """Where a service listens.

    Args:
        scheme: "http" or "https".
        host: name or number, without brackets.
        port: of TCP.
        path: what stands before every path of the service, such as behind a proxy; empty, or "/..." without an end.

    >>> Address.of("https://index.example/ctx/")
    Address(scheme='https', host='index.example', port=443, path='/ctx')
    """

    scheme: str
    host: str
    port: int
    path: str = ""

    @classmethod
    def of(cls, text: str) -> Address:
        """An address from a URL.

        Raises:
            SettingsError: it is none that could be used.
        """
        if not isinstance(text, str):
            raise SettingsError(f"the index's address must be a text, not {short(text)}")
        shown = short(text) if "@" not in text else "what was given"  # before it there may be a password
        try:
            parts = urlsplit(text)
            host, port, user = parts.hostname, parts.port, parts.username
        except ValueError:
            raise SettingsError(f"the index's address: {shown} is no URL") from None
        if user is not None or parts.password is not None:
            raise SettingsError("the index's address holds a user or a password: give the key as api_key instead")
        if parts.scheme not in _PORTS or not host:
            raise SettingsError(f"the index's address must be http://HOST:PORT or https://HOST:PORT, not {shown}")
        if parts.query or parts.fragment:
            raise SettingsError("the index's address has a query or a fragment, which mean nothing there")
        if not (text.isascii() and text.isprintable()) or " " in text:
            raise SettingsError(f"the index's address must be plain ASCII without blanks, not {shown}")
        return cls(parts.scheme, host, _PORTS[parts.scheme] if port is None else port, parts.path.rstrip("/"))

    def __str__(self) -> str:
        return f"{self.scheme}://{self.authority}{self.path}"

    @property
    def authority(self) -> str:
        """Host and port, as the Host header has them."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _PORTS[self.scheme] else f"{host}:{self.port}"


def checked_key(key: str) -> str:
    """An API key that can be sent.

    Raises:
        SettingsError: it holds what no key holds. The message never shows it.
    """
    if not isinstance(key, str) or not all("!" <= character <= "~" for character in key):
        raise SettingsError("api_key must be plain ASCII without blanks; perhaps a line's end came with it")
    return key
