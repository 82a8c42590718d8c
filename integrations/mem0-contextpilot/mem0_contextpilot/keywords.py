"""Keywords of a search: what the memory would swallow without a word is an error here."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from typing import Any, get_args, get_type_hints

from contextpilot_rag.errors import InputError
from contextpilot_rag.settings import RequestOptions

from .filters import IDS

_BOTH = ("options", "top_k", "limit", "filters", *IDS, "namespace")
_OURS = {"search": (*_BOTH, "keep_order"), "context": (*_BOTH, "question", "conversation", "messages", "system")}
_SETTINGS = frozenset(RequestOptions.__annotations__)
# What the hosted service takes, and the options of the first Mem0 2 do not name.
_HOSTED = ("show_expired", "reference_date", "latest_only", "keyword_search")


def check_keywords(method: str, search: Callable[..., Any], given: Iterable[str]) -> None:
    """See to it that nothing gets lost among a memory's ``**kwargs``.

    Mem0's own searches take what they know and nothing else. Of another memory that takes ``**kwargs`` nobody can tell
    what it knows; there, only what looks like a misspelt keyword is refused. It is not, if the memory names it.

    Args:
        method: "search" or "context".
        search: the memory's.
        given: keywords that would be handed on to it.

    Raises:
        InputError: nothing takes one of them.

    >>> def search(query, *, filters, threshold=0.1): ...
    >>> check_keywords("context", search, ["filters", "threshold"])
    >>> check_keywords("context", search, ["conversation_id"])
    Traceback (most recent call last):
        ...
    contextpilot_rag.errors.InputError: context takes no 'conversation_id'; did you mean 'conversation'?
    """
    takes, all_known = _takes(search)
    other, ours = ("search" if method == "context" else "context"), _OURS[method]
    for name in given:
        if name in takes or (name in ours and not all_known):
            continue
        if name in _OURS[other] and name not in ours:
            raise InputError(f"{method} takes no {name!r}; {other} does")
        near = None if name in ours else _near(name, sorted({*ours, *takes}))
        if near is not None:
            raise InputError(f"{method} takes no {name!r}; did you mean {near!r}?")
        if all_known and name in _SETTINGS:
            raise InputError(f"{name} is a setting for all searches: give it where the memory is wrapped")
        if all_known:
            raise InputError(f"this memory's search takes no {name!r}; it takes {', '.join(sorted(takes))}")


def takes(search: Callable[..., Any], name: str) -> bool:
    """Whether a search names a keyword.

    >>> takes(lambda query, limit=3, **others: [], "limit"), takes(lambda query, **others: [], "limit")
    (True, False)
    """
    return name in _takes(search)[0]


def _takes(search: Callable[..., Any]) -> tuple[set[str], bool]:
    """The keywords that a search is known to take, and whether it is known to take no others."""
    try:
        # What decorates a search may take more, and says for itself that it is the search.
        outer = inspect.signature(search, follow_wrapped=False).parameters.values()
        parameters = [*inspect.signature(search).parameters.values(), *outer]
        module = str(getattr(getattr(search, "__func__", search), "__globals__", {}).get("__name__", ""))
    except (TypeError, ValueError):  # something that does not say
        return set(), False
    named = {one.name for one in parameters if one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY)}
    fields = _fields(search) if "options" in named else set()
    any_other = any(one.kind is one.VAR_KEYWORD for one in parameters)
    of_mem0 = module.split(".", 1)[0] == "mem0" and bool(fields or "options" not in named)
    return named | fields, of_mem0 or not any_other


def _fields(search: Callable[..., Any]) -> set[str]:
    """What a hosted client's options document; they may be given by name, too."""
    try:
        hint = get_type_hints(search).get("options")
    except Exception:  # noqa: BLE001  somebody else's annotations
        return set()
    models = (getattr(kind, "model_fields", None) for kind in (hint, *get_args(hint)))
    found = {name for fields in models if isinstance(fields, Mapping) for name in fields}
    return {*found, *_HOSTED} if found else found


def _near(name: str, known: list[str]) -> str | None:
    """What was probably meant."""
    parts = [one for one in known if one.startswith(f"{name}_") or name.startswith(f"{one}_")]
    return next(iter(parts or get_close_matches(name, known, 1, 0.75)), None)
