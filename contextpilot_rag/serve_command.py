"""``contextpilot-rag serve``: the shared context index as a process. Its options are the service's settings."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable
from dataclasses import fields
from inspect import cleandoc
from pathlib import Path
from typing import Any

from .checking import parsed
from .errors import MissingPackage, SettingsError
from .service.settings import PREFIX, SECRETS, ServiceSettings, kinds


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's options: one for each setting, but for secrets: everybody sees them in a list of processes."""
    parser.description = "Serves one context index to all processes that share an engine."
    parser.epilog = (
        f"Each option can be given as an environment variable, too: {PREFIX}PORT for --port. "
        + " and ".join(PREFIX + name.upper() for name in sorted(SECRETS))
        + " can only be given so."
    )
    helps = _helps()
    for setting in fields(ServiceSettings):
        name, kind = setting.name, kinds()[setting.name]
        if name in SECRETS:
            continue
        option = f"--{name.replace('_', '-')}"
        text = f"{helps.get(name, name)} (default: {_shown(setting.default)})".replace("%", "%%")
        if kind is bool:
            parser.add_argument(option, action=argparse.BooleanOptionalAction, default=None, help=text)
        else:
            parser.add_argument(option, metavar=_metavar(kind), help=text)
    parser.add_argument(
        "--workers", metavar="N", default="1", help="processes; one owns the index, so only 1 can be had"
    )


def run(options: argparse.Namespace, tell: Callable[[str], None]) -> int:
    """Serve until a signal says to end; the exit status.

    Args:
        options: as `add_arguments` made them.
        tell: is given one line when the service is ready.

    Raises:
        SettingsError: a setting that cannot be.
        MissingPackage: the service's packages are not installed.
    """
    settings = settings_of(options)
    try:
        from .service.process import serve
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] == __package__:
            raise
        raise MissingPackage(
            f'the service needs the package {error.name}: pip install "contextpilot-rag[service]"'
        ) from None
    return serve(settings, tell)


def settings_of(options: argparse.Namespace) -> ServiceSettings:
    """The settings of a command line; what it leaves out comes from the environment.

    Raises:
        SettingsError: a value that cannot be.
    """
    if options.workers != "1":
        raise SettingsError(
            f"--workers {options.workers}: one process owns the index; several would each know a part of what is "
            "cached. Until an index can be shared between processes there is one worker"
        )
    given: dict[str, Any] = {}
    for name, kind in kinds().items():
        value = getattr(options, name, None)
        if value is None:
            continue
        if isinstance(value, str):
            value = Path(value) if kind == (Path | None) else parsed(f"--{name.replace('_', '-')}", value, kind)
        given[name] = value
    return ServiceSettings.from_env(**given)


def _helps() -> dict[str, str]:
    """What the settings' own docstring says of each."""
    text = cleandoc(ServiceSettings.__doc__ or "")  # newer Pythons have taken its indentation away, older ones have not
    lines = re.findall(r"^ {4}(\w+): (.+(?:\n {8}.+)*)$", text, re.MULTILINE)
    return {name: re.sub(r"\s+", " ", text).replace("``", "").rstrip(".") for name, text in lines}


def _shown(default: object) -> str:
    if isinstance(default, bool):
        return "yes" if default else "no"
    return "none" if default in {None, ""} else str(default)


def _metavar(kind: object) -> str:
    return "PATH" if kind == (Path | None) else "TEXT" if kind is str else "NUMBER"
