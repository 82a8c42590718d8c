"""The log's manifests fit each other, and a real server does with them what they promise."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from contextpilot_rag.replicas.address import parse_address
from contextpilot_rag.replicas.log import START, Snapshot, Written
from contextpilot_rag.replicas.redis_log import ACL_COMMANDS, RedisLog
from tests.ports import free_port
from tests.replicas.binary import log_server_binary
from tests.replicas.guarded import SECONDS, Guarded
from tests.replicas.log_server import READY

from .manifests import KUBERNETES, PASSWORD, base, the

LOG = KUBERNETES / "base" / "log"
UNITS = {"Gi": 2**30, "Mi": 2**20, "gb": 2**30, "mb": 2**20}
PREFIX = "contextpilot:"


def configuration():
    """What valkey.conf says: name to value."""
    lines = (LOG / "valkey.conf").read_text(encoding="utf-8").splitlines()
    return dict(line.split(" ", 1) for line in lines if line and not line.startswith("#"))


def pod():
    return the(base(), "StatefulSet")["spec"]["template"]["spec"]


def size(text):
    return int(text[:-2]) * UNITS[text[-2:]]


def users(folder, password=PASSWORD):
    """Run the init container's script; its result, and what it wrote."""
    (container,) = pod()["initContainers"]
    shell, script = container["command"]
    written = folder / "users.acl"
    result = subprocess.run(
        [shell, str(LOG / Path(script).name)],
        env={
            "PATH": os.environ["PATH"],
            "LOG_PASSWORD": password,
            "RULES": str(LOG / "users.acl"),
            "USERS": str(written),
        },
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return result, written


def test_the_init_container_writes_the_passwords_hash_and_not_the_password(tmp_path):
    result, written = users(tmp_path)
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")
    text = written.read_text(encoding="utf-8")
    assert f"#{hashlib.sha256(PASSWORD.encode()).hexdigest()} " in text
    assert PASSWORD not in text
    assert "@PASSWORD" not in text
    assert written.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize(
    ("password", "said"),
    [
        ("", "characters"),
        ("short", "characters"),
        ("replace-me-with-openssl-rand-hex-32", "example"),
        (PASSWORD + "@host", "URL"),
        (PASSWORD + " +@all", "URL"),
        (PASSWORD + "\n", "URL"),
        (PASSWORD + "/&", "URL"),
    ],
)
def test_a_password_that_cannot_be_is_refused(tmp_path, password, said):
    result, written = users(tmp_path, password)
    assert result.returncode == 1
    assert said in result.stderr
    assert not written.exists()


def test_the_files_of_the_log_are_where_it_looks_for_them():
    (init,) = pod()["initContainers"]
    (valkey,) = pod()["containers"]
    mounts = {mount["name"]: mount["mountPath"] for mount in valkey["volumeMounts"]}
    variables = {one["name"]: one.get("value") for one in init["env"]}
    settings = configuration()
    assert settings["aclfile"] == variables["USERS"]
    assert variables["USERS"] == f"{mounts['users']}/users.acl"
    assert variables["RULES"] == f"{mounts['configuration']}/users.acl"
    assert valkey["command"] == ["valkey-server", f"{mounts['configuration']}/valkey.conf"]
    assert settings["dir"] == mounts["data"]
    assert int(settings["port"]) == valkey["ports"][0]["containerPort"]
    assert pod()["volumes"][-1] == {"name": "users", "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}}


def test_what_the_log_may_hold_fits_its_memory_and_its_disk():
    (valkey,) = pod()["containers"]
    (claim,) = the(base(), "StatefulSet")["spec"]["volumeClaimTemplates"]
    most = size(configuration()["maxmemory"])
    assert size(valkey["resources"]["limits"]["memory"]) >= 2 * most, "a rewrite copies what changes meanwhile"
    assert size(claim["spec"]["resources"]["requests"]["storage"]) >= 4 * most, "old and new stand side by side"
    assert configuration()["maxmemory-policy"] == "noeviction"


def test_no_user_but_the_replicas_may_do_anything():
    rules = dict(line.split(" ", 2)[1:] for line in (LOG / "users.acl").read_text(encoding="utf-8").splitlines())
    assert rules.keys() == {"default", "probe", "index"}
    assert rules["default"].split() == ["off", "resetpass", "resetkeys", "resetchannels", "-@all"]
    given = {user: {word[1:] for word in rule.split() if word.startswith("+")} for user, rule in rules.items()}
    assert given["probe"] == {"ping"}
    # Scripts may do what their user may, and no more.
    assert given["index"] == {command.removeprefix("+") for command in ACL_COMMANDS}
    keys = [word for word in rules["index"].split() if word.startswith(("~", "%", "&", "allkeys"))]
    assert keys
    assert all(re.fullmatch(r"~\w+:\*", word) for word in keys)


@dataclass
class Log:
    """A server that runs with the manifests' configuration."""

    port: int
    process: Guarded

    @contextmanager
    def client(self, user=None, password=None):
        once = Retry(NoBackoff(), 0)
        found = redis.Redis(
            port=self.port, username=user, password=password, socket_timeout=SECONDS, retry=once, decode_responses=True
        )
        with found:
            yield found


@contextmanager
def running(folder, acl=None):
    """The server as the manifests start it, but for where it listens and where its files are.

    Args:
        folder: for its files.
        acl: other users than the manifests'.
    """
    binary = log_server_binary()
    result, written = users(folder)
    assert result.returncode == 0, result.stderr
    if acl is not None:
        written.write_text(acl, encoding="utf-8")
    data = folder / "data"
    data.mkdir(exist_ok=True)
    port = free_port()
    here = {"bind": "127.0.0.1", "port": str(port), "dir": str(data), "aclfile": str(written)}
    assert here.keys() <= configuration().keys()
    lines = (f"{name} {value}\n" for name, value in {**configuration(), **here}.items())
    path = folder / "valkey.conf"
    path.write_text("".join(lines), encoding="utf-8")
    log = folder / "log"
    log.unlink(missing_ok=True)
    with Guarded([binary, str(path)], log, life=120) as process:
        ends = time.monotonic() + SECONDS
        while READY not in log.read_text(encoding="utf-8") and process.alive and time.monotonic() < ends:
            time.sleep(0.005)
        assert process.alive, log.read_text(encoding="utf-8")
        yield Log(port, process)


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    with running(tmp_path_factory.mktemp("log")) as server:
        yield server


def test_a_real_server_takes_the_configuration_as_it_is_meant(tmp_path):
    with running(tmp_path, "user looker on nopass ~* &* +@all\n") as server, server.client("looker", "any") as client:
        kept = client.config_get("max*", "append*", "save")
    assert int(kept["maxmemory"]) == size(configuration()["maxmemory"])
    assert kept["maxmemory-policy"] == "noeviction"
    assert (kept["appendonly"], kept["appendfsync"], kept["save"]) == ("yes", "everysec", "")


def test_the_probes_command_is_what_its_user_may_do(log):
    (valkey,) = pod()["containers"]
    command = valkey["readinessProbe"]["exec"]["command"]
    user, password = (command[command.index(name) + 1] for name in ("--user", "--pass"))
    with log.client(user, password) as client:
        assert client.execute_command(*command[-1:]) in {True, "PONG"}
        with pytest.raises(redis.exceptions.NoPermissionError):
            client.get(f"{PREFIX}x")


def test_nobody_may_do_anything_without_the_password(log):
    with log.client() as client, pytest.raises(redis.exceptions.AuthenticationError):
        client.ping()
    with log.client("index", PASSWORD[:-1]) as client, pytest.raises(redis.exceptions.AuthenticationError):
        client.ping()


def test_replicas_may_do_what_they_have_to_and_nothing_else(log):
    own = RedisLog(parse_address(f"redis://index:{PASSWORD}@127.0.0.1:{log.port}"))
    try:
        own.append([Written("tenant", b"m", b"d")])
        (entry,) = own.read({"tenant": (START, True)}, 10)["tenant"]
        assert own.listen(own.now(), 0).streams == frozenset()
        assert own.compact("tenant", Snapshot(entry.position, b"m", b"all"))
        assert own.snapshot("tenant") == Snapshot(entry.position, b"m", b"all")
        assert own.streams(10) == ["tenant"]
    finally:
        own.close()
    with log.client("index", PASSWORD) as client:
        refused = [
            lambda: client.xadd("other", {"e": "1"}),
            lambda: client.eval("return redis.call('XLEN', 'other')", 0),
            lambda: client.eval("return redis.call('KEYS', '*')", 0),
            lambda: client.get("other"),
            client.flushall,
            lambda: client.keys("*"),
            lambda: client.config_get("*"),
            client.acl_list,
            client.shutdown,
            lambda: client.execute_command("CLIENT", "KILL", "TYPE", "normal"),
        ]
        for ask in refused:
            with pytest.raises((redis.exceptions.NoPermissionError, redis.exceptions.ResponseError)):
                ask()


def test_the_log_outlives_its_server(tmp_path):
    stream = f"{PREFIX}{{tenant}}:log"
    with running(tmp_path) as server, server.client("index", PASSWORD) as client:
        client.xadd(stream, {"e": "1"})
        assert server.process.stop() == 0
    with running(tmp_path) as server, server.client("index", PASSWORD) as client:
        assert len(client.xrange(stream)) == 1
