"""The debug switch: with ``KUDU_CORE_CHECK=1`` in the environment the engine checks itself.

After every install, and at every open, the invariants of docs/protocol.md are asserted over the tablet, its
files and the log (``tablet.replay.invariants``).  Read at each open; costs far more than the work itself.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from kudu_core.tablet.replay import invariants
from kudu_core.tablet.store.tablet import Tablet

SWITCH = "KUDU_CORE_CHECK"


def is_on() -> bool:
    return os.environ.get(SWITCH) == "1"


def install_check() -> Callable[[Tablet], None] | None:
    """What ``TabletContext.check`` is to be."""
    return invariants.check_install if is_on() else None
