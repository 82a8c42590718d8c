"""The proxy as a process, and what it says when it is ready."""

from __future__ import annotations

import logging
from collections.abc import Callable

from ..engines.shown import shown_url
from ..service.process import serve_life
from ..settings import Settings
from .life import assemble
from .settings import ProxySettings

logger = logging.getLogger("contextpilot_rag")


def serve(settings: ProxySettings, chosen: Settings, tell: Callable[[str], None]) -> int:
    """Forward until SIGTERM or SIGINT; the exit status.

    Args:
        settings: of the proxy.
        chosen: of its pilot.
        tell: is given a few lines when the proxy is ready, unless logs are JSON: then they stand there.

    Raises:
        ContextPilotError: the proxy cannot be started.
    """
    return serve_life(
        lambda: assemble(settings, chosen, alone=True),
        settings.log_format,
        lambda address: say_forwarding(address, settings, tell),
    )


def say_forwarding(address: str, settings: ProxySettings, tell: Callable[[str], None]) -> None:
    """For people on lines of their own; whoever reads JSON gets all of it in one place."""
    upstreams = [shown_url(engine.url) for engine in settings.engines]
    if settings.log_format == "json":
        logger.info("forwarding on %s", address, extra={"address": address, "upstreams": upstreams})
        return
    tell(f"contextpilot-rag proxy: {address}/v1 -> {', '.join(upstreams)}")
    name, path = ("ANTHROPIC_BASE_URL", "") if settings.cloud == "anthropic" else ("OPENAI_BASE_URL", "/v1")
    tell(f"{name}={address}{path}")
