"""``contextpilot-rag serve``: the shared context index as a process. Its options are the service's settings."""

from __future__ import annotations

import argparse
import logging
import os
import re
from collections.abc import Callable
from dataclasses import fields
from inspect import cleandoc
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from .checking import parsed
from .errors import ContextPilotError, MissingPackage, SettingsError
from .service.settings import PREFIX, REPEATED, SECRETS, ServiceSettings, kinds, option_of

logger = logging.getLogger("contextpilot_rag")

# Every setting but secrets, in the order and under the headings that people look for them.


GROUPS: dict[str, tuple[str, ...]] = {
    "where it listens": ("host", "port"),
    "keys and TLS": ("keys", "tls_certificate", "tls_key"),
    "engines that it follows": ("engines", "capacity_tokens"),
    "what it keeps": (
        "state",
        "snapshot_seconds",
        "tenant_blocks",
        "tenant_namespaces",
        "history_requests",
        "tenant_conversations",
        "conversation_seconds",
        "tenant_tickets",
        "ticket_seconds",
    ),
    "limits of requests": ("rate", "burst", "max_body", "max_blocks", "max_batch", "max_id"),
    "limits of connections": ("max_connections", "header_seconds", "body_seconds", "idle_seconds", "drain_seconds"),
    "plans": (
        "tenant_plans",
        "plan_processes",
        "max_plans",
        "plan_seconds",
        "plan_kept_seconds",
        "max_plan_body",
        "max_plan",
    ),
    "watching it": ("log_format", "operator_metrics", "tenant_labels"),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's options: one for each setting, but for secrets: everybody sees them in a list of processes."""
    parser.usage = (
        "%(prog)s [--keys FILE] [--host ADDRESS] [--port N] [--state FOLDER] [--engine LINE ...] [OPTION ...]"
    )
    parser.description = (
        "Serves one context index to all processes that share an engine. It runs as it is; of the options these matter "
        "first: --state to outlive a restart, --keys with --host for other machines, and --engine to keep in step with "
        "an engine's cache, or else --capacity-tokens to tell it its size."
    )
    parser.epilog = (
        f"Each option can be given as an environment variable, too: {PREFIX}PORT for --port. "
        + " and ".join(PREFIX + name.upper() for name in sorted(SECRETS))
        + " can only be given so."
    )
    helps = _helps()
    defaults = {setting.name: setting.default for setting in fields(ServiceSettings)}
    for title, names in GROUPS.items():
        group = parser.add_argument_group(title)
        for name in names:
            kind = kinds()[name]
            text = f"{helps.get(name, name)} (default: {_shown(defaults[name])})".replace("%", "%%")
            if kind is bool:
                group.add_argument(option_of(name), action=argparse.BooleanOptionalAction, default=None, help=text)
            elif name in REPEATED:
                text = f"{helps[name]}; this option is given once for each (default: none)".replace("%", "%%")
                group.add_argument(option_of(name), dest=name, action="append", metavar="LINE", help=text)
            elif get_origin(kind) is Literal:
                group.add_argument(option_of(name), choices=get_args(kind), help=text)
            else:
                group.add_argument(option_of(name), metavar=_metavar(name, kind), help=text)
    parser.add_argument(
        "--workers", metavar="N", default="1", help="processes; one owns the index, so only 1 can be had"
    )


def run(options: argparse.Namespace, tell: Callable[[str], None]) -> int:
    """Serve until a signal says to end; the exit status. Where logs are JSON, so is what keeps it from starting.

    Args:
        options: as `add_arguments` made them.
        tell: is given one line when the service is ready.

    Raises:
        SettingsError: a setting that cannot be.
        MissingPackage: the service's packages are not installed.
    """
    from .service.logs import FORMATS, configure

    log_format = options.log_format or os.environ.get(f"{PREFIX}LOG_FORMAT")
    configure(log_format if log_format in FORMATS else "text", whole=True)  # what is wrong with settings is logged, too
    try:
        return _serve(settings_of(options), tell)
    except ContextPilotError as error:
        if log_format != "json":
            raise
        logger.error("%s", error)  # noqa: TRY400  it says all there is
        return 1


def _serve(settings: ServiceSettings, tell: Callable[[str], None]) -> int:
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
        if isinstance(value, list):
            value = "\n".join(value)
        elif isinstance(value, str):
            value = Path(value) if kind == (Path | None) else parsed(option_of(name), value, kind)
        given[name] = value
    return ServiceSettings.from_env(**given)


def _helps() -> dict[str, str]:
    """What the settings' own docstring says of each."""
    text = cleandoc(ServiceSettings.__doc__ or "")  # newer Pythons have taken its indentation away, older ones have not
    lines = re.findall(r"^ {4}(\w+): (.+(?:\n {8}.+)*)$", text, re.MULTILINE)
    return {name: _as_options(re.sub(r"\s+", " ", text).rstrip(".")) for name, text in lines}


def _as_options(text: str) -> str:
    """A setting's meaning in the command line's words.

    >>> _as_options("with ``tls_key``; None: no TLS")
    'with --tls-key; none: no TLS'
    """
    return re.sub(r"``(\w+)``", lambda found: option_of(found[1]), text).replace("None:", "none:")


def _shown(default: object) -> str:
    if isinstance(default, bool):
        return "yes" if default else "no"
    return "none" if default in {None, ""} else str(default)


def _metavar(name: str, kind: object) -> str:
    if kind == (Path | None):
        return "FOLDER" if name == "state" else "FILE"
    if kind is str:
        return "ADDRESS"
    return "SECONDS" if name.endswith("_seconds") else "NUMBER" if name == "rate" else "N"
