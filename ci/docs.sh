#!/usr/bin/env bash
# The documents as a site, in build/site.  Fails where a link, an anchor or a name leads nowhere.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

use_venv docs
exec python -m mkdocs build --strict --quiet --config-file ci/mkdocs.yml "$@"
