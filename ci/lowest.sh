#!/usr/bin/env bash
# Tests with the lowest versions of dependencies that pyproject.toml allows: minutes on two cores.
#
#   ci/lowest.sh                     the tests of rows, types, conditions, SQL and commands
#   ci/lowest.sh tests/table/read    these
#
# Only what pyproject.toml names is at its lowest; what those need in their turn is the newest that fits.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

tests=("$@")
if [ "${#tests[@]}" = 0 ]; then
    tests=(tests/common tests/cli tests/sql tests/table/types tests/table/write tests/table/read)
fi
use_venv test
here="$ROOT/build/lowest"
say "install the lowest versions (log: build/lowest.log)"
{
    "$VENV/bin/python" -m venv --clear "$here"
    "$here/bin/pip" install --upgrade 'pip>=25.1' uv
    "$VENV/bin/python" - >"$here/wanted.txt" <<'PYTHON'
import tomllib
from pathlib import Path

project = tomllib.loads(Path("pyproject.toml").read_text())["project"]
extras = project["optional-dependencies"]
print("\n".join([*project["dependencies"], *extras["cli"], *extras["sql"]]))
PYTHON
    "$here/bin/uv" pip install --python "$here/bin/python" --resolution lowest-direct -r "$here/wanted.txt"
    "$here/bin/uv" pip freeze --python "$here/bin/python" >"$here/lowest.txt"
    # What tests need besides, without lifting what is there.
    "$here/bin/uv" pip install --python "$here/bin/python" -c "$here/lowest.txt" \
        hypothesis mmh3 'pandas>=2.2,<3' 'polars==1.20.*' pytest pytest-benchmark pytest-timeout xxhash
} >"$ROOT/build/lowest.log" 2>&1 || die "the versions cannot be had together: build/lowest.log"
cat "$here/lowest.txt"
say "tests"
# Its cases are half floats made of Python's, which pyarrow 19 takes from numpy alone.
left=(--ignore=tests/common/test_types_of_predicates.py)
PYTHONPATH="$ROOT" VIRTUAL_ENV="$here" PATH="$here/bin:$PATH" \
    "$here/bin/python" -m pytest -q -p no:cacheprovider "${left[@]}" "${tests[@]}"
