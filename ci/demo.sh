#!/usr/bin/env bash
# The flights of New York, 2013, through PySpark into a table and back: examples/flights.py.
# Works on a fresh clone: makes .venv, builds the package and installs what the demo needs.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

need_java
use_venv demo
exec python examples/flights.py "$@"
