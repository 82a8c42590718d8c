"""scripts/release_contents.py: what it says of built files that are not as they should be."""

from __future__ import annotations

import io
import tarfile
import zipfile
from pathlib import Path

import pytest

from scripts.release_contents import LARGEST, complaints
from scripts.release_install import floor

PYPROJECT = """[project]
name = "some-integration"
[tool.hatch.build.targets.wheel]
packages = ["some"]
"""
METADATA = """Metadata-Version: 2.4
Name: some-integration
Version: {version}
Summary: Some.
Requires-Python: >=3.10
License-Expression: Apache-2.0
Requires-Dist: contextpilot-rag{core}
Requires-Dist: numpy>=1.26,<3
Requires-Dist: pyzmq<28,>=25.1; extra == "testing"
Requires-Dist: pytest>=8; extra == "dev"

A description.
"""
WHEEL = {"some/__init__.py": "", "some/py.typed": "", "some-1.dist-info/licenses/LICENSE": "A licence"}
SDIST = {"some/__init__.py": "", "some/py.typed": "", "pyproject.toml": PYPROJECT, "README.md": "", "LICENSE": ""}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    (folder / "some").mkdir(parents=True)
    for name in ("some/__init__.py", "some/py.typed"):
        (folder / name).touch()
    (folder / "pyproject.toml").write_text(PYPROJECT)
    return folder


def built(project: Path, wheel=WHEEL, sdist=SDIST, *, version="1.0.0", core=">=1.0,<2", sdist_version="1.0.0") -> Path:
    dist = project.parent / "dist"
    dist.mkdir(exist_ok=True)
    metadata = METADATA.format(version=version, core=core)
    with zipfile.ZipFile(dist / f"some_integration-{version}-py3-none-any.whl", "w") as archive:
        for name, text in (wheel | {f"some_integration-{version}.dist-info/METADATA": metadata}).items():
            archive.writestr(name, text)
    with zipfile.ZipFile(dist / "contextpilot_rag-1.0.0-py3-none-any.whl", "w") as archive:
        archive.writestr("contextpilot_rag-1.0.0.dist-info/METADATA", "Name: contextpilot-rag\nVersion: 1.0.0\n")
    top = f"some_integration-{sdist_version}"
    with tarfile.open(dist / f"{top}.tar.gz", "w:gz") as archive:
        for name, text in (sdist | {"PKG-INFO": metadata}).items():
            member = tarfile.TarInfo(f"{top}/{name}")
            member.size = len(text)
            archive.addfile(member, io.BytesIO(text.encode()))
    return dist


def without(files: dict[str, str], name: str) -> dict[str, str]:
    return {key: text for key, text in files.items() if key != name}


def test_what_is_as_it_should_be_gets_no_complaint(project):
    assert complaints(project, built(project)) == []


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"wheel": without(WHEEL, "some/py.typed")}, "the wheel lacks some/py.typed"),
        ({"wheel": without(WHEEL, "some/__init__.py")}, "the wheel lacks some/__init__.py"),
        ({"wheel": without(WHEEL, "some-1.dist-info/licenses/LICENSE")}, "the wheel has no LICENSE"),
        ({"wheel": WHEEL | {"tests/test_some.py": ""}}, "the wheel has tests/test_some.py"),
        ({"wheel": WHEEL | {"some/__pycache__/x.pyc": ""}}, "no source of the package"),
        ({"sdist": without(SDIST, "LICENSE")}, "the sdist lacks LICENSE"),
        ({"sdist": SDIST | {"trace.jsonl": "x" * (LARGEST + 1)}}, "trace.jsonl in the sdist has 1,000,001 bytes"),
        ({"sdist_version": "0.9"}, "the wheel is version 1.0.0, the sdist 0.9"),
        ({"core": ""}, "takes the next major version"),
        ({"core": ">=1.1,<2"}, "not 1.0.0"),
        ({"core": ">=1.0"}, "takes the next major version"),
    ],
)
def test_what_is_not_is_said(project, given, says):
    found = complaints(project, built(project, **given))
    assert any(says in complaint for complaint in found), found
    assert all(complaint.startswith("some-integration: ") for complaint in found)


def test_a_file_that_nobody_committed_is_said(project):
    from subprocess import run

    run(["git", "init", "-q"], cwd=project, check=True)
    run(["git", "add", "some", "pyproject.toml"], cwd=project, check=True)
    (project / "README.md").touch()
    found = complaints(project, built(project))
    assert "some-integration: the sdist has README.md, which is not under version control" in found
    assert not any("some/__init__.py" in complaint for complaint in found)


def test_two_wheels_of_one_package_are_said(project):
    built(project, version="0.9.0")
    assert complaints(project, built(project)) == [
        "some-integration: there should be one wheel and one sdist, not 2 and 1"
    ]


def test_the_floor_is_what_the_metadata_allows_of_what_is_installed(project):
    dist = built(project)
    assert floor(next(dist.glob("some*.whl"))).split() == ["contextpilot-rag==1.0", "numpy==1.26", "pyzmq==25.1"]
