"""Whether a merge that is worth it is done in the background now, or waits until it costs nobody anything.

A merge halves the speed of who writes or reads beside it, and doubles what a load writes.  What it gains
are looks into several rowsets: of reads by key, of the check that keys are new, of scans in key order; an
unordered scan gains nothing.  So it is done when what such looks have taken since the last merge, as far
as it ends them, is as much as it takes itself (whoever rents for as long as that should buy), when so many
rowsets lie over each other that every look is dear, or when nobody writes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from kudu_core.common.run.clock import micros_of
from kudu_core.tablet.maintain.merge_policy import DEAD, OVERLAP, MergeChoice

if TYPE_CHECKING:
    from kudu_core.common.run.clock import Clock
    from kudu_core.tablet.maintain.scoring import Operation

IDLE_S = 5.0
"""Since the table's last write: from there on merges are done for whoever reads later."""

HIGH = 16
"""Rowsets over each other, or small ones beside each other, that are merged whoever reads them."""

MERGE_NS_PER_BYTE = 30
"""That a merge takes for each byte of its inputs: 1.5 s for 51 MB of the speed table's rows."""


def is_due(clock: Clock, newest: Callable[[], int], op: Operation) -> bool:
    """Whether the background does an operation now; ``newest``: the timestamp of the table's last write."""
    if op.merge is None:
        return True
    return pays_now(op.merge, op.overlap_ns, (clock.now_us() - micros_of(newest())) / 1e6)


def pays_now(choice: MergeChoice, overlap_ns: int, idle_s: float) -> bool:
    """``overlap_ns``: what looks into more than one rowset of the tablet have taken since the last merge;
    ``idle_s``: since the table's last write."""
    if choice.reason == DEAD or idle_s >= IDLE_S:
        return True
    if choice.height >= HIGH or len(choice.rowsets) >= HIGH:
        return True
    if choice.reason != OVERLAP:
        return False
    ended = min(1.0, choice.gain / max(choice.gain, choice.height - 1))
    return overlap_ns * ended >= MERGE_NS_PER_BYTE * choice.input_bytes


__all__ = ["HIGH", "IDLE_S", "MERGE_NS_PER_BYTE", "is_due", "pays_now"]
