"""The manifests as they stand, read without a cluster: documents, kustomizations, and what a generator makes."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from contextpilot_rag.service.keyfile import KeyFile

Doc = dict[str, Any]

DEPLOY = Path(__file__).parents[2] / "deploy"
KUBERNETES = DEPLOY / "kubernetes"
KUBECTL = shutil.which("kubectl")
FOREIGN = {"ServiceMonitor"}  # a kind that a cluster has only where somebody installed it: no schema of Kubernetes' own
TEMPLATED = {"Deployment", "StatefulSet"}
PASSWORD = "0123456789abcdef0123456789abcdef"


def loaded(text: str) -> list[Doc]:
    """All documents of a text."""
    yaml = pytest.importorskip("yaml", reason="PyYAML is not installed")
    whole = [document for document in yaml.safe_load_all(text) if document]
    return list(json.loads(json.dumps(whole)))  # what is an alias in the file is a thing of its own here


def read(path: Path) -> list[Doc]:
    """All documents of a file."""
    return loaded(path.read_text(encoding="utf-8"))


def kustomizations(root: Path = KUBERNETES) -> list[Path]:
    """All folders that are built, or a part of what is built."""
    return sorted(path.parent for path in root.rglob("kustomization.yaml"))


def kustomization(folder: Path) -> Doc:
    """What a folder's own file says."""
    (content,) = read(folder / "kustomization.yaml")
    return content


def named(folder: Path) -> Iterator[Path]:
    """What a kustomization names, as paths: files and folders, there or not."""
    content = kustomization(folder)
    for name in (*content.get("resources", ()), *content.get("components", ())):
        yield folder / name
    for patch in content.get("patches", ()):
        if "path" in patch:
            yield folder / patch["path"]
    for generator in (*content.get("configMapGenerator", ()), *content.get("secretGenerator", ())):
        for name in (*generator.get("files", ()), *generator.get("envs", ())):
            yield folder / name.rpartition("=")[2]


def generated(folder: Path) -> Iterator[Doc]:
    """The ConfigMaps of a kustomization, without suffixes."""
    for generator in kustomization(folder).get("configMapGenerator", ()):
        data = {Path(name).name: (folder / name).read_text(encoding="utf-8") for name in generator.get("files", ())}
        for name in generator.get("envs", ()):
            data |= variables(folder / name)
        yield {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": generator["name"]}, "data": data}


def variables(path: Path) -> dict[str, str]:
    """What a file of variables says."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))


def base() -> list[Doc]:
    """What base/ says, without a tool that builds it: it has no patches."""
    folder = KUBERNETES / "base"
    assert "patches" not in kustomization(folder)
    assert "components" not in kustomization(folder)
    resources = [document for name in kustomization(folder)["resources"] for document in read(folder / name)]
    return [*resources, *generated(folder)]


def filled(folder: Path) -> Path:
    """A copy of deploy/ with secrets that are nobody's, to be built.

    Returns:
        Its folder of manifests.
    """
    root = Path(shutil.copytree(DEPLOY, folder / "deploy")) / "kubernetes"
    secrets = f"LOG_PASSWORD={PASSWORD}\nSALT_SECRET={PASSWORD[::-1]}\n"
    (root / "secrets" / "secrets.env").write_text(secrets, encoding="utf-8")
    (root / "secrets" / "keys.json").write_bytes(msgspec.json.encode(KeyFile()))
    (root / "components" / "monitoring" / "operator.env").write_text("KEY=cpk_none\n", encoding="utf-8")
    return root


def built(folder: Path, *options: str) -> list[Doc]:
    """What kustomize makes of a folder.

    Raises:
        AssertionError: it makes nothing of it.
    """
    if KUBECTL is None:
        pytest.skip("there is no kubectl to build the kustomizations with")
    command = [KUBECTL, "kustomize", *options, str(folder)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert result.returncode == 0, result.stderr
    assert "deprecated" not in result.stderr, result.stderr
    return loaded(result.stdout)


def title(document: Doc) -> str:
    """What messages call a document."""
    return f"{document['kind']} {document['metadata']['name']}"


def of_kind(documents: list[Doc], *kinds: str) -> list[Doc]:
    """Those of these kinds."""
    return [document for document in documents if document["kind"] in kinds]


def the(documents: list[Doc], kind: str, component: str = "") -> Doc:
    """The only one of its kind, or of several the index's, or the log's."""
    found = of_kind(documents, kind)
    if len(found) > 1:
        name = "context-index-log" if component == "log" else "context-index"
        found = [one for one in found if one["metadata"]["name"] == name]
    (only,) = found
    return only


def pods(documents: list[Doc]) -> Iterator[tuple[str, Doc]]:
    """Each pod that is described: whose it is, and its template."""
    for document in of_kind(documents, *TEMPLATED):
        yield title(document), document["spec"]["template"]


def containers(documents: list[Doc]) -> Iterator[tuple[str, Doc]]:
    """Each container, those that prepare others, too."""
    for whose, pod in pods(documents):
        for container in (*pod["spec"].get("initContainers", ()), *pod["spec"]["containers"]):
            yield f"{whose}, container {container['name']}", container


def those(labels: dict[str, str], templates: list[Doc]) -> list[Doc]:
    """The pods that have these labels."""
    return [pod for pod in templates if labels.items() <= pod["metadata"]["labels"].items()]


def port_of(pod: Doc, port: int | str) -> int | None:
    """The number of a pod's port, by its name or itself; None: there is none."""
    for container in pod["spec"]["containers"]:
        for one in container.get("ports", ()):
            if port in (one.get("name"), one["containerPort"]):
                return int(one["containerPort"])
    return None
