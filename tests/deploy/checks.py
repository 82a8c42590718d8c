"""What has to hold of manifests beyond their schemas. Each check says what is wrong; nothing, if nothing is."""

from __future__ import annotations

import re
from collections.abc import Iterator

from .manifests import Doc, containers, of_kind, pods, port_of, those, title


def closed(documents: list[Doc]) -> Iterator[str]:
    """No rights, no token, no variables of others, bounded, and known by version."""
    for whose, pod in pods(documents):
        spec = pod["spec"]
        wanted = {"automountServiceAccountToken": False, "enableServiceLinks": False}
        yield from (f"{whose}: {name} is not {value}" for name, value in wanted.items() if spec.get(name) is not value)
        context = spec.get("securityContext", {})
        if context.get("runAsNonRoot") is not True or not context.get("runAsUser"):
            yield f"{whose}: may be root"
        if context.get("seccompProfile") != {"type": "RuntimeDefault"}:
            yield f"{whose}: no seccomp profile"
        if any(spec.get(name) for name in ("hostNetwork", "hostPID", "hostIPC")):
            yield f"{whose}: shares the node's"
        if spec.get("serviceAccountName", "default") == "default":
            yield f"{whose}: has no account of its own"
        if any("hostPath" in volume for volume in spec.get("volumes", ())):
            yield f"{whose}: sees the node's files"
    for whose, container in containers(documents):
        context = container.get("securityContext", {})
        if context != {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }:
            yield f"{whose}: its security context is {context}"
        resources = container.get("resources", {})
        for kind in ("requests", "limits"):
            if set(resources.get(kind, ())) != {"cpu", "memory"}:
                yield f"{whose}: {kind} are not set"
        name, colon, tag = container["image"].rpartition(":")
        if not colon or not re.fullmatch(r"\d[\w.-]*", tag):
            yield f"{whose}: no version in {container['image']}"
        if re.search(r"[.:]", name.partition("/")[0]) and "/" in name:
            yield f"{whose}: a registry's host in {container['image']}"


def selected(documents: list[Doc]) -> Iterator[str]:
    """Who is selected is there, and has the ports that are named."""
    templates = [pod for _, pod in pods(documents)]
    for document in documents:
        name, spec = title(document), document.get("spec", {})
        match document["kind"]:
            case "Deployment" | "StatefulSet":
                yield from _own(name, spec, templates)
            case "Service":
                yield from _served(name, spec, templates)
            case "PodDisruptionBudget" if len(those(spec["selector"]["matchLabels"], templates)) != 1:
                yield f"{name}: selects no pods"
            case "HorizontalPodAutoscaler":
                target = spec["scaleTargetRef"]
                if (target["kind"], target["name"]) not in {(d["kind"], d["metadata"]["name"]) for d in documents}:
                    yield f"{name}: there is no {target['kind']} {target['name']}"
            case "ServiceMonitor":
                yield from _watched(name, spec, of_kind(documents, "Service"))


def _own(name: str, spec: Doc, templates: list[Doc]) -> Iterator[str]:
    if those(spec["selector"]["matchLabels"], templates) != [spec["template"]]:
        yield f"{name}: selects others than its own pods"
    for spread in spec["template"]["spec"].get("topologySpreadConstraints", ()):
        if spread.get("labelSelector") != spec["selector"]:
            yield f"{name}: spreads others than its own pods"


def _served(name: str, spec: Doc, templates: list[Doc]) -> Iterator[str]:
    chosen = those(spec["selector"], templates)
    if len(chosen) != 1:
        yield f"{name}: selects {len(chosen)} kinds of pods"
    for port in spec["ports"]:
        if [port_of(pod, port["targetPort"]) for pod in chosen] != [port["port"]]:
            yield f"{name}: port {port['port']} is another in the pod"


def _watched(name: str, spec: Doc, services: list[Doc]) -> Iterator[str]:
    labels = spec["selector"]["matchLabels"].items()
    chosen = [one for one in services if labels <= one["metadata"]["labels"].items()]
    ports = {port["name"] for one in chosen for port in one["spec"]["ports"]}
    if len(chosen) != 1 or {one["port"] for one in spec["endpoints"]} - ports:
        yield f"{name}: no such port of a Service"


def referenced(documents: list[Doc], given: frozenset[str] = frozenset()) -> Iterator[str]:
    """What pods name is there, in their namespace, with its keys. `given`: Secrets that others make."""
    found = {(one["kind"], one["metadata"]["name"]): one for one in documents}
    spaces = {one["metadata"].get("namespace") for one in documents if one["kind"] != "Namespace"}
    if len(spaces) != 1:
        yield f"namespaces: {spaces}"
    for whose, pod in pods(documents):
        account = pod["spec"].get("serviceAccountName")
        if ("ServiceAccount", account) not in found:
            yield f"{whose}: there is no account {account}"
        for kind, name, keys in _references(pod["spec"]):
            if kind == "Secret" and name in given:
                continue
            if (kind, name) not in found:
                yield f"{whose}: there is no {kind} {name}"
            elif keys - set(found[kind, name].get("data", {})):
                yield f"{whose}: {kind} {name} has no {keys}"


def _references(spec: Doc) -> Iterator[tuple[str, str, set[str]]]:
    for volume in spec.get("volumes", ()):
        if "configMap" in volume:
            yield "ConfigMap", volume["configMap"]["name"], _items(volume["configMap"])
        if "secret" in volume:
            yield "Secret", volume["secret"]["secretName"], _items(volume["secret"])
    for container in (*spec.get("initContainers", ()), *spec["containers"]):
        for one in container.get("envFrom", ()):
            for field, kind in (("configMapRef", "ConfigMap"), ("secretRef", "Secret")):
                if field in one:
                    yield kind, one[field]["name"], set()
        for one in container.get("env", ()):
            source = one.get("valueFrom", {})
            for field, kind in (("configMapKeyRef", "ConfigMap"), ("secretKeyRef", "Secret")):
                if field in source:
                    yield kind, source[field]["name"], {source[field]["key"]}


def _items(source: Doc) -> set[str]:
    return {item["key"] for item in source.get("items", ())}


def mounted(documents: list[Doc]) -> Iterator[str]:
    """Each volume is there, is used, and is written to only where it is a place for that."""
    for whose, pod in pods(documents):
        volumes = {volume["name"]: volume for volume in pod["spec"].get("volumes", ())}
        claims = {
            claim["metadata"]["name"]
            for one in documents
            if one.get("spec", {}).get("template") is pod
            for claim in one["spec"].get("volumeClaimTemplates", ())
        }
        used = set()
        for container in (*pod["spec"].get("initContainers", ()), *pod["spec"]["containers"]):
            for mount in container.get("volumeMounts", ()):
                used.add(mount["name"])
                if mount["name"] not in volumes.keys() | claims:
                    yield f"{whose}: there is no volume {mount['name']}"
                fixed = {"configMap", "secret"} & volumes.get(mount["name"], {}).keys()
                if fixed and not mount.get("readOnly"):
                    yield f"{whose}: {mount['name']} is mounted to be written to"
                if "subPath" in mount:
                    yield f"{whose}: {mount['name']} is mounted as a file, which stays as it is"
        yield from (f"{whose}: volume {name} is not used" for name in (volumes.keys() | claims) - used)


def numbers(documents: list[Doc]) -> Iterator[str]:
    """Replicas, the autoscaler, the budget and the rollout agree."""
    scaled = {one["spec"]["scaleTargetRef"]["name"]: one for one in of_kind(documents, "HorizontalPodAutoscaler")}
    for deployment in of_kind(documents, "Deployment"):
        name, spec = deployment["metadata"]["name"], deployment["spec"]
        scaler = scaled.get(name)
        if scaler is not None:
            least, most = scaler["spec"]["minReplicas"], scaler["spec"]["maxReplicas"]
            if "replicas" in spec:
                yield f"{name}: each apply would undo the autoscaler"
            if not 3 <= least < most:
                yield f"{name}: {least} to {most} replicas"
            if scaler["spec"]["behavior"]["scaleDown"]["stabilizationWindowSeconds"] < 300:
                yield f"{name}: it is scaled down at once"
            for metric in scaler["spec"]["metrics"]:
                if any(
                    metric["resource"]["name"] not in c["resources"]["requests"] for _, c in containers([deployment])
                ):
                    yield f"{name}: scaled by what is not requested"
        elif "replicas" not in spec:
            yield f"{name}: nobody says how many"
        rollout = spec["strategy"]["rollingUpdate"]
        if rollout["maxUnavailable"] != 0 or rollout["maxSurge"] < 1:
            yield f"{name}: an upgrade takes replicas away"
    for budget in of_kind(documents, "PodDisruptionBudget"):
        if "minAvailable" in budget["spec"] or budget["spec"]["maxUnavailable"] != 1:
            yield f"{title(budget)}: a node may not be drained, or all of them at once"
