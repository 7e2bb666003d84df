#!/usr/bin/env bash
# Installs the object stores that tests/objects runs against, under build/servers: gofakes3 (S3, Go), Azurite
# (Azure Blob, Node), and with --long versitygw (S3 over a folder, Go) and a cluster of HDFS (Java).
#
# What is there in the wanted version is kept.  What cannot be installed is said in capitals, and its tests
# skip and say so: this script does not fail for it.  With a name, only that one is installed.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

GOFAKES3=v1.2.0
VERSITYGW=v1.8.0
AZURITE=3.35.0 # the last for Node 20
HDFS=3.4.1     # ci/hdfs.xml has it too
PATIENCE_S=150 # an install takes 10 to 40 s

long=no only=""
if [ "${1:-}" = --long ]; then
    long=yes
    PATIENCE_S=1200
else
    only="${1:-}"
fi
servers="$ROOT/build/servers"
mkdir -p "$servers/bin"

# keep NAME VERSION TOOL COMMAND...: run the command, which needs the tool, unless its result is there in this
# version.
keep() {
    local name="$1" version="$2" tool="$3"
    shift 3
    if [ -n "$only" ] && [ "$only" != "$name" ]; then return; fi
    if [ "$(cat "$servers/$name.version" 2>/dev/null)" = "$version" ]; then return; fi
    if ! command -v "$tool" >/dev/null; then
        printf '%s IS NOT INSTALLED, there is no %s: its tests are skipped\n' "$name" "$tool" >&2
        return
    fi
    say "install $name $version (log: build/servers/$name.log)"
    if timeout "$PATIENCE_S" "$@" >"$servers/$name.log" 2>&1; then
        printf '%s\n' "$version" >"$servers/$name.version"
    else
        tail -5 "$servers/$name.log" >&2
        printf '%s IS NOT INSTALLED: its tests are skipped\n' "$name" >&2
    fi
}

from_go=(env GOBIN="$servers/bin" go install)
from_maven=(mvn --quiet --batch-mode --file "$ROOT/ci/hdfs.xml" dependency:copy-dependencies)
from_npm=(npm install --no-audit --no-fund --prefix "$servers/npm")

keep gofakes3 "$GOFAKES3" go "${from_go[@]}" "github.com/johannesboyne/gofakes3/cmd/gofakes3@$GOFAKES3"
keep azurite "$AZURITE" npm "${from_npm[@]}" "azurite@$AZURITE"
if [ "$long" = yes ]; then
    keep hdfs "$HDFS" mvn "${from_maven[@]}" -DoutputDirectory="$servers/hdfs"
    keep versitygw "$VERSITYGW" go "${from_go[@]}" "github.com/versity/versitygw/cmd/versitygw@$VERSITYGW"
fi
