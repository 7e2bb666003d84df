#!/usr/bin/env bash
# Cython's annotated HTML of every kernel, into build/annotate, and a check that no line inside a nogil body
# touches Python.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

use_venv test
copy="$(mktemp -d)"
trap 'rm -rf "$copy"' EXIT
copy_tree "$copy"
(cd "$copy" && KUDU_CORE_ANNOTATE=1 python setup.py -q build_ext --inplace >build.log 2>&1) || {
    tail -60 "$copy/build.log" >&2
    die "the annotated build failed"
}
rm -rf build/annotate
mkdir -p build/annotate
(cd "$copy/kudu_core/_ext" && find . -name '*.html' | tar -c -T -) | tar -x -C build/annotate
exec python ci/check_annotate.py kudu_core/_ext build/annotate
