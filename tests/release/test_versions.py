"""What the release's own files say fits together: versions, ranges, classifiers, the changelog, the workflows."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.version import Version

import contextpilot_rag
from contextpilot_rag import __version__
from scripts import release_audit, release_install, release_notes, release_types
from scripts.release_contents import settings_of

ROOT = Path(__file__).resolve().parent.parent.parent
if not (ROOT / "integrations").is_dir():
    pytest.skip("the integrations stand in the repository, not in this package", allow_module_level=True)


PROJECTS = {file.parent.name: settings_of(file.parent) for file in ROOT.glob("integrations/*/pyproject.toml")}
CORE = settings_of(ROOT)
WORKFLOWS = {
    file.stem: yaml.safe_load(file.read_text(encoding="utf-8"))
    for file in (ROOT / ".github" / "workflows").glob("*.yml")
}


def pythons(project: dict[str, Any]) -> list[str]:
    prefix = "Programming Language :: Python :: 3."
    return [line.removeprefix(prefix[:-2]) for line in project["project"]["classifiers"] if line.startswith(prefix)]


def test_all_packages_have_one_version():
    assert set(release_notes.versions().values()) == {__version__}
    assert release_notes.versions().keys() == {"contextpilot-rag", *PROJECTS}


@pytest.mark.parametrize("name", PROJECTS)
def test_an_integration_takes_this_core_and_not_the_next_major_one(name):
    needs = [Requirement(line) for line in PROJECTS[name]["project"]["dependencies"]]
    (core,) = [need for need in needs if need.name == "contextpilot-rag"]
    assert core.specifier.contains(__version__, prereleases=True)
    assert not core.specifier.contains(f"{Version(__version__).major + 1}.0", prereleases=True)


@pytest.mark.parametrize("project", [CORE, *PROJECTS.values()], ids=["core", *PROJECTS])
def test_classifiers_name_the_pythons_that_are_tested(project):
    assert pythons(project) == list(release_install.SUPPORTED)
    assert project["project"]["requires-python"] == f">={release_install.SUPPORTED[0]}"
    assert WORKFLOWS["tests"]["jobs"]["test"]["strategy"]["matrix"]["python"] == list(release_install.SUPPORTED)


def test_every_dependency_has_a_floor_that_can_be_tried_and_a_ceiling():
    for project in (CORE, *PROJECTS.values()):
        for line in project["project"]["dependencies"]:
            operators = {clause.operator for clause in Requirement(line).specifier}
            assert {">=", "<"} <= operators, line


def test_the_changelog_tells_of_this_version():
    assert "### Added" in release_notes.notes(__version__, (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"))


def test_notes_are_one_versions_part():
    changelog = "# Changelog\n\n## Unreleased\n\n## 1.1.0 (2027-01-02)\n\n- new\n\n## 1.0.0 (2026-11-30)\n\n- old\n"
    assert release_notes.notes("1.1.0", changelog) == "- new"
    assert release_notes.notes("1.0.0", changelog) == "- old"
    with pytest.raises(LookupError, match=r"no heading '## 1\.0 "):
        release_notes.notes("1.0", changelog)
    with pytest.raises(LookupError, match="no heading"):
        release_notes.notes("Unreleased", changelog)
    with pytest.raises(LookupError, match="says nothing"):
        release_notes.notes("1.0.0", "## 1.0.0 (2026-11-30)\n")


def test_a_tag_of_another_version_is_refused(capsys):
    with pytest.raises(SystemExit, match=re.escape(f"contextpilot-rag is {__version__}")):
        release_notes.main("v0.0.1")
    release_notes.main(f"v{__version__}")
    assert "### Added" in capsys.readouterr().out


def test_the_audit_looks_up_every_version_that_was_tested():
    pins = release_audit.pins(
        "# a comment\nx==1; python_version == '3.10'\nx==2; python_version == '3.11'\ny==3.0.post1\n"
    )
    assert pins == {("x", "1"), ("x", "2"), ("y", "3.0.post1")}
    assert release_audit.lists(pins) == [["x==1", "y==3.0.post1"], ["x==2"]]
    for file in release_audit.FILES:
        assert len(release_audit.pins((ROOT / file).read_text(encoding="utf-8"))) > 50


@pytest.mark.parametrize("name", ["tests", "release"])
def test_workflows_may_only_read_but_for_the_job_that_needs_more(name):
    assert WORKFLOWS[name]["permissions"] == {"contents": "read"}
    more = {job: told["permissions"] for job, told in WORKFLOWS[name]["jobs"].items() if "permissions" in told}
    assert more == ({"publish": {"id-token": "write"}, "page": {"contents": "write"}} if name == "release" else {})


@pytest.mark.parametrize("name", ["tests", "release"])
def test_workflows_only_call_actions_with_a_version_and_targets_that_exist(name):
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    for job in WORKFLOWS[name]["jobs"].values():
        assert job["timeout-minutes"] <= 60
        for step in job["steps"]:
            assert "uses" not in step or re.fullmatch(
                r"(actions/[a-z-]+@v\d+|pypa/gh-action-pypi-publish@release/v1)", step["uses"]
            )
            assert set(re.findall(r"^make (.+)$", step.get("run", ""), re.MULTILINE)) <= targets
            assert "${{" not in step.get("run", ""), "what a stranger names goes through env"


def test_the_types_that_are_checked_are_those_of_what_the_reference_shows():
    names = release_types.documented("contextpilot_rag")
    assert {f"contextpilot_rag.{name}" for name in contextpilot_rag.__all__} <= {*names, "contextpilot_rag.errors"}
    assert release_types.documented("mem0_contextpilot")


def test_workflows_name_no_address():
    for file in (ROOT / ".github" / "workflows").glob("*.yml"):
        assert "://" not in file.read_text(encoding="utf-8")
