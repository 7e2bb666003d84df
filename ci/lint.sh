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
    local modules=()
    for stub in kudu_core/_ext/*.pyi; do modules+=("kudu_core._ext.$(basename "$stub" .pyi)"); done
    python -m mypy.stubtest --mypy-config-file pyproject.toml --allowlist ci/stubtest_allow.txt --ignore-unused-allowlist "${modules[@]}"
}

check ruff ruff check --output-format concise .
check cython-lint cython-lint kudu_core/_ext/*.pyx kudu_core/_ext/*.pxd
check mypy mypy
check stubtest stubs

if [ "${#failed[@]}" != 0 ]; then
    printf 'failed: %s\n' "${failed[*]}"
    exit 1
fi
