"""What network policies have to be: for pods that are there, and for nobody that is not named."""

from __future__ import annotations

from collections.abc import Iterator

from .manifests import Doc, of_kind, pods, port_of, those, title


def reached(documents: list[Doc]) -> Iterator[str]:
    """Each policy selects pods, names its peers and ports, and they are there."""
    templates = [pod for _, pod in pods(documents)]
    for document in of_kind(documents, "NetworkPolicy"):
        yield from _policy(title(document), document["spec"], templates)


def _policy(name: str, spec: Doc, templates: list[Doc]) -> Iterator[str]:
    labels = spec["podSelector"].get("matchLabels", {})
    own = those(labels, templates)
    if not own:
        yield f"{name}: selects no pods"
    yield from _names(name, [*spec.get("ingress", ()), *spec.get("egress", ())])
    for rule in spec.get("ingress") or ():
        if not rule.get("from") or not rule.get("ports"):
            yield f"{name}: lets everybody in"
        for port in rule.get("ports", ()):
            if any(port_of(pod, port["port"]) is None for pod in own):
                yield f"{name}: there is no port {port['port']}"
        yield from _peers(name, rule.get("from", ()), templates)
    for rule in spec.get("egress") or ():
        if not rule.get("to") or not rule.get("ports"):
            yield f"{name}: lets everything out"
        chosen = list(_inside(rule.get("to", ()), templates))
        for port in rule.get("ports", ()):
            if any(port_of(pod, port["port"]) is None for pod in chosen):
                yield f"{name}: there is no port {port['port']} where it goes"
        yield from _peers(name, rule.get("to", ()), templates)


def _names(name: str, rules: list[Doc]) -> Iterator[str]:
    for rule in rules:
        yield from (
            f"{name}: port {p['port']} is a name" for p in rule.get("ports", ()) if not isinstance(p["port"], int)
        )


def _peers(name: str, peers: list[Doc], templates: list[Doc]) -> Iterator[str]:
    for peer in peers:
        if not peer.get("podSelector", {}).get("matchLabels"):
            yield f"{name}: a peer is every pod of a namespace"
        if "namespaceSelector" in peer and not peer["namespaceSelector"].get("matchLabels"):
            yield f"{name}: a peer may be of any namespace"
        if "namespaceSelector" not in peer and not list(_inside([peer], templates)):
            yield f"{name}: a peer is no pod of ours"


def _inside(peers: list[Doc], templates: list[Doc]) -> Iterator[Doc]:
    for peer in peers:
        labels = peer.get("podSelector", {}).get("matchLabels", {})
        if "namespaceSelector" not in peer:
            yield from those(labels, templates)
