#!/usr/bin/env bash
# Kernels and formats under AddressSanitizer and UndefinedBehaviorSanitizer, with bounds checks.
# Built in a copy of the tree: a sanitized module that stays behind makes plain Python die at its import.
# Arguments replace the tests to run: ci/sanitize.sh tests/kernels -k btree
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

use_venv test
copy="$(mktemp -d)"
trap 'rm -rf "$copy"' EXIT
copy_tree "$copy"
cd "$copy"

say "build with sanitizers"
KUDU_CORE_SANITIZE=address,undefined KUDU_CORE_DEBUG=1 python setup.py -q build_ext --inplace >build.log 2>&1 || {
    tail -60 build.log >&2
    die "the sanitized build failed"
}

[ $# -gt 0 ] || set -- tests/kernels tests/formats
# CPython is not instrumented, so the run-time libraries come first; its arenas would hide small overflows.
# The editable install points at the plain tree: PYTHONPATH comes before it.
LD_PRELOAD="$(gcc -print-file-name=libasan.so) $(gcc -print-file-name=libubsan.so)" \
    ASAN_OPTIONS=detect_leaks=0:abort_on_error=0 UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1 \
    PYTHONMALLOC=malloc PYTHONPATH="$copy" \
    python -m pytest -q -p no:cacheprovider "$@"
