"""The index's manifests fit the service: its settings, options, probes, ports and seconds."""

from __future__ import annotations

import argparse
import re
import shlex
import subprocess

import pytest

from contextpilot_rag.proxy.settings import ProxySettings
from contextpilot_rag.serve_command import add_arguments
from contextpilot_rag.service import keyfile
from contextpilot_rag.service.gate import FileGate
from contextpilot_rag.service.settings import PREFIX, ServiceSettings, kinds
from contextpilot_rag.service.table import operations
from contextpilot_rag.settings import ENVIRONMENT_PREFIX

from .manifests import KUBERNETES, PASSWORD, base, containers, of_kind, port_of, the

COMING = {} if "replicate" in kinds() else {"replicate": str}  # until `serve --replicate` is there


def given(documents):
    """The index's variables, as Kubernetes would fill them in."""
    pod = the(documents, "Deployment")["spec"]["template"]
    (container,) = pod["spec"]["containers"]
    found = {}
    for source in container["envFrom"]:
        (settings,) = [d for d in documents if d["metadata"]["name"] == source["configMapRef"]["name"]]
        found |= settings["data"]
    for one in container["env"]:
        value = one.get("value", PASSWORD)
        found[one["name"]] = re.sub(r"\$\((\w+)\)", lambda match: found[match[1]], value)
    return found


def settings_of(documents):
    """What the service makes of them."""
    ours = {name: value for name, value in given(documents).items() if name.startswith(PREFIX)}
    known = {name: value for name, value in ours.items() if name.removeprefix(PREFIX).lower() not in COMING}
    return ServiceSettings.from_env(known)


def test_every_variable_is_a_setting():
    names = given(base()).keys() - {"LOG_PASSWORD"}
    assert all(name.startswith(PREFIX) for name in names)
    assert {name.removeprefix(PREFIX).lower() for name in names} <= kinds().keys() | COMING.keys()
    settings = settings_of(base())
    assert settings.log_format == "json"
    assert settings.salt_secret, "replicas share what is cached only if all have the same"
    assert settings.state is None, "its file system is read-only"
    assert settings.keys is not None, "it listens for everybody"


def command():
    """What is run in the end, as words; and how many files it may open."""
    (container,) = the(base(), "Deployment")["spec"]["template"]["spec"]["containers"]
    assert "command" not in container, "the image's own entry point"
    shell, option, script = container["args"]
    assert (shell, option) == ("sh", "-c")
    files, whole = re.fullmatch(r"ulimit -S -n (\d+) \|\| :; exec (.+)", script).groups()
    return shlex.split(whole), int(files)


def test_every_argument_is_an_option_of_the_command():
    words, _ = command()
    assert words[:2] == ["contextpilot-rag", "serve"]
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    parser.parse_args(words[2:])
    assert not COMING or "--replicate" not in parser.format_help(), "it is there: nothing is coming any more"


def test_a_replica_may_open_as_many_files_as_its_connections_take():
    _, files = command()
    proxied = 2 * settings_of(base()).max_connections + ProxySettings().upstream_connections
    assert files > proxied


@pytest.mark.parametrize("allowed", [128, 1024])
def test_a_limit_that_cannot_be_raised_stops_nothing(allowed):
    (container,) = the(base(), "Deployment")["spec"]["template"]["spec"]["containers"]
    *shell, script = container["args"]
    script = script.replace("exec contextpilot-rag serve", "exec echo started")
    result = subprocess.run(
        ["sh", "-c", f'ulimit -n {allowed}; exec "$@"', "sh", *shell, script],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (result.returncode, result.stdout) == (0, "started\n")


def test_variables_are_filled_in_from_those_before_them():
    for whose, container in containers(base()):
        assert unfilled(container) == [], whose
    (container,) = the(base(), "Deployment")["spec"]["template"]["spec"]["containers"]
    container["env"].reverse()
    assert unfilled(container) == ["LOG_PASSWORD"]


def unfilled(container):
    """What would stand in a value as it is written, since it is not known yet."""
    known, said = set(), []
    for one in container.get("env", ()):
        said += [name for name in re.findall(r"\$\((\w+)\)", one.get("value", "")) if name not in known]
        known.add(one["name"])
    return said


def test_the_log_that_replicas_are_given_is_the_one_that_stands_beside_them():
    url = given(base())[f"{PREFIX}REPLICATE"]
    user, password, host, port = re.fullmatch(r"redis://(\w+):(\w+)@([\w-]+):(\d+)/0", url).groups()
    service = the(base(), "Service", "log")
    assert (host, int(port)) == (service["metadata"]["name"], service["spec"]["ports"][0]["port"])
    assert password == PASSWORD
    rules = (KUBERNETES / "base" / "log" / "users.acl").read_text(encoding="utf-8")
    assert f"\nuser {user} on " in rules


def test_probes_are_operations_that_take_no_key():
    (container,) = the(base(), "Deployment")["spec"]["template"]["spec"]["containers"]
    open_ones = {operation.path for operation in operations() if operation.open and operation.method == "GET"}
    probes = {name: container[f"{name}Probe"]["httpGet"] for name in ("startup", "liveness", "readiness")}
    assert {probe["path"] for probe in probes.values()} <= open_ones
    assert probes["readiness"]["path"] == "/readyz", "while it ends, nothing new is sent to it"
    assert probes["liveness"]["path"] == "/healthz", "a replica that ends is not to be killed"
    pod = the(base(), "Deployment")["spec"]["template"]
    for probe in probes.values():
        assert port_of(pod, probe["port"]) == settings_of(base()).port
        assert "scheme" not in probe
    assert settings_of(base()).tls_certificate is None


def test_the_port_is_the_same_everywhere():
    settings = settings_of(base())
    assert settings.host == "0.0.0.0"
    (port,) = the(base(), "Service")["spec"]["ports"]
    assert port["port"] == settings.port == ServiceSettings().port


def test_a_replica_has_time_to_end():
    pod = the(base(), "Deployment")["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    command, seconds = container["lifecycle"]["preStop"]["exec"]["command"]
    assert command == "sleep"
    ready = container["readinessProbe"]
    assert int(seconds) > ready["periodSeconds"] * ready["failureThreshold"]
    assert pod["terminationGracePeriodSeconds"] > int(seconds) + settings_of(base()).drain_seconds + 10


def test_the_keys_are_mounted_where_the_service_reads_them():
    pod = the(base(), "Deployment")["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    mounts = {mount["mountPath"]: mount["name"] for mount in container["volumeMounts"]}
    path = settings_of(base()).keys
    (volume,) = [one for one in pod["volumes"] if one["name"] == mounts[str(path.parent)]]
    assert path.name == "keys.json"
    assert volume["secret"]["defaultMode"] == 0o440, "more, and others could read or write it"
    assert pod["securityContext"]["fsGroup"] == pod["securityContext"]["runAsGroup"], "or it could not be read"
    dockerfile = (KUBERNETES.parent / "Dockerfile").read_text(encoding="utf-8")
    assert f"USER {pod['securityContext']['runAsUser']}\n" in dockerfile


def test_keys_that_change_in_a_mounted_secret_are_seen(tmp_path):
    def put(version, tenant):
        folder = tmp_path / version
        folder.mkdir()
        with keyfile.changing(folder / "keys.json", create=True) as content:
            content.tenants[tenant] = keyfile.TenantEntry()
        (folder / "keys.json").chmod(0o440)
        (tmp_path / "..next").symlink_to(version)
        (tmp_path / "..next").replace(tmp_path / "..data")  # as a node does it, in one step

    put("..1", "acme")
    (tmp_path / "keys.json").symlink_to("..data/keys.json")
    gate = FileGate(tmp_path / "keys.json")
    assert gate.reload() is False
    put("..2", "globex")
    assert gate.reload() is True


def test_variables_that_kubernetes_makes_of_services_are_no_settings():
    for service in of_kind(base(), "Service"):
        made = service["metadata"]["name"].upper().replace("-", "_") + "_"
        assert not made.startswith(ENVIRONMENT_PREFIX), (
            "a client in this namespace would take it for a setting that is unknown"
        )
