#!/usr/bin/env bash
# Everything that is checked: lint, types, then the tests, room by room.
#
#   ci/test.sh                   all of it, the random tests with small counts
#   ci/test.sh --long            with full counts
#   ci/test.sh --seed 7          random tests begin elsewhere
#   ci/test.sh table tablet      only these rooms, without lint and types
#
# Works on a fresh clone: makes .venv and builds there.  Each room is a process of its own, so that one that
# crashes hides no other.  The last line counts the tests of all rooms, as pytest does.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

ROOMS=(
    kernels common cfile wal fs rowset tablet table
    stories crash interrupts hostile compat model spark lint bench
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
    local room folder flags status begun
    for room in "$@"; do
        folder="tests/$room"
        flags=(${options[@]+"${options[@]}"})
        if [ "$room" = bench ]; then
            # The benchmarks, each once, for their answers.  ci/bench.sh takes their times.
            folder=bench
            flags=(--ignore=bench/compare)
        fi
        say "tests: $room"
        if ! find "$folder" -name 'test_*.py' 2>/dev/null | grep -q .; then
            printf 'no tests in %s\n' "$folder"
            continue
        fi
        begun=$SECONDS
        status=0
        python -m pytest "$folder" ${flags[@]+"${flags[@]}"} -q --durations=5 --durations-min=5 \
            --junitxml="$results/$room.xml" -o junit_family=xunit2 || status=$?
        note "$room" "$status" "$begun"
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
    # Most tests use one core: two lanes, about as long.
    beside="$results/beside.txt"
    trap 'trap - INT TERM; kill 0' INT TERM
    (
        check
        run_rooms stories crash interrupts hostile compat model lint bench
    ) >"$beside" 2>&1 &
    run_rooms kernels common cfile wal fs rowset tablet table spark
    wait $! || note beside $? "$begun" # its rooms note what they come to themselves
    cat "$beside"
fi

say "summary"
exec python ci/summary.py "$results" "$((SECONDS - begun))"
