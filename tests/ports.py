"""Ports that are free, and stay free while nobody listens."""

from __future__ import annotations

import random
import socket

# Below those from which systems take the near ends of connections: a client that keeps trying to reach a server that
# is down would now and then be given the server's own port, and reach itself.
RANGE = (20_000, 32_000)


def free_port(host: str = "127.0.0.1") -> int:
    """A port that nobody listens to; another process may still be faster."""
    chosen = random.SystemRandom()
    for _ in range(1000):
        port = chosen.randrange(*RANGE)
        with socket.socket() as trial:
            trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                trial.bind((host, port))
            except OSError:
                continue
            return port
    raise OSError(f"No free port on {host} from {RANGE[0]} to {RANGE[1]}.")
