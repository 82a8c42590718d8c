"""Addresses as they may be shown and logged: without the name and the password that may stand in them."""

from __future__ import annotations

import re

_SOMEBODY = re.compile(r"^(\w+:)?//[^/?#]*@")
_ANYBODY = re.compile(r"^(\w+://)?.*@", re.DOTALL)


def shown_url(url: str) -> str:
    """An address without who asks there.

    >>> shown_url("http://user:secret@10.0.0.1:8000/v1")
    'http://***@10.0.0.1:8000/v1'
    """
    return _SOMEBODY.sub(r"\1//***@", url)


def shown_text(text: str) -> str:
    """The same of what should be an address and is none, so that nobody knows where in it a password stands.

    >>> shown_text("user:sec/ret@10.0.0.1")
    '***@10.0.0.1'
    """
    return _ANYBODY.sub(r"\1***@", text)
