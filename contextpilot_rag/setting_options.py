"""Options of a command that are settings: made from the settings' own annotations and docstring."""

from __future__ import annotations

import argparse
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import fields
from inspect import cleandoc
from pathlib import Path
from typing import Any, get_args

from .checking import is_path, parsed, words_of


class SettingOptions:
    """The settings of one dataclass as options.

    Args:
        settings: the dataclass.
        kinds: its fields' annotations.
        repeated: settings that are given one at a time, and what each is called then.
        metavars: what stands for a value in the usage, where its kind does not say.
        defaults: that the command has instead of the settings' own.
    """

    def __init__(
        self,
        settings: Any,  # noqa: ANN401  any dataclass
        kinds: Mapping[str, Any],
        repeated: Mapping[str, str] | None = None,
        metavars: Mapping[str, str] | None = None,
        defaults: Mapping[str, object] | None = None,
    ) -> None:
        self._kinds = kinds
        self._repeated = repeated or {}
        self._metavars = metavars or {}
        self._helps = self._read(settings)
        self._defaults = {one.name: one.default for one in fields(settings)} | dict(defaults or {})

    def add(self, parser: argparse.ArgumentParser, groups: Mapping[str, Collection[str]]) -> None:
        """Add options, each under its heading. What is not given stays None.

        Args:
            parser: of the command.
            groups: names of settings, by heading.
        """
        for title, names in groups.items():
            group = parser.add_argument_group(title)
            for name in names:
                self._add(group, name)

    def given(self, options: argparse.Namespace) -> dict[str, Any]:
        """What a command line says.

        Raises:
            SettingsError: a value that cannot be.
        """
        found: dict[str, Any] = {}
        for name, kind in self._kinds.items():
            value = getattr(options, name, None)
            if value is None:
                continue
            if isinstance(value, list):
                value = "\n".join(value)
            elif isinstance(value, str):
                value = Path(value) if is_path(kind) else parsed(self.option_of(name), value, kind)
            found[name] = value
        return found

    def option_of(self, setting: str) -> str:
        """What the command line calls a setting."""
        return f"--{self._repeated.get(setting, setting).replace('_', '-')}"

    def _add(self, group: Any, name: str) -> None:  # noqa: ANN401  argparse has no name for it
        kind, option, said = self._kinds[name], self.option_of(name), self._helps.get(name, name)
        text = f"{said} (default: {_shown(self._defaults[name])})".replace("%", "%%")
        if kind is bool:
            group.add_argument(option, action=argparse.BooleanOptionalAction, default=None, help=text)
        elif name in self._repeated:
            text = f"{said}; this option is given once for each (default: none)".replace("%", "%%")
            metavar = self._metavars.get(name, "LINE")
            group.add_argument(option, dest=name, action="append", metavar=metavar, help=text)
        elif words_of(kind) and bool in get_args(kind):
            group.add_argument(option, nargs="?", const="yes", choices=("yes", "no", *words_of(kind)), help=text)
            group.add_argument(f"--no-{option[2:]}", dest=name, action="store_const", const="no", help=f"{option} no")
        elif words_of(kind):
            group.add_argument(option, choices=words_of(kind), help=text)
        else:
            group.add_argument(option, metavar=self._metavars.get(name) or _metavar(name, kind), help=text)

    def _read(self, settings: object) -> dict[str, str]:
        """What the settings' own docstring says of each."""
        text = cleandoc(settings.__doc__ or "")  # newer Pythons have taken its indentation away, older ones have not
        lines: Sequence[tuple[str, str]] = re.findall(r"^ {4}(\w+): (.+(?:\n {8}.+)*)$", text, re.MULTILINE)
        return {name: self._as_options(re.sub(r"\s+", " ", text).rstrip(".")) for name, text in lines}

    def _as_options(self, text: str) -> str:
        """A setting's meaning in the command line's words: ``tls_key`` is --tls-key there."""
        named = re.sub(
            r"``(\w+)``", lambda found: self.option_of(found[1]) if found[1] in self._kinds else found[1], text
        )
        return named.replace("``", "").replace("`", "").replace("None:", "none:")


def _shown(default: object) -> str:
    if isinstance(default, bool):
        return "yes" if default else "no"
    return "none" if default in {None, ""} else str(default)


def _metavar(name: str, kind: object) -> str:
    if is_path(kind):
        return "FILE"
    if kind is str:
        return "TEXT"
    return "SECONDS" if name.endswith("_seconds") else "N"
