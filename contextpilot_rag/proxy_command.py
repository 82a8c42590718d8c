"""``contextpilot-rag proxy``: an OpenAI-compatible proxy in front of an engine. Its options are settings."""

from __future__ import annotations

import argparse
import logging
import os
from collections.abc import Callable, Mapping
from typing import Any, get_type_hints

from .errors import ContextPilotError, MissingPackage
from .proxy.settings import PREFIX, REPEATED, SECRETS, ProxySettings, kinds
from .setting_options import SettingOptions
from .settings import ENVIRONMENT_PREFIX, Settings, name_of

logger = logging.getLogger("contextpilot_rag")

DEDUP = "blocks+chunks"  # of pilots it is "blocks"; here most repeats are results of tools

# Every setting of the proxy but secrets, and those of its pilot that mean something here.

GROUPS: dict[str, tuple[str, ...]] = {
    "where requests go": ("upstreams", "connect_seconds", "answer_seconds", "upstream_connections"),
    "where it listens": ("host", "port", "open", "check_host"),
    "keys and TLS": ("keys", "tls_certificate", "tls_key"),
    "tenants": ("tenant_by", "tenant_header", "client_salt", "rate", "burst"),
    "what is recognised": ("lists", "labels", "tool_results", "cache_hints"),
    "requests that wait for each other": ("window", "window_seconds"),
    "what it remembers": ("max_memory", "memory_seconds"),
    "limits of bodies": ("max_inspected", "max_body"),
    "limits of connections": ("max_connections", "header_seconds", "body_seconds", "idle_seconds", "drain_seconds"),
    "watching it": ("log_format", "operator_metrics"),
}
PILOT_GROUPS: dict[str, tuple[str, ...]] = {
    "how blocks are ordered": (
        "order",
        "min_gain",
        "protect_top",
        "max_displacement",
        "order_hint",
        "enabled",
    ),
    "what is sent once": ("dedup", "normalise", "max_text"),
    "the index": (
        "index",
        "index_timeout",
        "routing",
        "capacity_tokens",
        "kv_block_tokens",
        "cache_seconds",
        "max_blocks",
        "max_namespaces",
        "history_requests",
    ),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's options: one for each setting, but for secrets: everybody sees them in a list of processes."""
    parser.usage = "%(prog)s --upstream URL [--upstream URL ...] [--host ADDRESS] [--port N] [--keys FILE] [OPTION ...]"
    parser.description = (
        "Stands between clients and an engine, or a cloud. Requests for chat completions, completions, responses and "
        "Anthropic's messages have their context blocks put into the order that the prefix cache knows, and repeats "
        "left out; all else passes byte for byte. Point clients at it: OPENAI_BASE_URL=http://127.0.0.1:8766/v1, or "
        "ANTHROPIC_BASE_URL=http://127.0.0.1:8766."
    )
    secret = min(SECRETS)
    parser.epilog = (
        f"Each option can be given as an environment variable, too: {PREFIX}PORT for --port, and for those of the last "
        f"three groups {ENVIRONMENT_PREFIX}ORDER for --order. {PREFIX}{secret.upper()} and {name_of('api_key')} (for "
        "--index) can only be given so. The proxy answers /contextpilot/health, /ready, /metrics and /upstreams "
        "itself."
    )
    _proxy().add(parser, GROUPS)
    _pilot().add(parser, PILOT_GROUPS)


def run(options: argparse.Namespace, tell: Callable[[str], None]) -> int:
    """Forward until a signal says to end; the exit status. Where logs are JSON, so is what keeps it from starting.

    Args:
        options: as `add_arguments` made them.
        tell: is given a few lines when the proxy is ready.

    Raises:
        SettingsError: a setting that cannot be.
        MissingPackage: the proxy's packages are not installed.
    """
    from .service.logs import FORMATS, configure

    log_format = options.log_format or os.environ.get(f"{PREFIX}LOG_FORMAT")
    configure(log_format if log_format in FORMATS else "text", whole=True)  # what is wrong with settings is logged, too
    try:
        return _serve(settings_of(options), pilot_settings_of(options), tell)
    except ContextPilotError as error:
        if log_format != "json":
            raise
        logger.error("%s", error)  # noqa: TRY400  it says all there is
        return 1


def _serve(settings: ProxySettings, chosen: Settings, tell: Callable[[str], None]) -> int:
    try:
        from .proxy.process import serve
    except ModuleNotFoundError as error:
        raise MissingPackage.of(error, "the proxy needs", "contextpilot-rag[proxy]") from None
    return serve(settings, chosen, tell)


def settings_of(options: argparse.Namespace) -> ProxySettings:
    """The proxy's settings of a command line; what it leaves out comes from the environment.

    Raises:
        SettingsError: a value that cannot be.
    """
    return ProxySettings.from_env(**_proxy().given(options))


def pilot_settings_of(options: argparse.Namespace) -> Settings:
    """The settings of the proxy's pilot; what the command line leaves out comes from the environment.

    Raises:
        SettingsError: a value that cannot be.
    """
    return pilot_settings_from(_pilot().given(options))


def pilot_settings_from(given: Mapping[str, Any], environ: Mapping[str, str] | None = None) -> Settings:
    """The settings of a proxy's pilot.

    Args:
        given: those that were named one by one.
        environ: where to look for the others; None: the process's environment.

    Raises:
        SettingsError: a value that cannot be.

    >>> pilot_settings_from({}, {}).dedup, pilot_settings_from({}, {"CONTEXTPILOT_DEDUP": "off"}).dedup
    ('blocks+chunks', 'off')
    """
    if "dedup" not in given and not (os.environ if environ is None else environ).get(name_of("dedup")):
        given = {**given, "dedup": DEDUP}
    return Settings.from_env(environ, **{**given, "quality_drop": None})  # nobody rates answers to a proxy


def _proxy() -> SettingOptions:
    metavars = {"upstreams": "URL", "host": "ADDRESS", "tenant_header": "NAME", "lists": "KINDS"}
    return SettingOptions(ProxySettings, kinds(), REPEATED, metavars)


def _pilot() -> SettingOptions:
    every: dict[str, Any] = get_type_hints(Settings, include_extras=True)
    named = {name for names in PILOT_GROUPS.values() for name in names}
    some = {name: kind for name, kind in every.items() if name in named}
    metavars = {"index": "ADDRESS", "min_gain": "SHARE", "index_timeout": "SECONDS"}
    return SettingOptions(Settings, some, metavars=metavars, defaults={"dedup": DEDUP})
