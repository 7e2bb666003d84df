#!/usr/bin/env bash
# Single-line mutations of the rooms on which data rests, each against the tests nearest to it; survivors are
# listed.
#
#   ci/mutate.sh                         a sample of 40, two at a time
#   ci/mutate.sh --sample 200 --seed 7   more, others
#   ci/mutate.sh --room replay           of one room
#   ci/mutate.sh --since HEAD~20         of lines that have changed since a commit
#   ci/mutate.sh --list                  the rooms, their files, how many mutations there are
#   ci/mutate.sh --only kudu_core/tablet/flush/memory.py:120   those of one line
#
# Each runs in a copy of the tree. Exit status 1: more than two of the sample survived that
# ci/equivalent_mutations.txt does not explain. docs of the kinds of mutation: ci/mutate.py.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

use_venv test
exec python ci/mutate.py "$@"
