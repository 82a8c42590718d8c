"""What stands in deploy/ fits the service: names of metrics and labels, options, paths. None of it needs a cluster."""

from __future__ import annotations

import asyncio
import configparser
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from contextpilot_rag.engines.events import EventCounts
from contextpilot_rag.proxy.settings import PREFIX as PROXY_PREFIX
from contextpilot_rag.proxy.settings import ProxySettings
from contextpilot_rag.proxy.settings import kinds as proxy_kinds
from contextpilot_rag.remote import wire
from contextpilot_rag.replicas.status import ReplicaStatus
from contextpilot_rag.service import exposition
from contextpilot_rag.service.engine_watch import FollowedEngine, FollowedFigures
from contextpilot_rag.service.metrics import ALIGN
from contextpilot_rag.service.settings import PREFIX, ServiceSettings, kinds
from tests.service.harness import serving
from tests.service.test_metrics import World, parsed

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
FUNCTIONS = {"sum", "min", "max", "rate", "increase", "histogram_quantile", "absent", "by", "or"}
TARGET_LABELS = {"instance", "job"}  # that Prometheus adds


@pytest.fixture(scope="module")
def known():
    """Every sample that a service exposes, once all has happened: name to names of labels."""
    world = World(tenant_labels=False)
    world.observe(world.align([1, 2], engine="e"), 100, 50)
    world.align([2, 1], engine="e", conversation=wire.TurnIn("c"))
    world.metrics.took(ALIGN, 0.01, 200)
    world.metrics.took(ALIGN, 0.01, 400, "malformed")
    world.metrics.planned("done", 1.0)
    world.metrics.snapshot_saved(1.0)
    sizes = asyncio.run(exposition.sizes_of(world.hub))
    sizes.plans["running"] = 1
    engine = FollowedEngine("e", "http://e", True, "events", "", "vllm", 1, 1, True, EventCounts(), 0, None)
    figures = FollowedFigures((engine,))
    replica = ReplicaStatus(behind_seconds=0.1, rejected={"signature": 1}, reloads={"gap": 1})
    raw = exposition._generate(exposition.Collector(world.metrics, sizes, figures, replica))
    found: dict[str, set[str]] = {}
    for name, labels in parsed(raw):
        full = name if name.startswith("process_") else f"contextpilot_{name}"
        found.setdefault(full, set()).update(label for label, _ in labels)
    return found


def faults(expression, known):
    """What a query names that does not exist."""
    said = []
    plain = re.sub(r'"[^"]*"', '""', expression)
    for name, labels in re.findall(r"(\w+)\{([^}]*)\}", plain):
        said += [
            f"{name} has no label {label}"
            for label in re.findall(r"(\w+)\s*[=!]", labels)
            if label not in known.get(name, set()) | TARGET_LABELS
        ]
    bare = re.sub(r"\{[^}]*\}|\[[^\]]*\]", "", plain)
    names = set(re.findall(r"[a-zA-Z_:][\w:]*", re.sub(r"by\s*\([^)]*\)", "", bare))) - FUNCTIONS
    said += [f"there is no metric {name}" for name in sorted(names) if name not in known]
    if not names:
        said.append("no metric in it")
    labels_of = set().union(*(known.get(name, set()) for name in names)) | TARGET_LABELS
    for group in re.findall(r"by\s*\(([^)]*)\)", bare):
        said += [f"no label {label.strip()}" for label in group.split(",") if label.strip() not in labels_of]
    return said


@pytest.mark.parametrize(
    "wrong",
    [
        "sum(rate(contextpilot_nonsense_total[5m]))",
        "rate(contextpilot_requests[5m])",
        'contextpilot_plans{mood="good"}',
        "sum by (tenant) (contextpilot_plans)",
        "1 + 1",
    ],
)
def test_a_query_that_is_wrong_is_found(known, wrong):
    assert faults(wrong, known)


def test_every_query_of_the_dashboard_names_what_exists(known):
    board = json.loads((DEPLOY / "grafana.json").read_text(encoding="utf-8"))
    assert board["uid"] == "contextpilot-rag"
    queries = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    assert len(queries) > 30
    assert {query: faults(query, known) for query in queries if faults(query, known)} == {}
    variables = [variable["query"] for variable in board["templating"]["list"]]
    assert variables == ["prometheus", "label_values(contextpilot_ready, instance)"]
    for panel in board["panels"]:
        for target in panel["targets"]:
            for label in re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]):
                assert re.search(rf"by \([^)]*\b{label}\b", target["expr"]), target
    shown = {name for query in queries for name in re.findall(r"contextpilot_\w+", query)}
    every = {re.sub(r"_(count|sum)$", "_bucket", name) for name in known if name.startswith("contextpilot_")}
    unshown = every - shown - {"contextpilot_build_info", "contextpilot_ready", "contextpilot_uptime_seconds"}
    assert unshown == {"contextpilot_usage_reports_total"}, "what is counted can be seen"


def test_the_dashboards_panels_stand_side_by_side():
    board = json.loads((DEPLOY / "grafana.json").read_text(encoding="utf-8"))
    taken: set[tuple[int, int]] = set()
    for panel in board["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, panel["title"]
        assert max(x for x, _ in cells) < 24
        taken |= cells
    ids = [panel["id"] for panel in board["panels"]]
    assert len(ids) == len(set(ids))


def test_every_alert_names_what_exists(known):
    yaml = pytest.importorskip("yaml", reason="PyYAML is not installed")
    (group,) = yaml.safe_load((DEPLOY / "alerts.yml").read_text(encoding="utf-8"))["groups"]
    assert len(group["rules"]) >= 5
    for rule in group["rules"]:
        assert faults(rule["expr"], known) == []
        assert rule["annotations"]["summary"]


def sections(text):
    """A unit: a key may stand several times, so they are numbered."""
    parser = configparser.ConfigParser(strict=False, interpolation=None, delimiters=("=",), comment_prefixes=("#",))
    parser.optionxform = str
    parser.read_string(text)
    return parser


def test_the_unit_runs_the_command_safely(tmp_path):
    text = (DEPLOY / "contextpilot-rag.service").read_text(encoding="utf-8")
    service = sections(text)["Service"]
    command = shlex.split(service["ExecStart"])
    assert command[0].endswith("/contextpilot-rag")
    assert command[1] == "serve"
    options = [word for word in command[2:] if word.startswith("--")]
    assert {option[2:].replace("-", "_") for option in options} <= set(kinds())
    assert service["KillSignal"] == "SIGTERM"
    assert service["Restart"] == "on-failure"
    assert service["User"] not in {"", "root"}
    assert int(service["TimeoutStopSec"]) > ServiceSettings().drain_seconds
    assert int(service["LimitNOFILE"]) > 2 * ServiceSettings().max_connections
    for protection in ("NoNewPrivileges", "ProtectHome", "PrivateDevices", "RestrictNamespaces"):
        assert service[protection] == "yes"
    assert service["ProtectSystem"] == "strict"


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd-analyze")
@pytest.mark.parametrize("name", ["contextpilot-rag.service", "contextpilot-rag-proxy.service"])
def test_systemd_finds_nothing_wrong_with_the_unit(tmp_path, name):
    text = (DEPLOY / name).read_text(encoding="utf-8")
    here = text.replace("/opt/contextpilot-rag/bin/contextpilot-rag", "/bin/sh")
    for unit, right in ((here, True), (here.replace("ProtectHome=yes", "ProtectHome=perhaps"), False)):
        path = tmp_path / name
        path.write_text(unit, encoding="utf-8")
        result = subprocess.run(
            ["systemd-analyze", "verify", "--man=no", str(path)],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        said = [line for line in result.stderr.splitlines() if name in line]
        assert (said == []) is right, said


def test_the_proxys_unit_runs_the_command_as_safely():
    units = [(DEPLOY / f"contextpilot-rag{name}.service").read_text(encoding="utf-8") for name in ("-proxy", "")]
    proxy, service = (sections(unit)["Service"] for unit in units)
    assert shlex.split(proxy["ExecStart"])[0] == shlex.split(service["ExecStart"])[0]
    assert shlex.split(proxy["ExecStart"])[1:] == ["proxy"]
    assert not proxy["EnvironmentFile"].startswith("-"), "without an upstream it cannot start"
    assert int(proxy["TimeoutStopSec"]) > ProxySettings().drain_seconds
    assert int(proxy["LimitNOFILE"]) > 2 * ProxySettings().max_connections + ProxySettings().upstream_connections
    protections = {name: value for name, value in service.items() if value == "yes" or "Protect" in name}
    assert len(protections) > 10
    assert protections.items() <= dict(proxy.items()).items()


def test_the_compose_file_runs_a_proxy_that_this_machine_alone_reaches():
    yaml = pytest.importorskip("yaml", reason="PyYAML is not installed")
    (service,) = yaml.safe_load((DEPLOY / "compose.yml").read_text(encoding="utf-8"))["services"].values()
    assert service["command"] == ["contextpilot-rag", "proxy"]
    assert (DEPLOY / service["build"]["context"] / service["build"]["dockerfile"]).exists()
    given = {
        name: re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", value) for name, value in service["environment"].items() if value
    }
    assert all(name.startswith(PROXY_PREFIX) for name in given)
    assert {name.removeprefix(PROXY_PREFIX).lower() for name in given} <= set(proxy_kinds())
    settings = ProxySettings.from_env(given)
    assert settings.engines
    assert settings.open
    assert service["ports"] == [f"127.0.0.1:{settings.port}:{settings.port}"]
    assert f":{settings.port}/contextpilot/health" in service["healthcheck"]["test"][-1]
    assert int(service["stop_grace_period"].removesuffix("s")) > settings.drain_seconds


def instructions(text):
    """A Dockerfile: its instructions, continued lines put together."""
    joined = re.sub(r"\\\n\s*", " ", "\n".join(line for line in text.splitlines() if not line.startswith("#")))
    return [tuple(line.split(None, 1)) for line in joined.splitlines() if line.strip()]


def test_the_dockerfile_fits_the_repository_and_the_service():
    lines = instructions((DEPLOY / "Dockerfile").read_text(encoding="utf-8"))
    by_name: dict[str, list[str]] = {}
    for name, rest in lines:
        by_name.setdefault(name, []).append(rest)
    assert all(re.fullmatch(r"python:3\.\d+-slim( AS build)?", base) for base in by_name["FROM"])
    ignored = (DEPLOY / "Dockerfile.dockerignore").read_text(encoding="utf-8").splitlines()
    for copied in by_name["COPY"]:
        if copied.startswith("--from"):
            continue
        for source in copied.split()[:-1]:
            assert (ROOT / source).exists(), source
            assert f"!{source}" in ignored, f"{source} does not reach the build"
    assert by_name["USER"] == ["10001"], "a number: an orchestrator can see that it is not root"
    order = [name for name, _ in lines]
    assert order.index("USER") < order.index("HEALTHCHECK") < order.index("CMD")
    assert all("--no-cache-dir" in run for run in by_name["RUN"] if "pip install" in run)
    environment = dict(re.findall(rf"{PREFIX}(\w+)=(\S+)", " ".join(by_name["ENV"])))
    assert {name.lower() for name in environment} <= set(kinds())
    assert environment["HOST"] == "0.0.0.0"
    assert environment["KEYS"], "without keys it must not listen for everybody"
    readme = (DEPLOY / "README.md").read_text(encoding="utf-8")
    (mounted,) = re.findall(r"-v \./keys:(\S+):ro", readme)
    assert str(Path(environment["KEYS"]).parent) == mounted, "the folder, or a new file in it is not seen"
    assert by_name["EXPOSE"] == [environment["PORT"]]
    assert by_name["VOLUME"] == [environment["STATE"]]
    assert json.loads(by_name["CMD"][-1]) == ["contextpilot-rag", "serve"]
    made = ServiceSettings.from_env({f"{PREFIX}{name}": value for name, value in environment.items()})
    assert made.log_format == "json"


def test_the_health_check_of_the_container_tells_a_service_from_none():
    lines = instructions((DEPLOY / "Dockerfile").read_text(encoding="utf-8"))
    (check,) = [rest for name, rest in lines if name == "HEALTHCHECK"]
    command = json.loads(check[check.index("[") :])
    assert command[0] == "python"

    def healthy(port):
        return subprocess.run(
            [sys.executable, *command[1:]],
            env={**os.environ, f"{PREFIX}PORT": str(port)},
            capture_output=True,
            timeout=60,
            check=False,
        ).returncode

    with serving() as service:
        port = service.port
        assert healthy(port) == 0
    assert healthy(port) != 0


def test_the_readme_names_every_file():
    readme = (DEPLOY / "README.md").read_text(encoding="utf-8")
    for path in DEPLOY.iterdir():
        if path.name not in {"README.md", "Dockerfile.dockerignore"}:
            assert f"`{path.name}`" in readme
    for variable in re.findall(rf"{PREFIX}(\w+)", readme):
        assert variable.lower() in kinds()
    for variable in re.findall(rf"{PROXY_PREFIX}(\w+)", readme):
        assert variable.lower() in proxy_kinds()
