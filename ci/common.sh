# What the scripts beside this one share: find or install what is needed, make .venv, build the kernels.
# Sourced, not run.

set -euo pipefail

ROOT="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
VENV="$ROOT/.venv"
cd "$ROOT"

export PIP_DISABLE_PIP_VERSION_CHECK=1 PYTHONUNBUFFERED=1

say() { printf '\n== %s\n' "$*"; }

die() {
    printf 'error: %s\n' "$*" >&2
    exit 1
}

may_install() { [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; }

apt_updated=no

# need COMMAND_THAT_FAILS_WHILE_MISSING WHAT PACKAGE...: install the packages, or say what to install.
need() {
    local check="$1" what="$2"
    shift 2
    if "$check"; then return; fi
    if ! may_install; then
        die "$what is missing; on Debian: sudo apt-get install $*"
    fi
    say "install $* ($what)"
    if [ "$apt_updated" = no ]; then
        apt-get update -qq
        apt_updated=yes
    fi
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" >/dev/null
    "$check" || die "$what is still missing after apt-get install $*"
}

# The first Python of 3.11 or newer, those with headers and venv first: PYTHON.
find_python() {
    local name found=""
    for name in ${PYTHON:-python3 python3.11 python3.12 python3.13 python3.14}; do
        command -v "$name" >/dev/null || continue
        "$name" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || continue
        [ -n "$found" ] || found="$name"
        if PYTHON="$name" has_headers && PYTHON="$name" has_venv; then
            found="$name"
            break
        fi
    done
    PYTHON="$found"
    [ -n "$found" ]
}

has_headers() {
    "$PYTHON" -c 'import os, sys, sysconfig
sys.exit(not os.path.exists(os.path.join(sysconfig.get_paths()["include"], "Python.h")))'
}

has_venv() { "$PYTHON" -c 'import ensurepip, venv' 2>/dev/null; }

has_compiler() {
    local compiler
    for compiler in "${CC:-cc}" gcc; do
        command -v "$compiler" >/dev/null || continue
        printf '#include <stdlib.h>\nint main(void) { return 0; }\n' |
            "$compiler" -x c - -o /dev/null 2>/dev/null && return
    done
    return 1
}

has_java() {
    local java="${JAVA_HOME:+$JAVA_HOME/bin/}java" major
    command -v "$java" >/dev/null || return 1
    major="$("$java" -version 2>&1 | sed -n 's/.*version "\([0-9]*\).*/\1/p' | head -1)"
    [ -n "$major" ] && [ "$major" -ge 17 ]
}

need_build_tools() {
    need find_python "Python 3.11 or newer" python3 python3-venv python3-dev
    local version package=python3
    version="$("$PYTHON" -c 'import sys; print("%d.%d" % sys.version_info[:2])')"
    # A second Python of Debian has packages of its own name.
    if [ "$PYTHON" != python3 ]; then package="python$version"; fi
    need has_venv "Python's venv module" "$package-venv"
    need has_headers "Python's headers (Python.h)" "$package-dev"
    need has_compiler "a C compiler" gcc libc6-dev
}

need_java() {
    local package=openjdk-17-jre-headless
    if ! has_java && may_install; then
        apt-get update -qq
        apt_updated=yes
        apt-cache show "$package" >/dev/null 2>&1 || package=openjdk-21-jre-headless
    fi
    need has_java "Java 17 or newer (Spark runs on it)" "$package"
}

# use_venv GROUP...: .venv with the package (editable), its Spark extra and these dependency groups,
# and with the kernels of this tree.  What is there and unchanged is kept.
use_venv() {
    need_build_tools
    local log="$VENV/install.log" wanted group groups=(--group build)
    if [ -x "$VENV/bin/python" ] && ! "$VENV/bin/python" -c pass 2>/dev/null; then
        rm -rf "$VENV" # of a Python that is gone, or of a tree that was moved
    fi
    if [ ! -x "$VENV/bin/pip" ]; then
        say "make .venv with $("$PYTHON" --version)"
        "$PYTHON" -m venv --clear "$VENV"
    fi
    mkdir -p "$VENV/stamps"
    for group in "$@"; do groups+=(--group "$group"); done
    wanted="$("$VENV/bin/python" ci/stamp.py dependencies)"
    local missing=no
    for group in "$@"; do
        [ "$(cat "$VENV/stamps/$group" 2>/dev/null)" = "$wanted" ] || missing=yes
    done
    if [ "$missing" = yes ]; then
        say "install $* into .venv (log: .venv/install.log)"
        {
            "$VENV/bin/pip" install --upgrade 'pip>=25.1' &&
                "$VENV/bin/pip" install --group build &&
                "$VENV/bin/pip" install --no-build-isolation -e '.[spark]' "${groups[@]}"
        } >"$log" 2>&1 || {
            tail -40 "$log" >&2
            die "the installation failed; all of it is in $log"
        }
        for group in "$@"; do printf '%s\n' "$wanted" >"$VENV/stamps/$group"; done
        "$VENV/bin/python" ci/stamp.py kernels >"$VENV/stamps/kernels" # built by the installation
    fi
    export PATH="$VENV/bin:$PATH" VIRTUAL_ENV="$VENV" PYSPARK_PYTHON="$VENV/bin/python"
    wanted="$(python ci/stamp.py kernels)"
    if [ "$(cat "$VENV/stamps/kernels" 2>/dev/null)" != "$wanted" ] || ! kernels_present; then
        say "build the kernels"
        python setup.py -q build_ext --inplace >"$VENV/build.log" 2>&1 || {
            tail -60 "$VENV/build.log" >&2
            die "the kernels do not build; all of it is in $VENV/build.log"
        }
        printf '%s\n' "$wanted" >"$VENV/stamps/kernels"
    fi
    # Once, and not in each process that tests and Spark start, where PYTHONDONTWRITEBYTECODE keeps those from
    # keeping what they have compiled: 400 files, half a second.
    python -m compileall -q -j 0 kudu_core pyspark_kudu_core tests bench examples
}

kernels_present() {
    python - <<'PYTHON'
import sys
import sysconfig
from pathlib import Path

suffix = sysconfig.get_config_var("EXT_SUFFIX")
sys.exit(not all(path.with_suffix(suffix).exists() for path in Path("kudu_core/_ext").rglob("*.pyx")))
PYTHON
}

# copy_tree TARGET: the sources without anything built, for builds with other switches.
copy_tree() {
    mkdir -p "$1"
    tar -c --exclude=./.git --exclude='./.venv*' --exclude=./build --exclude=./dist --exclude='*.so' \
        --exclude='./kudu_core/_ext/*.c' --exclude='__pycache__' --exclude='.*_cache' . | tar -x -C "$1"
}

# quick_spark: Spark for tests, whose sessions live for a minute, in half the processor time.
quick_spark() {
    # As little is compiled as may be, and no thread of the collector's waits for work.
    export JAVA_TOOL_OPTIONS="-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
    # Workers would import PySpark from an archive, which keeps no bytecode: without it they take the package.
    local pyspark
    pyspark="$(python -c 'import os, pyspark; print(os.path.dirname(pyspark.__file__))')"
    export SPARK_HOME="$ROOT/build/spark"
    mkdir -p "$SPARK_HOME"
    local part
    for part in bin sbin jars; do
        ln -sfn "$pyspark/$part" "$SPARK_HOME/$part"
    done
}
