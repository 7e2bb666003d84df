"""Where the command line begins."""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec

from kudu_core.cli.shared.exit_codes import BROKEN_PIPE, FAILED

MISSING = "the command line needs click and rich; install them with: pip install 'kudu-core[cli]'"


def run() -> None:
    """Run the command of ``sys.argv`` and end the process with its exit code."""
    if any(find_spec(name) is None for name in ("click", "rich")):
        print(f"kudu_core: {MISSING}", file=sys.stderr)
        sys.exit(FAILED)
    from kudu_core.cli.command_group import kudu_core_command
    from kudu_core.cli.shared.interrupts import note_interrupts

    note_interrupts()
    try:
        kudu_core_command.main(prog_name="kudu_core")
    except SystemExit as end:
        if end.code == BROKEN_PIPE:
            os._exit(BROKEN_PIPE)  # nothing can be said any more, by Python's own last flush neither
        raise
