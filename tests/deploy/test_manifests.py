"""Every manifest as it stands, by Kubernetes' schemas and by what has to hold beyond them. None needs a cluster."""

from __future__ import annotations

import re

import pytest

from contextpilot_rag import __version__

from .checks import closed, mounted, numbers, referenced, selected
from .manifests import (
    DEPLOY,
    FOREIGN,
    KUBERNETES,
    base,
    containers,
    kustomization,
    kustomizations,
    named,
    of_kind,
    read,
    the,
    variables,
)
from .reach import reached
from .schema import NEWEST, OLDEST, schema_faults

COMMITTED = {"example.env", ".gitignore"}
NOT_COMMITTED = {"secrets.env", "keys.json", "operator.env"}


@pytest.mark.parametrize("version", [OLDEST, NEWEST])
def test_kubernetes_takes_every_document_of_the_base(version):
    documents = base()
    assert {"Deployment", "StatefulSet", "NetworkPolicy", "HorizontalPodAutoscaler"} <= {d["kind"] for d in documents}
    assert schema_faults(documents, version) == []


@pytest.mark.parametrize("version", [OLDEST, NEWEST])
def test_kubernetes_knows_every_field_of_the_components_resources(version):
    resources = [
        document
        for folder in kustomizations()
        for name in kustomization(folder).get("resources", ())
        if (folder / name).is_file()
        for document in read(folder / name)
    ]
    assert {document["kind"] for document in resources} >= FOREIGN
    assert schema_faults(resources, version) == []


def at(document, path):
    *inner, last = path
    for step in inner:
        document = document[step]
    return document, last


@pytest.mark.parametrize(
    ("kind", "path", "wrong", "value"),
    [
        ("Deployment", ("spec", "strategy", "rollingUpdate"), "maxUnavailble", 0),
        ("Deployment", ("spec", "template", "spec"), "terminationGracePeriodSecond", 40),
        ("Deployment", ("spec", "template", "spec", "containers", 0, "ports", 0), "containerPort", "http"),
        ("Deployment", ("spec", "template", "spec", "containers", 0), "readynessProbe", {}),
        ("StatefulSet", ("spec",), "volumeClaimTemplate", []),
        ("HorizontalPodAutoscaler", ("spec",), "minReplica", 3),
        ("PodDisruptionBudget", ("spec",), "maxUnavailable", []),
        ("Service", ("spec", "ports", 0), "port", None),
        ("NetworkPolicy", ("spec",), "ingres", []),
        ("NetworkPolicy", (), "apiVersion", "networking.k8s.io/v2"),
        ("ServiceAccount", (), "automountServiceAccountTokens", False),
    ],
)
def test_the_schema_checker_finds_a_typo(kind, path, wrong, value):
    documents = base()
    document = the(documents, kind)
    inside, field = at(document, (*path, wrong))
    inside[field] = value
    (said,) = schema_faults(documents, NEWEST)
    assert said.startswith(f"{kind} context-index")


def test_no_field_stands_twice():
    yaml = pytest.importorskip("yaml", reason="PyYAML is not installed")

    def doubled(node):
        if isinstance(node, yaml.MappingNode):
            names = [key.value for key, _ in node.value]
            yield from (name for name in set(names) if names.count(name) > 1)
            yield from (name for _, value in node.value for name in doubled(value))
        if isinstance(node, yaml.SequenceNode):
            yield from (name for value in node.value for name in doubled(value))

    assert list(doubled(yaml.compose("a: {b: 1, b: 2}"))) == ["b"]
    for path in KUBERNETES.rglob("*.yaml"):
        for node in yaml.compose_all(path.read_text(encoding="utf-8")):
            assert list(doubled(node)) == [], path


def test_every_file_is_a_part_of_a_kustomization_and_every_one_named_is_there():
    files = {path for path in KUBERNETES.rglob("*") if path.is_file() and path.name not in NOT_COMMITTED}
    mentioned = {path.resolve() for folder in kustomizations() for path in named(folder)}
    missing = {path for path in mentioned if not path.exists()}
    assert {path.name for path in missing} <= NOT_COMMITTED
    for path in mentioned:
        assert path.is_file() or path.name in NOT_COMMITTED or (path / "kustomization.yaml").is_file(), path
    idle = files - mentioned - {folder / "kustomization.yaml" for folder in kustomizations()}
    assert {path.name for path in idle} == COMMITTED
    for folder in kustomizations():
        names = kustomization(folder).get("resources", ())
        assert len(names) == len(set(names)), folder


def test_a_kustomization_says_what_it_is():
    for folder in kustomizations():
        content = kustomization(folder)
        component = folder.parent.name == "components" or folder.name == "secrets"
        kind, version = ("Component", "v1alpha1") if component else ("Kustomization", "v1beta1")
        assert content["kind"] == kind
        assert content["apiVersion"] == f"kustomize.config.k8s.io/{version}"
        known = {"resources", "components", "patches", "configMapGenerator", "secretGenerator", "images", "replicas"}
        assert content.keys() - {"apiVersion", "kind", "namespace"} <= known, (
            "what kustomize does not know, or no longer"
        )


def test_no_secret_is_committed():
    for folder in kustomizations():
        hidden = [path for path in named(folder) if path.name in NOT_COMMITTED]
        assert ("secretGenerator" in kustomization(folder)) is bool(hidden)
        for path in hidden:
            ignored = (folder / ".gitignore").read_text(encoding="utf-8").splitlines()
            assert path.name in ignored or ("*" in ignored and f"!{path.name}" not in ignored)
    assert of_kind(base(), "Secret") == []
    for path in KUBERNETES.rglob("example.env"):
        assert all(value.startswith("replace-me") for value in variables(path).values())
    for path in KUBERNETES.rglob("*"):
        if path.is_file() and path.name not in NOT_COMMITTED:
            text = path.read_text(encoding="utf-8")
            assert not re.search(r"cpk_\w|BEGIN [A-Z ]*PRIVATE|[0-9a-f]{32}", text), path


def test_the_pods_have_no_rights_and_are_bounded():
    assert list(closed(base())) == []


def test_selectors_match_what_they_are_for():
    assert list(selected(base())) == []


def test_network_policies_are_for_pods_that_are_there_and_for_nobody_else():
    assert list(reached(base())) == []


def test_volumes_are_used_and_settings_are_read_only():
    assert list(mounted(base())) == []


def test_replicas_the_autoscaler_and_the_budget_agree():
    assert list(numbers(base())) == []


CONTAINER = ("spec", "template", "spec", "containers", 0)
POD = ("spec", "template", "spec")


@pytest.mark.parametrize(
    ("check", "kind", "path", "value"),
    [
        (closed, "Deployment", (*CONTAINER, "image"), "contextpilot-rag:latest"),
        (closed, "Deployment", (*CONTAINER, "image"), "contextpilot-rag"),
        (closed, "Deployment", (*CONTAINER, "image"), "registry.example:5000/contextpilot-rag:1"),
        (closed, "Deployment", (*CONTAINER, "resources", "limits"), {"cpu": 1}),
        (closed, "Deployment", (*CONTAINER, "securityContext", "readOnlyRootFilesystem"), False),
        (closed, "Deployment", (*CONTAINER, "securityContext", "capabilities"), {"drop": ["NET_RAW"]}),
        (closed, "Deployment", (*POD, "enableServiceLinks"), True),
        (closed, "Deployment", (*POD, "automountServiceAccountToken"), True),
        (closed, "Deployment", (*POD, "securityContext", "runAsUser"), 0),
        (closed, "Deployment", (*POD, "securityContext", "seccompProfile"), {"type": "Unconfined"}),
        (closed, "Deployment", (*POD, "serviceAccountName"), "default"),
        (selected, "Deployment", ("spec", "selector", "matchLabels", "app.kubernetes.io/component"), "log"),
        (selected, "Deployment", (*POD, "topologySpreadConstraints", 0, "labelSelector"), {}),
        (selected, "Service", ("spec", "selector", "app.kubernetes.io/component"), "indx"),
        (selected, "Service", ("spec", "selector"), {"app.kubernetes.io/name": "contextpilot-rag"}),
        (selected, "Service", ("spec", "ports", 0, "targetPort"), "htp"),
        (selected, "Service", ("spec", "ports", 0, "port"), 80),
        (selected, "PodDisruptionBudget", ("spec", "selector", "matchLabels"), {"a": "b"}),
        (selected, "HorizontalPodAutoscaler", ("spec", "scaleTargetRef", "name"), "index"),
        (reached, "NetworkPolicy", ("spec", "podSelector", "matchLabels"), {"a": "b"}),
        (reached, "NetworkPolicy", ("spec", "ingress", 0, "from"), []),
        (reached, "NetworkPolicy", ("spec", "ingress", 0, "ports", 0, "port"), 8766),
        (reached, "NetworkPolicy", ("spec", "ingress", 0, "from", 0, "namespaceSelector"), {}),
        (reached, "NetworkPolicy", ("spec", "egress", 0, "ports"), []),
        (reached, "NetworkPolicy", ("spec", "egress", 1, "ports", 0, "port"), 6380),
        (reached, "NetworkPolicy", ("spec", "egress", 1, "ports", 0, "port"), "log"),
        (reached, "NetworkPolicy", ("spec", "egress", 1, "to", 0, "podSelector", "matchLabels"), {"a": "b"}),
        (mounted, "Deployment", (*CONTAINER, "volumeMounts", 0, "readOnly"), False),
        (mounted, "Deployment", (*CONTAINER, "volumeMounts", 0, "subPath"), "keys.json"),
        (mounted, "Deployment", (*CONTAINER, "volumeMounts", 0, "name"), "key"),
        (numbers, "Deployment", ("spec", "replicas"), 3),
        (numbers, "Deployment", ("spec", "strategy", "rollingUpdate", "maxUnavailable"), 1),
        (numbers, "HorizontalPodAutoscaler", ("spec", "maxReplicas"), 3),
        (numbers, "HorizontalPodAutoscaler", ("spec", "metrics", 0, "resource", "name"), "ephemeral-storage"),
        (numbers, "HorizontalPodAutoscaler", ("spec", "scaleTargetRef", "name"), "index"),
        (numbers, "PodDisruptionBudget", ("spec", "maxUnavailable"), 0),
    ],
)
def test_a_manifest_that_is_wrong_is_found(check, kind, path, value):
    documents = base()
    inside, field = at(the(documents, kind), path)
    inside[field] = value
    assert list(check(documents))


def test_a_reference_to_what_is_not_there_is_found():
    said = list(referenced(base()))
    assert any("there is no Secret context-index-secrets" in one for one in said), "they are not in the base"
    assert not any("ConfigMap" in one or "account" in one for one in said)


def test_images_are_of_the_version_that_stands_here():
    assert dict(c["image"].split(":") for _, c in containers(base()) if "pilot" in c["image"]) == {
        "contextpilot-rag": __version__
    }
    tags = {image["name"]: image["newTag"] for image in kustomization(KUBERNETES / "base")["images"]}
    assert {name: tags[name] for _, c in containers(base()) for name in [c["image"].partition(":")[0]]} == tags
    assert {c["image"] for _, c in containers(base())} == {f"{name}:{tag}" for name, tag in tags.items()}


def test_the_namespace_takes_restricted_pods_only():
    (namespace,) = of_kind(base(), "Namespace")
    assert namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"
    assert namespace["metadata"]["name"] == kustomization(KUBERNETES / "base")["namespace"]


def test_whatever_no_policy_allows_is_refused():
    by_name = {policy["metadata"]["name"]: policy["spec"] for policy in of_kind(base(), "NetworkPolicy")}
    assert by_name["nothing-else"] == {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}
    log = by_name["context-index-log"]
    ((peer,),) = [rule["from"] for rule in log["ingress"]]
    assert peer["podSelector"]["matchLabels"] == by_name["context-index"]["podSelector"]["matchLabels"]
    assert log["egress"] == []
    names, to_log, engines = by_name["context-index"]["egress"]
    assert {(port["port"], port["protocol"]) for port in names["ports"]} == {(53, "UDP"), (53, "TCP")}
    assert to_log["to"] == [{"podSelector": log["podSelector"]}]
    assert engines["to"][0]["podSelector"]["matchLabels"] == {"contextpilot-rag/engine": "true"}
    ((client,),) = [rule["from"] for rule in by_name["context-index"]["ingress"]]
    assert client["podSelector"]["matchLabels"] == {"contextpilot-rag/client": "true"}
    for policy in by_name.values():
        allowed = {"Ingress": policy.get("ingress"), "Egress": policy.get("egress")}
        assert all(kind in policy["policyTypes"] for kind, rules in allowed.items() if rules)


def test_the_readme_names_every_folder_and_label():
    readme = (DEPLOY / "README.md").read_text(encoding="utf-8")
    for folder in kustomizations():
        if folder.parent.name in {"overlays", "components"}:
            assert f"{folder.parent.name}/{folder.name}" in readme
    text = "".join(path.read_text(encoding="utf-8") for path in KUBERNETES.rglob("*.yaml"))
    for label in set(re.findall(r"contextpilot-rag/[a-z]+", text)):
        assert label in readme
    for command in re.findall(r"deploy/kubernetes/[\w/.-]*\w", readme):
        path = DEPLOY.parent / command
        assert path.exists() or path.name in NOT_COMMITTED or "overlays/mine" in command, command
