"""What a built sdist and wheel hold, held against the folder that they were built from."""

from __future__ import annotations

import subprocess
import tarfile
import zipfile
from dataclasses import dataclass
from email.message import Message
from email.parser import HeaderParser
from pathlib import Path, PurePosixPath
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name, parse_sdist_filename, parse_wheel_filename
from packaging.version import Version

SOURCES = {".py", ".typed", ".css", ".html", ".jsonl"}
"""Endings of what a wheel may carry."""
LARGEST = 1_000_000
"""Bytes of one file: recorded traces and models are larger."""
MADE = {"PKG-INFO", ".gitignore"}
"""What the build adds to an sdist by itself."""


@dataclass(frozen=True)
class Built:
    """One built file.

    Attributes:
        name: of the file.
        version: by its name.
        files: what is in it, with sizes in bytes; an sdist's without its top folder.
        metadata: of the distribution.
    """

    name: str
    version: Version
    files: dict[str, int]
    metadata: Message


def complaints(project: Path, dist: Path) -> list[str]:
    """What is wrong with a project's sdist and wheel; empty if nothing is.

    Args:
        project: its folder.
        dist: where its sdist and its wheel are, perhaps beside others.
    """
    name = settings_of(project)["project"]["name"]
    wheels = [built for file in sorted(dist.glob("*.whl")) if (built := _wheel(file, name))]
    sdists = [built for file in sorted(dist.glob("*.tar.gz")) if (built := _sdist(file, name))]
    if len(wheels) != 1 or len(sdists) != 1:
        return [f"{name}: there should be one wheel and one sdist, not {len(wheels)} and {len(sdists)}"]
    wheel, sdist = wheels[0], sdists[0]
    found = [*_of_wheel(wheel, project), *_of_sdist(sdist, project)]
    if wheel.version != sdist.version:
        found.append(f"the wheel is version {wheel.version}, the sdist {sdist.version}")
    if name != "contextpilot-rag":
        found += _of_needs(wheel, dist)
    return [f"{name}: {complaint}" for complaint in found]


def _of_wheel(wheel: Built, project: Path) -> list[str]:
    packages = [
        project / folder for folder in settings_of(project)["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    ]
    expected = {
        file.relative_to(project).as_posix()
        for package in packages
        for file in package.rglob("*")
        if file.is_file() and file.suffix in SOURCES
    }
    about = {file for file in wheel.files if ".dist-info/" in file}
    found = [f"the wheel lacks {file}" for file in sorted(expected - wheel.files.keys())]
    found += [
        f"the wheel has {file}, which is no source of the package"
        for file in sorted(wheel.files.keys() - expected - about)
    ]
    if not any(file.endswith("/py.typed") for file in wheel.files):
        found.append("the wheel has no py.typed")
    if not any(file.endswith(".dist-info/licenses/LICENSE") for file in about):
        found.append("the wheel has no LICENSE")
    if not wheel.metadata.get_payload().strip():
        found.append("the wheel's metadata has no description")
    return found + [
        f"the metadata does not say {key}"
        for key in ("Requires-Python", "License-Expression", "Summary")
        if not wheel.metadata[key]
    ]


def _of_sdist(sdist: Built, project: Path) -> list[str]:
    found = [
        f"the sdist lacks {file}"
        for file in ("pyproject.toml", "README.md", "LICENSE", "PKG-INFO")
        if file not in sdist.files
    ]
    found += [f"{file} in the sdist has {size:,} bytes" for file, size in sdist.files.items() if size > LARGEST]
    tracked = _tracked(project)
    if tracked is not None:
        strangers = sorted(sdist.files.keys() - tracked - MADE)
        found += [f"the sdist has {file}, which is not under version control" for file in strangers]
    return found


def _of_needs(wheel: Built, dist: Path) -> list[str]:
    """That an integration takes the core that is built beside it, and not just any."""
    core = next((built for file in dist.glob("*.whl") if (built := _wheel(file, "contextpilot-rag"))), None)
    needs = [Requirement(line) for line in wheel.metadata.get_all("Requires-Dist") or ()]
    ours = [need for need in needs if canonicalize_name(need.name) == "contextpilot-rag" and need.marker is None]
    if core is None or not ours:
        return ["there is no core beside it" if core is None else "it does not need the core"]
    specifier = ours[0].specifier
    found = (
        []
        if specifier.contains(core.version, prereleases=True)
        else [f"it needs contextpilot-rag{specifier}, not {core.version}"]
    )
    if specifier.contains(Version(f"{core.version.major + 1}.0"), prereleases=True):
        found.append(f"it takes the next major version of the core, too: contextpilot-rag{specifier}")
    return found


def _wheel(file: Path, name: str) -> Built | None:
    of, version, _, _ = parse_wheel_filename(file.name)
    if of != canonicalize_name(name):
        return None
    with zipfile.ZipFile(file) as archive:
        files = {info.filename: info.file_size for info in archive.infolist() if not info.is_dir()}
        about = next(inside for inside in files if inside.endswith(".dist-info/METADATA"))
        return Built(file.name, version, files, HeaderParser().parsestr(archive.read(about).decode()))


def _sdist(file: Path, name: str) -> Built | None:
    of, version = parse_sdist_filename(file.name)
    if of != canonicalize_name(name):
        return None
    with tarfile.open(file) as archive:
        files = {
            str(PurePosixPath(*PurePosixPath(member.name).parts[1:])): member.size
            for member in archive
            if member.isfile()
        }
        inside = archive.extractfile(f"{file.name.removesuffix('.tar.gz')}/PKG-INFO")
        text = "" if inside is None else inside.read().decode()
        return Built(file.name, version, files, HeaderParser().parsestr(text))


def metadata_of(wheel: Path) -> Message:
    """The metadata in a wheel."""
    with zipfile.ZipFile(wheel) as archive:
        about = next(inside for inside in archive.namelist() if inside.endswith(".dist-info/METADATA"))
        return HeaderParser().parsestr(archive.read(about).decode())


def settings_of(project: Path) -> dict[str, Any]:
    """A folder's pyproject.toml."""
    try:
        import tomllib
    except ModuleNotFoundError:  # Python 3.10
        import tomli as tomllib  # type: ignore[import-not-found,no-redef,unused-ignore]
    return tomllib.loads((project / "pyproject.toml").read_text(encoding="utf-8"))


def _tracked(project: Path) -> set[str] | None:
    """The files under version control in a folder, or None where there is no Git to ask."""
    try:
        asked = subprocess.run(["git", "ls-files", "-z"], cwd=project, capture_output=True, check=True)  # noqa: S607
    except (OSError, subprocess.CalledProcessError):
        return None
    return set(asked.stdout.decode().split("\0"))
