"""A real log server for tests: started on a free port, killed, paused, restarted, and never left behind."""

from __future__ import annotations

import secrets
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any
from urllib.parse import quote

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from tests.ports import free_port

from .binary import log_server_binary
from .guarded import SECONDS, Guarded

READY = "Ready to accept connections"
TAKEN = ("Address already in use", "Failed listening on port")


@dataclass(frozen=True, slots=True)
class User:
    """Somebody who may use the server, and what for.

    Args:
        name: The name.
        password: The password; it contains no blanks.
        rules: What it may do, in the server's words: `~prefix*`, `&channel*`, `+command`.
    """

    name: str
    password: str
    rules: tuple[str, ...]

    @property
    def line(self) -> str:
        """The line of the server's configuration."""
        return " ".join(("user", self.name, "on", f">{self.password}", *self.rules))


# Tests' own eyes where the default user is off; the same at all servers, for a cluster's client knows one.
LOOKER = User("looker", secrets.token_hex(8), ("~*", "&*", "+@all"))


class LogServer:
    """A Valkey or Redis server on a free port of this machine, running when the constructor returns.

    Args:
        folder: Where it has a folder of its own for its log, its configuration and what it keeps.
        persistent: It keeps its data when it is killed; otherwise it starts again empty.
        maxmemory: It refuses writes beyond this many bytes (or `2mb`).
        users: Who may use it; the default user is then off. Without, everybody may do all.
        cluster: It is a node of a cluster.
        args: More of its command line, as `("--hz", "100")`.
        hosts: The addresses that it listens to; the first is the one of `url`.
        life: It is killed after so many seconds, whatever happens.

    Raises:
        NoLogServer: There is no server's program here; a test that meets this is skipped.
    """

    def __init__(
        self,
        folder: Path,
        *,
        persistent: bool = False,
        maxmemory: int | str | None = None,
        users: Sequence[User] | None = None,
        cluster: bool = False,
        args: Sequence[str] = (),
        hosts: Sequence[str] = ("127.0.0.1",),
        life: float = 600.0,
    ) -> None:
        self._binary = log_server_binary()
        self._parent = folder
        self._settings = {
            "bind": " ".join(hosts),
            "protected-mode": "no",
            "save": '""',
            "appendonly": "yes" if persistent else "no",
            "tcp-backlog": 128,
            "cluster-enabled": "yes" if cluster else "no",
        }
        if maxmemory is not None:
            self._settings |= {"maxmemory": maxmemory, "maxmemory-policy": "noeviction"}
        self._cluster = cluster
        self._looker = LOOKER if users is not None else None
        self._users = () if self._looker is None else (self._looker, *(users or ()))
        self._args = tuple(args)
        self._life = life
        self._clients: list[redis.Redis] = []
        self.host = hosts[0]
        self.port = 0
        self.bus = 0
        self.process: Guarded | None = None
        self.start()

    @property
    def folder(self) -> Path:
        """Where it keeps what it keeps."""
        return self._parent / f"log-server-{self.port}"

    @property
    def url(self) -> str:
        """Its address, without a user."""
        return f"redis://{self.host}:{self.port}/0"

    def url_of(self, user: User) -> str:
        """Its address, for this user."""
        return f"redis://{quote(user.name, safe='')}:{quote(user.password, safe='')}@{self.host}:{self.port}/0"

    def known(self, user: User | None = None) -> dict[str, Any]:
        """What a client has to know to connect: address and user, one who may do all if not given."""
        who = user or self._looker
        known = {"username": who.name, "password": who.password} if who else {}
        return {"host": self.host, "port": self.port, **known}

    def client(self, user: User | None = None, **options: Any) -> redis.Redis:
        """A plain client, which fails at once; closed with the server.

        Args:
            user: Who asks; one who may do all if not given.
            options: More for the client.
        """
        given = {"socket_timeout": SECONDS, "retry": Retry(NoBackoff(), 0), **options}
        made = redis.Redis(**self.known(user), **given)
        self._clients.append(made)
        return made

    def start(self) -> None:
        """Run, and wait until it answers: the first time on any port, later on the same; nothing if it runs."""
        if self.process is not None:
            if self.process.alive:
                return
            self.process.wait()
        fixed = self.port
        for _ in range(50):
            self.port = fixed or free_port(self.host)
            if self._try():
                return
            if fixed:
                time.sleep(0.1)
        raise OSError(f"The log server found no free port{f': {fixed} is taken' if fixed else ''}.")

    def kill(self) -> None:
        """SIGKILL: what a crash does."""
        if self.process is not None:
            self.process.kill()

    def stop(self) -> None:
        """SIGTERM: what an operator does."""
        if self.process is not None:
            self.process.stop()

    def pause(self) -> None:
        """SIGSTOP: connections stay, nothing is answered."""
        assert self.process is not None
        self.process.pause()

    def resume(self) -> None:
        """SIGCONT."""
        assert self.process is not None
        self.process.resume()

    def said(self) -> str:
        """Its log."""
        return (self.folder / "log").read_text(errors="replace")

    def close(self) -> None:
        """Kill it, and close its clients."""
        self.kill()
        while self._clients:
            self._clients.pop().close()

    def __enter__(self) -> LogServer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _try(self) -> bool:
        """Start it on this port; False where the port is taken."""
        self.folder.mkdir(parents=True, exist_ok=True)
        settings = {**self._settings, "port": self.port, "dir": f'"{self.folder}"'}
        if self._cluster:
            self.bus = self.bus or free_port(self.host)
            settings |= {"cluster-port": self.bus, "cluster-node-timeout": 2000}
        lines = [f"{name} {value}" for name, value in settings.items()]
        if self._users:
            lines += ["user default off", *(user.line for user in self._users)]
        written = self.folder / "server.conf"
        written.write_text("\n".join([*lines, ""]))
        log = self.folder / "log"
        log.unlink(missing_ok=True)
        process = self.process = Guarded([self._binary, str(written), *self._args], log, life=self._life)
        try:
            came_up = self._came_up(process)
        except BaseException:
            process.kill()
            raise
        if not came_up:
            process.wait()
            self.bus = 0
        return came_up

    def _came_up(self, process: Guarded) -> bool:
        """Wait until it answers; False where the port is taken."""
        ends = time.monotonic() + SECONDS
        while time.monotonic() < ends:
            # Its log first: on a port that is taken, somebody else answers.
            if READY in self.said() and self._answers():
                return True
            if not process.alive:
                if any(words in self.said() for words in TAKEN):
                    return False
                break
            time.sleep(0.005)
        raise RuntimeError(f"The log server did not start: {self.said()[-2000:]}")

    def _answers(self) -> bool:
        """Whether it answers a PING, be it that it does not know us."""
        try:
            with socket.create_connection((self.host, self.port), timeout=1) as connection:
                connection.sendall(b"PING\r\n")
                return connection.recv(100).startswith((b"+PONG", b"-NOAUTH"))
        except OSError:
            return False
