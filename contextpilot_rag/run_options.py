"""How a plan is sent, checked before anything is: the arguments of `run`, and the options that go to the engine."""

from __future__ import annotations

import difflib
import inspect
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .errors import SettingsError
from .prompt.prompt import AlignedPrompt
from .types import plain_text, short

_OWN = {"messages", "stream", "stream_options", "model"}  # options that `run` sets itself
_NO_TEXTS = {"tools", "functions", "modalities", "audio", "n"}  # options whose answers are more than a text
_TRANSPORT = {"timeout", "extra_headers", "extra_query", "extra_body"}
# Options that change no answer: a run may be taken up with others.
_ABOUT_ELSE = _TRANSPORT | {"metadata", "prompt_cache_key", "prompt_cache_retention", "safety_identifier"}
_ABOUT_ELSE |= {"service_tier", "store", "user"}


@dataclass(frozen=True, slots=True)
class RunOptions:
    """How a plan is sent; see `ContextPilot.run`.

    Raises:
        SettingsError: a value that cannot be.
    """

    concurrency: int = 8
    system: str | None = None
    model: str | None = None
    results: str | Path | None = None
    retries: int = 5
    give_up_after: int = 20
    progress: bool = False
    options: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, least in (("concurrency", 1), ("retries", 0), ("give_up_after", 1)):
            value = getattr(self, name)
            if type(value) is not int or value < least:
                raise SettingsError(f"{name} must be an int, {least} or more, not {short(value)}")
        for name in ("system", "model"):
            value = getattr(self, name)
            if value is not None and not isinstance(value, str):
                raise SettingsError(f"{name} must be a str or None, not {type(value).__name__}")
        if self.model == "":
            raise SettingsError("model must not be empty; None takes the first that the engine lists")
        if self.results is not None and not isinstance(self.results, str | Path):
            raise SettingsError(f"results must be a path or None, not {type(self.results).__name__}")
        if not isinstance(self.progress, bool):
            raise SettingsError(f"progress must be True or False, not {short(self.progress)}")
        object.__setattr__(self, "system", None if self.system is None else plain_text(self.system, "system"))
        object.__setattr__(self, "options", _checked(self.options))

    @property
    def asked(self) -> dict[str, Any]:
        """The options that change answers."""
        body = {name: value for name, value in self._extra_body.items() if name != "cache_salt"}
        asked = {name: value for name, value in self.options.items() if name not in _ABOUT_ELSE}
        return {**asked, "extra_body": body} if body else asked

    def options_for(self, prompt: AlignedPrompt) -> dict[str, Any]:
        """The options of one request: with its namespace's cache salt.

        Raises:
            SettingsError: the caller's own is another.
        """
        salts = {prompt.salt, self._extra_body.get("cache_salt")} - {None}
        if len(salts) > 1:
            raise SettingsError(
                f"extra_body has another cache_salt than the namespace of request {short(prompt.request.key)}"
            )
        body = {**self._extra_body, **prompt.extra_body}
        return {**self.options, "extra_body": body} if body else dict(self.options)

    @property
    def _extra_body(self) -> Mapping[str, Any]:
        return self.options.get("extra_body") or {}


def _checked(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options that ``chat.completions.create`` takes, and that are answered by a text."""
    import openai

    known = inspect.signature(openai.resources.chat.AsyncCompletions.create).parameters
    kept = {}
    for name, value in options.items():
        if name in _OWN or name not in known or name == "self":
            close = difflib.get_close_matches(name, [*RunOptions.__annotations__, *known], n=1)
            hint = f"; did you mean {close[0]!r}?" if close and name not in _OWN else ""
            raise SettingsError(f"run has no option {name!r} for the engine{hint}")
        if isinstance(value, openai.NotGiven | openai.Omit):
            continue
        if name in _NO_TEXTS and value is not None and (name, value) != ("n", 1):
            raise SettingsError(f"run keeps one text for each request; {name}={short(value)} asks for something else")
        if name == "extra_body" and not isinstance(value, Mapping | None):
            raise SettingsError(f"extra_body must be a mapping, not {type(value).__name__}")
        try:
            if name not in _TRANSPORT - {"extra_body"}:
                json.dumps(dict(value) if name == "extra_body" and value else value, sort_keys=True, allow_nan=False)
        except (TypeError, ValueError, RecursionError) as error:
            raise SettingsError(f"option {name} cannot be sent as JSON: {error}") from None
        kept[name] = value
    return kept
