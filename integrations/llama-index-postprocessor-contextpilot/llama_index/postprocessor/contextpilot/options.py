"""Options: names that are no setting are refused, with the one that was probably meant."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable, Sequence
from dataclasses import fields

from contextpilot_rag import Settings
from contextpilot_rag.errors import SettingsError
from contextpilot_rag.types import short

PILOT_OPTIONS = tuple(field.name for field in fields(Settings))


def check_names(owner: str, given: Iterable[str], own: Collection[str]) -> None:
    """Refuse what is no setting: a misspelt namespace, passed over, would put two tenants into one.

    Args:
        owner: the class that was given them.
        given: their names.
        own: the names that it knows.

    Raises:
        SettingsError: a name that it does not know.

    >>> check_names("ContextPilotPostprocessor", ["name_space"], ["namespace", "namespace_key", "pilot"])
    Traceback (most recent call last):
        ...
    contextpilot_rag.errors.SettingsError: ContextPilotPostprocessor has no setting 'name_space'; did you mean 'namespace'?
    >>> check_names("ContextPilotPostprocessor", ["dedup"], ["namespace"])
    Traceback (most recent call last):
        ...
    contextpilot_rag.errors.SettingsError: ContextPilotPostprocessor has no setting 'dedup'; it is one of the pilot's: pilot=ContextPilot(dedup=...)
    """  # noqa: E501  messages on one line
    for name in given:
        if name not in own:
            raise SettingsError(f"{owner} has no setting {short(name)}; {_meant(str(name), own)}")


def patterns_of(hidden: Sequence[str] | None) -> tuple[str, ...] | None:
    """Patterns of metadata keys, checked.

    Raises:
        SettingsError: one text, whose letters would be taken for patterns, or what is no text.

    >>> patterns_of(["score", "*_date"])
    ('score', '*_date')
    """
    if hidden is None:
        return None
    if isinstance(hidden, str | bytes) or not isinstance(hidden, Iterable):
        raise SettingsError(f"hidden_metadata must be a sequence of patterns, such as [{hidden!r}], or None")
    found = tuple(hidden)
    if not all(isinstance(one, str) for one in found):
        raise SettingsError(f"hidden_metadata must hold texts, not {short(found)}")
    return found


def _meant(name: str, own: Collection[str]) -> str:
    close = _closest(name, own)
    if close is not None:
        return f"did you mean {close!r}?"
    pilots = _closest(name, PILOT_OPTIONS)
    if pilots is not None:
        return f"it is one of the pilot's: pilot=ContextPilot({pilots}=...)"
    return f"settings are {', '.join(sorted(own))}"


def _closest(name: str, names: Iterable[str]) -> str | None:
    """The name that another one was probably meant to be; underscores and capitals do not count."""
    by_letters = {_letters(one): one for one in names}
    close = difflib.get_close_matches(_letters(name), by_letters, n=1, cutoff=0.75)
    return by_letters[close[0]] if close else None


def _letters(name: str) -> str:
    return name.lower().replace("_", "").replace("-", "")
