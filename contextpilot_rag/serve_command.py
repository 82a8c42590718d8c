"""``contextpilot-rag serve``: the shared context index as a process. Its options are the service's settings."""

from __future__ import annotations

import argparse
import logging
import os
from collections.abc import Callable, Mapping

from .errors import ContextPilotError, MissingPackage, SettingsError
from .replicas.address import parse_address
from .service.settings import PREFIX, REPEATED, SECRETS, ServiceSettings, kinds
from .setting_options import SettingOptions
from .settings import PROXY_PREFIX

logger = logging.getLogger("contextpilot_rag")

# Every setting but secrets, in the order and under the headings that people look for them.


GROUPS: dict[str, tuple[str, ...]] = {
    "where it listens": ("host", "port"),
    "keys and TLS": ("keys", "tls_certificate", "tls_key"),
    "engines that it follows": ("engines", "capacity_tokens"),
    "what it forwards": ("upstreams",),
    "replicas of it": ("replicate",),
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

# Of a proxy beside it the service decides these, by settings of its own: where they listen, who may ask, who is told.
DECIDED = (
    *("upstreams", "host", "port", "open", "keys", "tls_certificate", "tls_key"),
    *("tenant_by", "tenant_header", "rate", "burst", "operator_metrics", "log_format"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's options: one for each setting, but for secrets: everybody sees them in a list of processes."""
    parser.usage = (
        "%(prog)s [--keys FILE] [--host ADDRESS] [--port N] [--state FOLDER] [--replicate URL] [--engine LINE ...] "
        "[OPTION ...]"
    )
    parser.description = (
        "Serves one context index to all processes that share an engine. It runs as it is; of the options these matter "
        "first: --state to outlive a restart, --keys with --host for other machines, and --engine to keep in step with "
        "an engine's cache, or else --capacity-tokens to tell it its size. With --upstream it is a proxy, too: the "
        "CONTEXTPILOT_PROXY_* and CONTEXTPILOT_* variables that `contextpilot-rag proxy --help` tells of count here."
    )
    parser.epilog = (
        f"Each option can be given as an environment variable, too: {PREFIX}PORT for --port. "
        + " and ".join(PREFIX + name.upper() for name in sorted(SECRETS))
        + " can only be given so."
    )
    _options().add(parser, GROUPS)
    parser.add_argument(
        "--workers", metavar="N", default="1", help="of one process, which is 1; for more there is --replicate"
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
        if settings.upstreams:
            return _serve_beside(settings, tell)
        from .service.process import serve
    except ModuleNotFoundError as error:
        raise MissingPackage.of(error, "the service needs", "contextpilot-rag[service]") from None
    return serve(settings, tell)


def _serve_beside(settings: ServiceSettings, tell: Callable[[str], None]) -> int:
    """Serve and forward. How it is forwarded is set by the proxy's own variables."""
    from .proxy.settings import ProxySettings
    from .proxy_command import pilot_settings_from

    through = ProxySettings.from_env(
        proxy_variables(os.environ), upstreams=settings.upstreams, log_format=settings.log_format
    )
    from .proxy.beside import serve_beside

    return serve_beside(settings, through, pilot_settings_from({}), tell)


def proxy_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """The variables, without those of a proxy that the service decides itself.

    One that is set is told: somebody may rely on it.
    """
    own = {f"{PROXY_PREFIX}{name.upper()}": PREFIX + name.upper() for name in DECIDED}
    for name, meant in own.items():
        if environ.get(name):
            known = meant.removeprefix(PREFIX).lower() in kinds()
            instead = f"{meant} does" if known else "the service tells tenants apart itself, by its keys"
            logger.warning("%s does not count for `serve`: %s", name, instead)
    return {name: value for name, value in environ.items() if name not in own}


def settings_of(options: argparse.Namespace) -> ServiceSettings:
    """The settings of a command line; what it leaves out comes from the environment.

    Raises:
        SettingsError: a value that cannot be.
    """
    if options.workers != "1":
        raise SettingsError(
            f"--workers {options.workers}: a process has one index, and one worker. For several start as many, "
            "each with the same --replicate redis://HOST:6379: each comes to know what the others know"
        )
    if options.replicate and parse_address(options.replicate).password:
        logger.warning("others can read the password in --replicate in a list of processes; set %sREPLICATE", PREFIX)
    return ServiceSettings.from_env(**_options().given(options))


def _options() -> SettingOptions:
    metavars = {"host": "ADDRESS", "replicate": "URL", "upstreams": "URL", "state": "FOLDER", "rate": "NUMBER"}
    return SettingOptions(ServiceSettings, kinds(), REPEATED, metavars)
