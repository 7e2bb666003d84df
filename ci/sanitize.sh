#!/usr/bin/env bash
# The kernels under AddressSanitizer and UndefinedBehaviorSanitizer, with bounds checks: their tests, and
# every decoder on 200,000 mutations of stored bytes.
#
#   ci/sanitize.sh                          all of it
#   ci/sanitize.sh --mutations 20000        fewer
#   ci/sanitize.sh --bounds                 bounds checks alone, no sanitizer: tests of kernels and files
#   ci/sanitize.sh tests/kernels -k btree   other tests
#
# Built in a copy of the tree: a sanitized module that stays behind makes plain Python die at its import.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

mutations=200000
bounds=
while [ $# -gt 0 ]; do
    case "$1" in
        --mutations)
            [ $# -ge 2 ] || die "--mutations needs a number"
            mutations="$2"
            shift 2
            ;;
        --bounds)
            bounds=1
            shift
            ;;
        *) break ;;
    esac
done
export KUDU_CORE_FUZZ="$mutations"

use_venv test
copy="$(mktemp -d)"
trap 'rm -rf "$copy"' EXIT
copy_tree "$copy"
cd "$copy"

if [ -n "$bounds" ]; then
    say "build with bounds checks"
    sanitizers=
else
    say "build with sanitizers"
    sanitizers=address,undefined
fi
KUDU_CORE_SANITIZE="$sanitizers" KUDU_CORE_DEBUG=1 \
    python setup.py -q build_ext --inplace -j2 >build.log 2>&1 || {
    tail -60 build.log >&2
    die "the build failed"
}

# The editable install points at the plain tree: PYTHONPATH comes before it.
run() {
    if [ -n "$bounds" ]; then
        PYTHONPATH="$copy" python -m pytest -q -p no:cacheprovider --timeout=7200 "$@"
        return
    fi
    # CPython is not instrumented, so the run-time libraries come first; its arenas would hide small
    # overflows.  pytest holds the process's output back, and a process that a sanitizer ends never gives it
    # out: reports go to files.
    local status=0
    LD_PRELOAD="$(gcc -print-file-name=libasan.so) $(gcc -print-file-name=libubsan.so)" \
        ASAN_OPTIONS=detect_leaks=0:abort_on_error=0:log_path="$copy/report" \
        UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1:log_path="$copy/report" \
        PYTHONMALLOC=malloc PYTHONPATH="$copy" \
        python -m pytest -q -p no:cacheprovider --timeout=7200 "$@" || status=$?
    cat "$copy"/report.* >&2 2>/dev/null || true
    return "$status"
}

if [ $# -gt 0 ]; then
    run "$@"
elif [ -n "$bounds" ]; then
    run tests/kernels tests/cfile tests/wal tests/fs tests/hostile/files/test_fuzz.py
else
    say "tests of the kernels"
    run tests/kernels
    say "$mutations mutations of stored bytes"
    run -s tests/hostile/files/test_fuzz.py tests/cfile/test_hostile.py
fi
