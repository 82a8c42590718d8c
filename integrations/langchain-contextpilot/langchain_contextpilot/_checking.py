"""What is said of settings when an object is made: the ones that are not there, and values that cannot be."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from contextpilot_rag.errors import SettingsError
from contextpilot_rag.settings import PilotOptions
from langchain_core.prompts import BasePromptTemplate

_OTHER_WORDS = {
    "k": ("top_k", "top_n", "n", "limit", "search_kwargs"),
    "namespace": ("tenant", "tenant_id", "contextpilot_namespace"),
    "pilot": ("index", "contextpilot", "context_pilot", "address", "url"),
    "document_prompt": ("prompt", "template"),
    "base_retriever": ("retriever", "base"),
    "retriever": ("base_retriever", "base"),
}
"""What other libraries call our settings."""


def check_names(given: Iterable[str], known: Collection[str], of: str) -> None:
    """Nothing that is misspelt passes in silence.

    Args:
        given: names of settings.
        known: those that there are.
        of: whose.

    Raises:
        SettingsError: a name that is not known, with the one that was most likely meant.

    >>> check_names(["name_space"], ["name", "namespace", "k"], "the retriever")
    Traceback (most recent call last):
        ...
    contextpilot_rag.errors.SettingsError: unknown setting 'name_space' of the retriever; did you mean 'namespace'?
    """
    for name in given:
        if name not in known:
            raise SettingsError(f"unknown setting {name!r} of {of}; {_meant(name, known)}")


def _meant(name: str, known: Collection[str]) -> str:
    for setting, words in _OTHER_WORDS.items():
        if name in words and setting in known:
            return f"did you mean {setting!r}?"
    of_pilot = [setting for setting in PilotOptions.__annotations__ if setting not in known]
    close = difflib.get_close_matches(name, [*known, *of_pilot], n=1)
    if not close:
        return f"settings are {', '.join(sorted(known))}; those of the pilot go to ContextPilot(...)"
    if close[0] in of_pilot:
        return f"{close[0]} is a setting of the pilot: pilot=ContextPilot({close[0]}=...)"
    return f"did you mean {close[0]!r}?"


def prompt_checked(document_prompt: object) -> BasePromptTemplate[str] | None:
    """A document prompt.

    Raises:
        SettingsError: something else, such as its text.
    """
    if document_prompt is None or isinstance(document_prompt, BasePromptTemplate):
        return document_prompt
    hint = ": PromptTemplate.from_template(...)" if isinstance(document_prompt, str) else ""
    raise SettingsError(f"document_prompt is a prompt template, not {type(document_prompt).__name__}{hint}")


def tools_checked(tools: object) -> bool | frozenset[str]:
    """Which tools' results are looked at: all, none, or those of these names.

    Raises:
        SettingsError: something else, such as one name.
    """
    if isinstance(tools, bool):
        return tools
    if isinstance(tools, Iterable) and not isinstance(tools, str | bytes | Mapping):
        names: list[Any] = list(tools)
        if all(isinstance(name, str) for name in names):
            return frozenset(names)
    example = f"[{tools!r}]" if isinstance(tools, str) else "['search']"
    raise SettingsError(f"tools is True, False, or names of tools such as {example}, not {tools!r}")


def positive(value: object, name: str) -> int:
    """A positive number.

    Raises:
        SettingsError: anything else.
    """
    if type(value) is int and value > 0:
        return value
    raise SettingsError(f"{name} must be a positive int, not {value!r}")


def switch(value: object, name: str) -> bool:
    """True or False.

    Raises:
        SettingsError: anything else.
    """
    if isinstance(value, bool):
        return value
    raise SettingsError(f"{name} is True or False, not {value!r}")
