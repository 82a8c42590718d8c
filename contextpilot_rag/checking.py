"""Settings as they are annotated: values checked, and read from environment variables, with one kind of message."""

from __future__ import annotations

from typing import Any, Literal, get_args, get_origin

import msgspec

from .errors import SettingsError

_WORDS_FOR = {"yes": True, "on": True, "no": False, "off": False}


def checked(name: str, value: object, kind: Any, *, secret: bool = False) -> Any:  # noqa: ANN401
    """A value that fits its annotation.

    Args:
        name: what messages call it.
        value: as it was given.
        kind: the annotation, with `msgspec.Meta` for ranges.
        secret: messages do not show the value.

    Raises:
        SettingsError: it does not fit.

    >>> checked("order", "balanced", Literal["balanced", "retrieved"])
    'balanced'
    """
    shown = "***" if secret else repr(value)
    if get_origin(kind) is Literal and value not in get_args(kind):
        raise SettingsError(f"{name}: {shown} is none of {', '.join(map(repr, get_args(kind)))}")
    try:
        return msgspec.convert(value, kind, strict=True)
    except msgspec.ValidationError as error:
        raise SettingsError(f"{name}: {error} (got {shown})") from None


def parsed(name: str, text: str, kind: Any, *, secret: bool = False) -> Any:  # noqa: ANN401
    """A value from an environment variable; "none" stands for None where it may be None.

    Raises:
        SettingsError: it does not fit.

    >>> parsed("CONTEXTPILOT_ENABLED", "no", bool)
    False
    """
    plain: object = text
    if text.strip().lower() == "none" and type(None) in get_args(kind):
        plain = None
    elif kind is bool:
        plain = _WORDS_FOR.get(text.strip().lower(), text)
    elif get_origin(kind) is Literal:
        return checked(name, text.strip(), kind, secret=secret)
    try:
        return msgspec.convert(plain, kind, strict=False)
    except msgspec.ValidationError as error:
        raise SettingsError(f"{name}: {error} (got {'***' if secret else repr(text)})") from None
