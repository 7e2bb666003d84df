#!/usr/bin/env bash
# Benchmarks, timed.  Arguments go to pytest: ci/bench.sh bench/kernels -k btree
# The figures are kept in build/bench/<time>.json; compare with pytest-benchmark compare.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

need_java
use_venv bench
mkdir -p build/bench
has_target=no
for argument in "$@"; do [ -e "${argument%%::*}" ] && has_target=yes; done
[ "$has_target" = yes ] || set -- bench "$@"
exec python -m pytest --benchmark-enable --benchmark-only --benchmark-sort=name --benchmark-group-by=group \
    --benchmark-columns=min,median,ops,rounds --benchmark-disable-gc -o timeout=3600 \
    --benchmark-json="build/bench/$(date +%Y%m%d-%H%M%S).json" "$@"
