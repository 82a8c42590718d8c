"""Asking: commands for the log's server, and what comes back in place of an answer."""

from __future__ import annotations

Command = tuple[str | bytes | float, ...]
Ask = tuple[str, Command]
"""A command, and the key that says where in a cluster it belongs."""
WRONG_KIND = object()
"""The answer to a command that met a key of another kind, or a stream that takes no more."""
