#!/usr/bin/env bash
# The source distribution and the wheel of this machine: built, repaired, installed where nothing can be
# compiled, and used there as README says.
#
#   ci/wheel.sh                  all of it; the files are in build/wheel/dist
#   ci/wheel.sh --keep           without building what build/wheel/dist has
#
# The wheels of all platforms are made by cibuildwheel (pyproject.toml), in containers.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

keep=no
case "${1-}" in
    "") ;;
    --keep) keep=yes ;;
    *) die "unknown option $1: there is --keep" ;;
esac

here="$ROOT/build/wheel"
dist="$here/dist"
tools="$here/tools/bin"
mkdir -p "$here"

if [ "$keep" = no ] || ! compgen -G "$dist/*.whl" >/dev/null; then
    need_build_tools
    say "install the tools (log: build/wheel/tools.log)"
    "$PYTHON" -m venv --clear "$here/tools"
    {
        "$tools/pip" install --upgrade 'pip>=25.1' && "$tools/pip" install --group wheel
    } >"$here/tools.log" 2>&1 || die "the tools cannot be installed: $here/tools.log"
    rm -rf "$here/tree" "$here/raw" "$dist"
    copy_tree "$here/tree"
    say "build the source distribution, and the wheel out of that (log: build/wheel/build.log)"
    "$tools/python" -m build --outdir "$here/raw" "$here/tree" >"$here/build.log" 2>&1 || {
        tail -40 "$here/build.log" >&2
        die "it does not build; all of it is in $here/build.log"
    }
    rm -rf "$here/tree"
    say "repair the wheel"
    PATH="$tools:$PATH" "$tools/auditwheel" show "$here"/raw/*.whl
    PATH="$tools:$PATH" "$tools/auditwheel" repair -w "$dist" "$here"/raw/*.whl
    cp "$here"/raw/*.tar.gz "$dist"
fi
ls -l "$dist"

wheel="$(compgen -G "$dist/*.whl" | head -1)"
clean="$here/clean"
need find_python "Python 3.11 or newer" python3 python3-venv

# No compiler by any of its names, and no header: what needs one fails here.
in_clean() { env -i HOME="$here" PATH="$clean/bin" CC=/nowhere/cc LANG=C.UTF-8 "$@"; }

say "install it where nothing can be compiled"
"$PYTHON" -m venv --clear "$clean"
in_clean "$clean/bin/python" -m pip install -q --upgrade pip
begun="$(date +%s%N)"
in_clean "$clean/bin/python" -m pip install -q --only-binary :all: "$wheel"
printf 'installed with its dependencies in %d ms\n' "$((($(date +%s%N) - begun) / 1000000))"
cp "$ROOT/ci/try_wheel.py" "$here/try_wheel.py"
in_clean "$clean/bin/python" "$here/try_wheel.py"

say "its extra for the command line"
status=0
in_clean "$clean/bin/kudu_core" --help >"$here/said.txt" 2>&1 || status=$?
[ "$status" = 1 ] && grep -q "pip install 'kudu-core\[cli\]'" "$here/said.txt" ||
    die "without the extra it does not say what to install: $(cat "$here/said.txt")"
in_clean "$clean/bin/python" -m pip install -q --only-binary :all: "$wheel[cli,sql]" pandas polars
in_clean "$clean/bin/python" "$here/try_wheel.py"

say "the examples of README, but Spark's"
rm -rf "$here/readme"
mkdir -p "$here/readme"
"$PYTHON" - "$here/readme/README.py" <<'PYTHON'
import re
import sys
from pathlib import Path

text = Path("README.md").read_text().split("## With PySpark")[0]
blocks = re.findall(r"^```python\n(.*?)^```", text, re.M | re.S)
Path(sys.argv[1]).write_text("\n".join(blocks) + f"\nprint('{len(blocks)} examples ran')\n")
PYTHON
(cd "$here/readme" && in_clean "$clean/bin/python" README.py | tail -1)
