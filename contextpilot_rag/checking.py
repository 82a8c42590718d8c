"""Settings as they are annotated: values checked, and read from environment variables, with one kind of message."""

from __future__ import annotations

import difflib
import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

import msgspec

from .errors import SettingsError

logger = logging.getLogger("contextpilot_rag")

_WORDS_FOR = {"yes": True, "on": True, "no": False, "off": False}
_SWITCHES = {**_WORDS_FOR, "true": True, "false": False, "1": True, "0": False}


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
    words, switch = words_of(kind), bool in get_args(kind)
    if words and value not in words and not (switch and isinstance(value, bool)):
        allowed = [True, False, *words] if switch else words
        raise SettingsError(f"{name}: {shown} is none of {', '.join(map(repr, allowed))}")
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
    elif words_of(kind):
        given = text.strip()
        switch = _SWITCHES.get(given.lower()) if bool in get_args(kind) and given not in words_of(kind) else None
        return checked(name, given if switch is None else switch, kind, secret=secret)
    elif kind is str:
        return text
    try:
        return msgspec.convert(plain, kind, strict=False)
    except msgspec.ValidationError:
        raise SettingsError(f"{name}: {'***' if secret else repr(text)} is {_other_than(kind)}") from None


def words_of(kind: Any) -> tuple[str, ...]:  # noqa: ANN401
    """The words that a setting can be, perhaps beside True and False; none if it can be anything else.

    >>> words_of(bool | Literal["order", "best"]), words_of(Literal["on"]), words_of(str)
    (('order', 'best'), ('on',), ())
    """
    some = get_args(kind)
    if bool in some and len(some) == 2:
        kind = some[0] if some[1] is bool else some[1]
    return get_args(kind) if get_origin(kind) is Literal else ()


def check_tls(certificate: object, key: object, option_of: Callable[[str], str]) -> None:
    """That a certificate and its key are given together.

    Args:
        certificate: its file; None: there is none.
        key: its file.
        option_of: what the command line calls a setting.

    Raises:
        SettingsError: one of them is missing.
    """
    if (certificate is None) != (key is None):
        missing = "tls_key" if key is None else "tls_certificate"
        raise SettingsError(f"{option_of(missing)} FILE is missing: TLS takes a certificate and its key")


@cache
def kinds_of(settings: type) -> dict[str, Any]:
    """Each setting's annotation. Worked out once: resolving them is slow.

    Args:
        settings: the dataclass.
    """
    return get_type_hints(settings, include_extras=True)


def repr_of(settings: object, kinds: Iterable[str], shown: Callable[[str, Any], str]) -> str:
    """All settings, as Python would write them.

    Args:
        settings: the dataclass.
        kinds: its fields.
        shown: what is shown of a value, by its name: of a secret that there is one.
    """
    inner = ", ".join(f"{name}={shown(name, getattr(settings, name))}" for name in kinds)
    return f"{type(settings).__name__}({inner})"


def check_all(settings: object, kinds: Mapping[str, Any], secrets: Collection[str] = ()) -> None:
    """Check every field of a frozen dataclass by its annotation, and let it have what that makes of it.

    Args:
        settings: the dataclass, just made.
        kinds: its fields' annotations; a file's is ``Path | None``.
        secrets: messages do not show these.

    Raises:
        SettingsError: a value that does not fit.
    """
    for name, kind in kinds.items():
        value = getattr(settings, name)
        if is_path(kind) and isinstance(value, str):
            value = Path(value)
        elif is_path(kind):
            if value is not None and not isinstance(value, Path):
                raise SettingsError(f"{name}: a path, not {type(value).__name__}")
        else:
            value = checked(name, value, kind, secret=name in secrets)
        object.__setattr__(settings, name, value)


def of_variables(
    environ: Mapping[str, str], prefix: str, kinds: Mapping[str, Any], secrets: Collection[str] = ()
) -> dict[str, Any]:
    """What environment variables say of settings. An empty one is one that was not set.

    Args:
        environ: all variables.
        prefix: of those that are settings.
        kinds: the settings' annotations.
        secrets: messages do not show these.

    Raises:
        SettingsError: a value that does not fit.

    >>> of_variables({"X_PORT": "9", "X_HOST": ""}, "X_", {"port": int, "host": str})
    {'port': 9}
    """
    warn_of_unknown(environ, prefix, kinds)
    values: dict[str, Any] = {}
    for name, kind in kinds.items():
        variable = prefix + name.upper()
        text = environ.get(variable)
        if text:
            values[name] = Path(text) if is_path(kind) else parsed(variable, text, kind, secret=name in secrets)
    return values


def is_path(kind: object) -> bool:
    """Whether an annotation is that of a file that may be left out."""
    return kind == (Path | None)


def check_known(given: Iterable[str], known: Iterable[str]) -> None:
    """That only settings are given.

    Args:
        given: names.
        known: the settings' names.

    Raises:
        SettingsError: another name; the message says what may have been meant.
    """
    names = list(known)
    for name in given:
        if name not in names:
            close = difflib.get_close_matches(name, names, n=1)
            hint = f"did you mean {close[0]!r}?" if close else f"settings are {', '.join(names)}"
            raise SettingsError(f"unknown setting {name!r}; {hint}")


def warn_of_unknown(environ: Mapping[str, str], prefix: str, known: Iterable[str]) -> None:
    """Log variables that are nearly the name of a setting.

    One may be meant for another version, so it is no error; but a misspelt one must not pass in silence.

    Args:
        environ: all variables.
        prefix: of those that are settings.
        known: the settings' names, in lower case.
    """
    names = list(known)
    for name in environ:
        setting = name.removeprefix(prefix).lower()
        if name.startswith(prefix) and setting not in names:
            for meant in difflib.get_close_matches(setting, names, n=1, cutoff=0.7):
                logger.warning("environment variable %s is no setting; did you mean %s?", name, prefix + meant.upper())


def in_words(message: str, kinds: Iterable[Any]) -> str:
    r"""A message of msgspec's, with patterns as their descriptions put it.

    Args:
        message: of an error.
        kinds: annotated texts, each with a pattern and a description.

    >>> kind = Annotated[str, msgspec.Meta(pattern="^[0-9]+$", description="Digits.")]
    >>> in_words("Expected `str` matching regex '^[0-9]+$' - at `$.id`", [kind])
    'Expected digits - at `$.id`'
    """
    for kind in kinds:
        for meta in kind.__metadata__:
            words = (meta.description or "").rstrip(".")
            if meta.pattern and words:
                words = words[:1].lower() + words[1:]
                message = message.replace(f"Expected `str` matching regex {meta.pattern!r}", f"Expected {words}")
    return message


def _other_than(kind: Any) -> str:  # noqa: ANN401
    """What a setting should have been, for whoever writes it as text.

    >>> _other_than(Annotated[int, msgspec.Meta(ge=1)] | None), _other_than(bool)
    ("neither a whole number, 1 or more, nor 'none'", 'not yes or no')
    """
    some = [option for option in get_args(kind) if option is not type(None)]
    if type(None) in get_args(kind) and len(some) == 1:
        return f"neither {_wanted(some[0])}, nor 'none'"
    return f"not {_wanted(kind)}"


def _wanted(kind: Any) -> str:  # noqa: ANN401
    plain = get_args(kind)[0] if get_origin(kind) is Annotated else kind
    words = "a whole number" if plain is int else "a number" if plain is float else "yes or no"
    return words + "".join(map(_range, getattr(kind, "__metadata__", ())))


def _range(meta: msgspec.Meta) -> str:
    least = meta.ge if meta.ge is not None else meta.gt
    if least is None:
        return ""
    if meta.le is not None and meta.le < 10**9:
        return f" from {least:g} to {meta.le:g}"
    return f", {least:g} or more" if meta.gt is None else f" above {least:g}"
