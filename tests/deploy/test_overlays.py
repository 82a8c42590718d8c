"""Every overlay, as kustomize builds it: what patches, generators and components make of the manifests together."""

from __future__ import annotations

import base64
import re
import subprocess

import pytest

from contextpilot_rag.engines.engine import engines_of
from contextpilot_rag.proxy.settings import ProxySettings
from contextpilot_rag.service import keyfile
from contextpilot_rag.service.settings import ServiceSettings

from .checks import closed, mounted, numbers, referenced, selected
from .manifests import (
    DEPLOY,
    KUBECTL,
    PASSWORD,
    base,
    built,
    containers,
    filled,
    kustomizations,
    loaded,
    of_kind,
    the,
    title,
)
from .reach import reached
from .schema import NEWEST, OLDEST, schema_faults
from .test_index_manifests import given, settings_of, unfilled

pytestmark = pytest.mark.skipif(KUBECTL is None, reason="there is no kubectl to build the kustomizations with")

OVERLAYS = sorted(folder.name for folder in kustomizations() if folder.parent.name == "overlays")
COMPONENTS = sorted(folder.name for folder in kustomizations() if folder.parent.name == "components")
ALL = "all"  # the largest overlay with every component, in a namespace of another name
GIVEN = frozenset({"context-index-log-tls"})  # Secrets that something else makes: README.md says so


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    root = filled(tmp_path_factory.mktemp("manifests"))
    whole = root / "overlays" / ALL
    whole.mkdir()
    components = ", ".join(f"../../components/{name}" for name in COMPONENTS)
    lines = ("kind: Kustomization", "namespace: elsewhere", "resources: [../proxy]", f"components: [{components}]")
    text = "\n".join(("apiVersion: kustomize.config.k8s.io/v1beta1", *lines, ""))
    (whole / "kustomization.yaml").write_text(text, encoding="utf-8")
    return root


@pytest.fixture(scope="module")
def made(root):
    """Each overlay's documents. Files above a folder are read only where they are said to be needed."""
    freely = ("--load-restrictor", "LoadRestrictionsNone")
    return {name: built(root / "overlays" / name) for name in OVERLAYS} | {ALL: built(root / "overlays" / ALL, *freely)}


@pytest.mark.parametrize("name", [*OVERLAYS, ALL])
def test_an_overlay_is_what_kubernetes_takes_and_holds_together(made, name):
    documents = made[name]
    for version in (OLDEST, NEWEST):
        assert schema_faults(documents, version) == []
    for check in (closed, selected, reached, mounted):
        assert list(check(documents)) == []
    assert list(referenced(documents, GIVEN)) == []
    titles = [title(document) for document in documents]
    assert len(titles) == len(set(titles))
    for whose, container in containers(documents):
        assert unfilled(container) == [], whose
    if name != "small":
        assert list(numbers(documents)) == []


def test_the_base_is_read_here_as_kustomize_reads_it(root):
    ours = {title(document) for document in base()}
    theirs = {re.sub(r"-[a-z0-9]{10}$", "", title(document)) for document in built(root / "base")}
    assert ours == theirs


@pytest.mark.parametrize("name", OVERLAYS)
def test_nothing_is_built_without_secrets(tmp_path, name):
    root = filled(tmp_path)
    (root / "secrets" / "secrets.env").unlink()
    with pytest.raises(AssertionError, match=r"secrets\.env"):
        built(root / "overlays" / name)


def test_a_secret_that_changes_restarts_what_uses_it_and_keys_do_not(root, made):
    before = made["production"]
    path = root / "secrets" / "secrets.env"
    was = path.read_text(encoding="utf-8")
    keys = root / "secrets" / "keys.json"
    empty = keys.read_text(encoding="utf-8")
    try:
        path.write_text(was.replace(PASSWORD, PASSWORD.upper()), encoding="utf-8")
        rotated = built(root / "overlays" / "production")
        path.write_text(was, encoding="utf-8")
        with keyfile.changing(keys) as content:
            content.tenants["acme"] = keyfile.TenantEntry()
        keyed = built(root / "overlays" / "production")
    finally:
        path.write_text(was, encoding="utf-8")
        keys.write_text(empty, encoding="utf-8")
    for kind, component in (("Deployment", ""), ("StatefulSet", "log")):
        assert the(rotated, kind, component) != the(before, kind, component)
        assert the(keyed, kind, component) == the(before, kind, component)
    assert of_kind(keyed, "Secret") != of_kind(before, "Secret")


def test_secrets_have_what_the_files_say(made):
    secrets = {re.sub(r"-[a-z0-9]{10}$", "", one["metadata"]["name"]): one for one in of_kind(made[ALL], "Secret")}
    assert secrets.keys() == {"context-index-secrets", "context-index-keys", "context-index-operator"}
    password = secrets["context-index-secrets"]["data"]["LOG_PASSWORD"]
    assert base64.b64decode(password).decode() == PASSWORD


def test_small_is_one_replica_and_production_three_to_twelve(made):
    assert the(made["small"], "Deployment")["spec"]["replicas"] == 1
    assert of_kind(made["small"], "HorizontalPodAutoscaler") == []
    scaler = the(made["production"], "HorizontalPodAutoscaler")["spec"]
    assert (scaler["minReplicas"], scaler["maxReplicas"]) == (3, 12)
    assert scaler["behavior"]["scaleDown"]["policies"], "the base's, still"


def test_production_needs_its_zones_evenly_and_only_likes_nodes_of_their_own(made):
    pod = the(made["production"], "Deployment")["spec"]["template"]["spec"]
    spreads = {one["topologyKey"]: one for one in pod["topologySpreadConstraints"]}
    assert len(spreads) == len(pod["topologySpreadConstraints"]) == 2
    assert spreads["topology.kubernetes.io/zone"]["whenUnsatisfiable"] == "DoNotSchedule"
    assert spreads["topology.kubernetes.io/zone"]["matchLabelKeys"] == ["pod-template-hash"], "of the new version"
    assert spreads["kubernetes.io/hostname"]["whenUnsatisfiable"] == "ScheduleAnyway"
    assert list(pod["affinity"]["podAntiAffinity"]) == ["preferredDuringSchedulingIgnoredDuringExecution"]


@pytest.mark.parametrize("name", ["proxy", ALL])
def test_the_proxy_overlay_forwards_to_engines_that_it_follows_and_may_reach(made, name):
    documents = made[name]
    settings = settings_of(documents)
    upstreams = ProxySettings.from_env({}, upstreams=settings.upstreams).engines
    followed = engines_of(settings.engines)
    assert {engine.url for engine in upstreams} == {engine.url for engine in followed}
    assert len({engine.name for engine in followed}) == len(followed) == 2
    policy = next(one for one in of_kind(documents, "NetworkPolicy") if one["metadata"]["name"] == "context-index")
    allowed = {port["port"] for port in policy["spec"]["egress"][-1]["ports"]}
    assert {int(port) for port in re.findall(r":(\d+)", settings.engines)} == allowed
    assert settings.log_format == "json", "the base's settings are merged"


@pytest.mark.parametrize("name", [*OVERLAYS, ALL])
def test_every_overlay_gives_requests_time_to_end(made, name):
    pod = the(made[name], "Deployment")["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    pause = int(container["lifecycle"]["preStop"]["exec"]["command"][-1])
    drain = settings_of(made[name]).drain_seconds
    assert pod["terminationGracePeriodSeconds"] > pause + drain + 10
    assert drain == (120 if name in {"proxy", ALL} else ServiceSettings().drain_seconds)


def test_with_tls_the_log_hears_nothing_without_and_replicas_check_who_it_is(made):
    log = the(made[ALL], "StatefulSet", "log")["spec"]["template"]["spec"]
    (valkey,) = log["containers"]
    options = dict(zip(valkey["command"][2::2], valkey["command"][3::2], strict=True))
    assert options["--port"] == "0"
    assert int(options["--tls-port"]) == valkey["ports"][0]["containerPort"]
    mounts = {mount["name"]: mount["mountPath"] for mount in valkey["volumeMounts"]}
    files = [value for name, value in options.items() if name.endswith("-file")]
    assert {path.rpartition("/")[0] for path in files} == {mounts["tls"]}
    probe = valkey["readinessProbe"]["exec"]["command"]
    assert "--tls" in probe
    assert probe[probe.index("--cacert") + 1] == options["--tls-ca-cert-file"]
    assert valkey["command"][:2] == ["valkey-server", "/etc/valkey/valkey.conf"]
    url = given(made[ALL])["CONTEXTPILOT_SERVE_REPLICATE"]
    assert url == f"rediss://index:{PASSWORD}@context-index-log:6379/0?ssl_ca_certs=/run/log-ca/ca.crt"
    index = the(made[ALL], "Deployment")["spec"]["template"]["spec"]
    (volume,) = [volume for volume in index["volumes"] if volume["name"] == "log-ca"]
    assert volume["secret"]["items"] == [{"key": "ca.crt", "path": "ca.crt"}], "not the log's key"
    without = given(made["production"])["CONTEXTPILOT_SERVE_REPLICATE"]
    assert url.startswith(without.replace("redis://", "rediss://"))


def test_the_dashboard_and_the_alerts_are_the_files_that_stand_in_deploy(root, made):
    maps = {one["metadata"]["name"]: one for one in of_kind(made[ALL], "ConfigMap")}
    dashboard, alerts = maps["context-index-dashboard"], maps["context-index-alerts"]
    assert dashboard["data"]["grafana.json"] == (DEPLOY / "grafana.json").read_text(encoding="utf-8")
    assert alerts["data"]["alerts.yml"] == (DEPLOY / "alerts.yml").read_text(encoding="utf-8")
    assert dashboard["metadata"]["labels"]["grafana_dashboard"] == "1"
    with pytest.raises(AssertionError, match="not in or below"):
        built(root / "overlays" / ALL)


def test_alerts_become_a_rule_of_prometheus_operator_as_the_readme_says():
    readme = (DEPLOY / "README.md").read_text(encoding="utf-8")
    (command,) = re.findall(r"^\{ printf .*?^  sed [^;]*; \}", readme, re.DOTALL | re.MULTILINE)
    result = subprocess.run(
        ["sh", "-c", command], cwd=DEPLOY.parent, capture_output=True, text=True, timeout=60, check=True
    )
    (rule,) = loaded(result.stdout)
    (alerts,) = loaded((DEPLOY / "alerts.yml").read_text(encoding="utf-8"))
    assert rule["kind"] == "PrometheusRule"
    assert rule["spec"] == alerts


def test_an_overlay_of_ones_own_is_built_as_the_readme_shows_it(root):
    readme = (DEPLOY / "README.md").read_text(encoding="utf-8")
    (shown,) = re.findall(r"```yaml\n(apiVersion: kustomize.*?)```", readme, re.DOTALL)
    mine = root / "overlays" / "mine"
    mine.mkdir()
    registry = "registry.test/team"
    (mine / "kustomization.yaml").write_text(shown.replace("<your registry>", registry), encoding="utf-8")
    documents = built(mine)
    assert schema_faults(documents, NEWEST) == []
    assert list(referenced(documents, GIVEN)) == []
    (index,) = the(documents, "Deployment")["spec"]["template"]["spec"]["containers"]
    assert index["image"].startswith(f"{registry}/contextpilot-rag:")
