"""What ``_ext.keys.merge_plan`` means, in the fewest words Python allows.  Slow on purpose."""

from __future__ import annotations

from collections.abc import Sequence


def merge(runs: Sequence[Sequence[bytes]]) -> list[tuple[int, int]]:
    """(source, position) of each key in order; equal keys by source."""
    return sorted(
        ((source, position) for source, run in enumerate(runs) for position in range(len(run))),
        key=lambda at: (runs[at[0]][at[1]], *at),
    )
