#!/usr/bin/env bash
# Everything that is checked: lint, types, then the tests, room by room.
#
#   ci/test.sh                   all of it, the random tests with small counts
#   ci/test.sh --long            with full counts
#   ci/test.sh --seed 7          random tests begin elsewhere
#   ci/test.sh table tablet      only these rooms, without lint and types; `table_doors` is a part of `table`
#
# Works on a fresh clone: makes .venv and builds there.  Each room is a process of its own, so that one that
# crashes hides no other.  The last line counts the tests of all rooms, as pytest does.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

ROOMS=(
    kernels common sql cfile wal fs rowset tablet table table_doors page cli
    stories crash interrupts hostile compat model objects spark lint bench
)
# The same beside each other, and lint and types; the longest first, so that all lanes end at about one time.
QUEUE=(
    spark table table_doors crash checks bench lint stories hostile objects tablet
    interrupts kernels rowset sql cfile page cli common fs wal compat model
)
# The largest room is two parts: what is apart of it.
DOORS=(
    tests/table/in_store tests/table/types tests/table/engines tests/table/travel
    tests/table/merge tests/table/manage tests/table/changes
)
options=()
rooms=()
while [ $# -gt 0 ]; do
    case "$1" in
        # No stack dumps of what takes long: taken without the GIL, one may crash the process.
        --long) options+=(--long --timeout=7200 -o faulthandler_timeout=0) ;;
        --seed)
            [ $# -ge 2 ] || die "--seed needs a number"
            export KUDU_CORE_SEED="$2"
            shift
            ;;
        -*) die "unknown option $1: there are --long and --seed N" ;;
        *)
            case " ${ROOMS[*]} " in
                *" $1 "*) rooms+=("$1") ;;
                *) die "no room $1: there are ${ROOMS[*]}" ;;
            esac
            ;;
    esac
    shift
done

need_java
use_venv test lint
quick_spark

results="$ROOT/build/test-results"
rm -rf "$results"
mkdir -p "$results"
begun=$SECONDS

# note NAME STATUS BEGUN: the outcome, for the summary.
note() { printf '%s %s %s\n' "$1" "$2" "$((SECONDS - $3))" >>"$results/rooms"; }

check() {
    local begun=$SECONDS status=0
    ci/lint.sh || status=$?
    note checks "$status" "$begun"
}

run_rooms() {
    local room folders flags status begun
    for room in "$@"; do
        folders=("tests/$room")
        flags=(${options[@]+"${options[@]}"})
        if [ "$room" = bench ]; then
            # The benchmarks, each once, for their answers.  ci/bench.sh takes their times.
            folders=(bench)
            flags=(--ignore=bench/compare)
        fi
        case "$room" in
            table) flags+=("${DOORS[@]/#/--ignore=}") ;;
            table_doors) folders=("${DOORS[@]}") ;;
        esac
        if [ "$room" = objects ]; then
            case " ${options[*]-} " in
                *" --long "*) ci/servers.sh --long ;;
                *) ci/servers.sh ;;
            esac
        fi
        if [ "$room" = page ]; then ci/browser.sh; fi
        say "tests: $room"
        if [ -z "$(find "${folders[@]}" -name 'test_*.py' -print -quit 2>/dev/null)" ]; then
            printf 'no tests in %s\n' "${folders[*]}"
            continue
        fi
        begun=$SECONDS
        status=0
        python -m pytest "${folders[@]}" ${flags[@]+"${flags[@]}"} -q --durations=5 --durations-min=5 \
            --junitxml="$results/$room.xml" -o junit_family=xunit2 || status=$?
        note "$room" "$status" "$begun"
    done
}

# lane: takes parts of the queue until none is left, and prints what each had to say when it has ended.
lane() {
    local part
    for part in "${QUEUE[@]}"; do
        mkdir "$results/$part.taken" 2>/dev/null || continue
        if [ "$part" = checks ]; then check; else run_rooms "$part"; fi >"$results/$part.txt" 2>&1
        until mkdir "$results/printing" 2>/dev/null; do sleep 0.1; done
        cat "$results/$part.txt"
        rmdir "$results/printing"
    done
}

if [ "${#rooms[@]}" != 0 ]; then
    run_rooms "${rooms[@]}"
elif [ "${#options[@]}" != 0 ]; then
    check
    run_rooms "${ROOMS[@]}"
    say "mutations"
    mutations_begun=$SECONDS status=0
    python ci/mutate.py --seed "${KUDU_CORE_SEED:-0}" || status=$?
    note mutations "$status" "$mutations_begun"
else
    # A room uses one core, and half the time at most: two lanes more than cores, each of which takes the next
    # part that no other has taken.
    cores="$(nproc 2>/dev/null || echo 2)"
    trap 'trap - INT TERM; kill 0' INT TERM
    lanes=()
    for _ in $(seq "$((cores < 3 ? cores + 2 : 5))"); do
        lane &
        lanes+=($!)
    done
    for each in "${lanes[@]}"; do
        wait "$each" || note lane $? "$begun" # its rooms note what they come to themselves
    done
    for part in "${QUEUE[@]}"; do
        grep -q "^$part " "$results/rooms" || note "$part" 127 "$begun" # never begun
    done
fi

say "summary"
exec python ci/summary.py "$results" "$((SECONDS - begun))"
