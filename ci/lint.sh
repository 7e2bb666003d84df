#!/usr/bin/env bash
# Lint and types: ruff, cython-lint, mypy on the package, the stubs against the compiled modules.
# Each runs even when one before it failed; the names of those that failed are the last line.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

use_venv test lint
failed=()

check() {
    local name="$1"
    shift
    say "$name"
    "$@" || failed+=("$name")
}

stubs() {
    local stub modules=()
    while read -r stub; do
        stub="${stub%.pyi}"
        modules+=("${stub//\//.}")
    done < <(find kudu_core/_ext -name '*.pyi' | sort)
    python -m mypy.stubtest --mypy-config-file pyproject.toml --allowlist ci/stubtest_allow.txt \
        --ignore-unused-allowlist "${modules[@]}"
}

check ruff ruff check --output-format concise .
mapfile -t kernels < <(find kudu_core/_ext -name '*.pyx' -o -name '*.pxd' | sort)
check cython-lint cython-lint "${kernels[@]}"
check mypy mypy
check stubtest stubs

if [ "${#failed[@]}" != 0 ]; then
    printf 'failed: %s\n' "${failed[*]}"
    exit 1
fi
