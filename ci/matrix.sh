#!/usr/bin/env bash
# The tests of Spark and of pandas with every version of both that pyproject.toml allows: hours on two cores.
#
#   ci/matrix.sh                         all environments
#   ci/matrix.sh pyspark-4.0             only these
#   ci/matrix.sh -- tests/spark/stream   all, these tests alone
#
# Each has a folder of its own under build/matrix, with its log, and what else .venv has in the same versions.
# The last lines say how each ended.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

# Name, PySpark, pandas.
ENVIRONMENTS=(
    "pyspark-4.0 4.0.* 2.*"
    "pyspark-4.1 4.1.* 2.*"
    "pyspark-4.2 4.2.* 2.*"
    "pyspark-4.3 4.3.* 2.*"
    "pandas-2.2 4.3.* 2.2.*"
    "pandas-3 4.3.* 3.*"
)
chosen=()
while [ $# -gt 0 ] && [ "$1" != -- ]; do
    case " ${ENVIRONMENTS[*]%% *} " in
        *" $1 "*) chosen+=("$1") ;;
        *) die "no environment $1: there are ${ENVIRONMENTS[*]%% *}" ;;
    esac
    shift
done
[ $# = 0 ] || shift
tests=("$@")
if [ "${#tests[@]}" = 0 ]; then
    mapfile -t tests < <(
        echo tests/spark
        grep -rlE --include='test_*.py' 'import pandas|importorskip\("pandas"' tests |
            grep -vE '^tests/(spark|lint)/' | sort
    )
fi

need_java
use_venv test
export JAVA_TOOL_OPTIONS="-XX:TieredStopAtLevel=1 -XX:+UseSerialGC" PYTHONPATH="$ROOT"
unset SPARK_HOME
others="$ROOT/build/matrix/others.txt"
mkdir -p "$(dirname "$others")"
"$VENV/bin/pip" freeze --exclude-editable | grep -viE '^(pyspark|py4j|pandas)=' >"$others"

outcomes=() failed=0
for environment in "${ENVIRONMENTS[@]}"; do
    read -r name pyspark pandas <<<"$environment"
    if [ "${#chosen[@]}" != 0 ]; then
        case " ${chosen[*]} " in *" $name "*) ;; *) continue ;; esac
    fi
    here="$ROOT/build/matrix/$name"
    say "$name: install PySpark $pyspark and pandas $pandas"
    if ! {
        "$VENV/bin/python" -m venv "$here" &&
            "$here/bin/pip" install -r "$others" "pyspark[sql]==$pyspark" "pandas==$pandas"
    } >"$here.install.log" 2>&1; then
        tail -20 "$here.install.log" >&2
        outcomes+=("$name: NOT INSTALLED, so not tested: $here.install.log")
        failed=1
        continue
    fi
    versions="$("$here/bin/python" -c 'import pandas, pyarrow, pyspark
print(f"PySpark {pyspark.__version__}, pandas {pandas.__version__}, pyarrow {pyarrow.__version__}")')"
    say "$name: tests with $versions"
    status=0
    PATH="$here/bin:$PATH" VIRTUAL_ENV="$here" PYSPARK_PYTHON="$here/bin/python" \
        "$here/bin/python" -m pytest -q -p no:cacheprovider "${tests[@]}" 2>&1 | tee "$here.log" || status=$?
    if [ "$status" = 0 ]; then word=passed; else word=FAILED failed=1; fi
    outcomes+=("$name: $word, $versions: $(tail -1 "$here.log")")
done

say "outcomes"
printf '%s\n' "${outcomes[@]}"
exit "$failed"
