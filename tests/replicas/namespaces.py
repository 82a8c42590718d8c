"""Processes in a network of their own, whose only way out can be taken away: real partitions, where permitted."""

from __future__ import annotations

import functools
import ipaddress
import os
import random
import re
import shutil
import signal
import subprocess
import unittest
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from itertools import count
from pathlib import Path
from types import TracebackType

from .guarded import SECONDS, Guarded

# For tests of networks between machines, so that no machine has an address of them. Each namespace takes four.
NETWORKS = ipaddress.ip_network("198.18.0.0/15")
NAME = re.compile(r"\bcpr(\d+)[nboi]\d+\b")
_numbers = count()


class NotPermitted(unittest.SkipTest):
    """Network namespaces may not be made here: a test that meets this is skipped."""


@functools.cache
def namespaces_permitted() -> bool:
    """Whether network namespaces can be made and connected here."""
    try:
        with Namespaced():
            return True
    except NotPermitted:
        return False


class Namespaced:
    """A network namespace, connected to this machine by a bridge of its own and a pair of devices.

    What runs in it reaches this machine at `host` (a server has to listen there), and is reached at `address`.

    Raises:
        NotPermitted: It may not be made here; a test that meets this is skipped.
    """

    def __init__(self) -> None:
        if shutil.which("ip") is None:
            raise NotPermitted("needs the ip command to make network namespaces")
        remove_leftovers()
        number = next(_numbers)
        self.name, self._bridge, self._outer, inner = (f"cpr{os.getpid()}{kind}{number}" for kind in "nboi")
        self.host, self.address = free_pair()
        self._opened = ExitStack()
        try:
            with self._opened:
                self._opened.callback(remove, self.name, self._outer, self._bridge)
                self._connect(inner)
                self._opened = self._opened.pop_all()
        except subprocess.CalledProcessError as error:
            raise NotPermitted(f"needs network namespaces: {error.stderr.strip()}") from error

    def command(self, command: Sequence[str]) -> list[str]:
        """A command as one that runs in the namespace; it keeps its process id."""
        return ["ip", "netns", "exec", self.name, *command]

    def run(self, command: Sequence[str], seconds: float = SECONDS) -> subprocess.CompletedProcess[str]:
        """Run a command to its end, in the namespace."""
        return subprocess.run(self.command(command), capture_output=True, text=True, timeout=seconds, check=False)

    def start(self, command: Sequence[str], log: Path, *, env: Mapping[str, str] | None = None) -> Guarded:
        """Start a command in the namespace; it ends with the namespace, if not before."""
        started = Guarded(self.command(command), log, env=env)
        self._opened.callback(started.kill)
        return started

    def down(self) -> None:
        """Lose all that either side sends, without a word to either, as when a cable is cut between two switches."""
        ip("link", "set", self._outer, "down")

    def up(self) -> None:
        """Connect it again."""
        ip("link", "set", self._outer, "up")

    def close(self) -> None:
        """Kill all that runs in the namespace, and take it and its devices away."""
        self._opened.close()

    def __enter__(self) -> Namespaced:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _connect(self, inner: str) -> None:
        # A bridge, since a device that is taken down takes its routes along: its side would be told "unreachable".
        ip("netns", "add", self.name)
        ip("link", "add", self._bridge, "type", "bridge")
        ip("link", "add", self._outer, "type", "veth", "peer", "name", inner, "netns", self.name)
        ip("link", "set", self._outer, "master", self._bridge)
        ip("addr", "add", f"{self.host}/30", "dev", self._bridge)
        ip("link", "set", self._bridge, "up")
        ip("link", "set", self._outer, "up")
        ip("-n", self.name, "addr", "add", f"{self.address}/30", "dev", inner)
        ip("-n", self.name, "link", "set", inner, "up")
        ip("-n", self.name, "link", "set", "lo", "up")
        ip("netns", "exec", self.name, "true")


def ip(*arguments: str) -> str:
    """Run the `ip` command.

    Returns:
        What it printed.
    """
    return subprocess.run(["ip", *arguments], capture_output=True, text=True, timeout=SECONDS, check=True).stdout


def free_pair() -> tuple[str, str]:
    """Two addresses of a small network that no device here is in."""
    taken = [ipaddress.ip_interface(found).network for found in re.findall(r"inet (\S+)", ip("-4", "-o", "addr"))]
    chosen = random.SystemRandom()
    while True:
        first = int(NETWORKS.network_address) + 4 * chosen.randrange(NETWORKS.num_addresses // 4)
        network = ipaddress.IPv4Network((first, 30))
        if not any(network.overlaps(other) for other in taken if isinstance(other, ipaddress.IPv4Network)):
            host, address = network.hosts()
            return str(host), str(address)


def remove(namespace: str, *devices: str) -> None:
    """Take a namespace and devices away, and kill all that runs in it; nothing where they do not exist."""
    with suppress(subprocess.CalledProcessError):
        for pid in ip("netns", "pids", namespace).split():
            with suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)
    for device in devices:  # first: with its namespace a device goes some time later
        with suppress(subprocess.CalledProcessError):
            ip("link", "del", device)
    with suppress(subprocess.CalledProcessError):
        ip("netns", "del", namespace)


def remove_leftovers() -> None:
    """Take away what processes have left that were killed before they could."""
    try:
        there = ip("netns", "list") + ip("-o", "link")
    except subprocess.CalledProcessError as error:
        raise NotPermitted(f"needs network namespaces: {error.stderr.strip()}") from error
    found = {match.group(): int(match.group(1)) for match in NAME.finditer(there)}
    for name, pid in found.items():
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            remove(name, name)
        except PermissionError:  # it is somebody else's, and lives
            pass
