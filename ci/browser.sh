#!/usr/bin/env bash
# Installs Chromium and its driver, in which tests/page looks at the page of a table (Debian's packages, as
# root).  Where they cannot be had that is said in capitals, and those tests skip and say so: this script
# does not fail for it.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

PATIENCE_S=300 # an install takes a minute

has_browser() {
    command -v chromedriver >/dev/null &&
        { command -v chromium || command -v chromium-browser || command -v google-chrome; } >/dev/null
}

if has_browser; then exit; fi
if may_install; then
    say "install chromium chromium-driver (log: build/browser.log)"
    mkdir -p "$ROOT/build"
    (
        apt-get update -qq
        export DEBIAN_FRONTEND=noninteractive
        timeout "$PATIENCE_S" apt-get install -y -qq --no-install-recommends \
            chromium chromium-driver fonts-dejavu-core
    ) >"$ROOT/build/browser.log" 2>&1 || tail -5 "$ROOT/build/browser.log" >&2
fi
has_browser || printf 'CHROMIUM IS NOT INSTALLED: nobody looks at the page, its tests are skipped\n' >&2
