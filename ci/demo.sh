#!/usr/bin/env bash
# The flights of New York, 2013, through PySpark into a table and back: examples/flights.py.
# Works on a fresh clone: makes .venv, builds the package and installs what the demo needs.
#
#   ci/demo.sh                   the table is in a folder
#   ci/demo.sh --store           the table is in an object store: gofakes3, in memory, on this machine
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

need_java
use_venv demo
if [ "${1:-}" != --store ]; then
    exec python examples/flights.py "$@"
fi
shift

ci/servers.sh gofakes3
server="$ROOT/build/servers/bin/gofakes3"
[ -x "$server" ] || die "gofakes3 is not installed, see above; it needs Go"
port="$(python -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')"
"$server" -backend memory -initialbucket flights -quiet -host "127.0.0.1:$port" &
trap "kill $!" EXIT
for _ in $(seq 100); do
    if (: >"/dev/tcp/127.0.0.1/$port") 2>/dev/null; then break; fi
    sleep 0.1
done
# What every process finds in its environment, the driver and the workers.
export AWS_ENDPOINT="http://127.0.0.1:$port" AWS_REGION=us-east-1
export AWS_ACCESS_KEY_ID=demo AWS_SECRET_ACCESS_KEY=demo
python examples/flights.py --url s3://flights/2013 "$@"
