#!/bin/sh
# Tests the packages under integrations/ with the newest or the oldest supported frameworks: integrations.sh newest|oldest
# Makes a virtual environment of its own for them, type-checks (newest only) and runs each package's tests.
# More arguments go to pytest.
set -eu
which=$1
shift
cd "$(dirname "$0")/.."
venv=.venv-$which
constraints=integrations/constraints/$which.txt
[ -f "$constraints" ] || { echo "integrations.sh: newest or oldest, not '$which'" >&2; exit 1; }

# Only what may change what is installed: a stamp that is newer than these files stands for all of them.
stamp=$venv/.ready
if [ ! -f "$stamp" ] || [ -n "$(find pyproject.toml "$constraints" integrations/*/pyproject.toml scripts/setup.sh -newer "$stamp")" ]; then
    [ "$which" = newest ] || export STRICT=1 # the newest versions in their place would prove nothing
    CONSTRAINTS="$constraints" PYTHON="${PYTHON:-python3}" sh scripts/setup.sh "$venv" demo integrations/*/
    touch "$stamp"
fi

failed=
for package in integrations/*/; do
    [ -f "$package/pyproject.toml" ] || continue
    echo "== $package with the $which frameworks"
    (
        cd "$package"
        python=../../$venv/bin/python
        [ "$which" = oldest ] || "$python" -m mypy
        "$python" -m pytest -q "$@"
    ) || failed="$failed $package"
done
[ -z "$failed" ] || { echo "Failed with the $which frameworks:$failed" >&2; exit 1; }
