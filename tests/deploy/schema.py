"""The schema checker: what Kubernetes' own schemas say of a manifest."""

from __future__ import annotations

import pytest

from .manifests import FOREIGN, Doc, title

OLDEST, NEWEST = "1.30", "1.37"  # of Kubernetes, that the manifests are meant for


def schema_faults(documents: list[Doc], version: str) -> list[str]:
    """What a version of Kubernetes would not take, with what it does not know, too."""
    checker = pytest.importorskip("kubernetes_validate", reason="kubernetes-validate is not installed")
    said = []
    for document in documents:
        if document["kind"] in FOREIGN:
            continue
        try:
            against = checker.validate(document, version, strict=True)
        except checker.ValidationError as error:
            where = ".".join(map(str, error.absolute_path))
            said.append(f"{title(document)}: {where}: {error.message}")
        except checker.utils.SchemaNotFoundError as error:
            said.append(f"{title(document)}: {error.message}")
        else:
            assert against == version, f"there is no schema of {version}"
    return said
