"""The folders of ``staging/``: who may still need one, and who removes it (PROTOCOL G6)."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import TYPE_CHECKING

from kudu_core.common.idempotence import Token, stored_counts
from kudu_core.common.stored import BROKEN, integer, parsed
from kudu_core.errors import Corruption

if TYPE_CHECKING:
    from kudu_core.fs.api import FileSystem
    from kudu_core.table.engine import Engine

SEALED = "JOB"
"""A job's file that lists its runs, written when the commit begins."""
COMMITTED = "COMMITTED"
"""A job's file that says when it was committed, written when its record is durable."""
MAX_SEALED_BYTES = 256 << 20
OWN = ("ingest-", "merge-")
"""What names of folders of the lease holder's own work begin with: once another has the lease, nobody's."""
SWEEP_S = 60.0
"""So often, at most, maintenance looks for what dead jobs have left."""


def note_committed(fs: FileSystem, directory: str, ts: int, counts: tuple[int, int, int, int]) -> None:
    """A job's record is durable: whoever commits it again finds this, also when the log forgot it."""
    fs.replace_file(f"{directory}/{COMMITTED}", json.dumps([ts, *counts]).encode())


def read_committed(fs: FileSystem, directory: str) -> Token | None:
    """What ``note_committed`` has noted."""
    path = f"{directory}/{COMMITTED}"
    try:
        data = fs.read_bytes(path, 4096)
    except FileNotFoundError:
        return None
    try:
        ts, *counts = parsed(b'{"is":' + data + b"}")["is"]
        return Token(0, integer(ts), stored_counts(counts))
    except BROKEN as exc:
        raise Corruption(path, 0, f"{exc!r:.200}") from exc


def remove(fs: FileSystem, directory: str) -> None:
    """What cannot be removed now, because a late attempt still writes there, goes after its grace."""
    with suppress(OSError):
        fs.rmtree(directory)


def sweep_staging(engine: Engine, *, opening: bool = False) -> int:
    """Remove staging of jobs that are committed or whose heartbeat is too old; of how many.

    ``opening``: ingests and merges too, whose writer held the lease, and is gone.
    """
    now_s = engine.clock.monotonic_s()
    if not opening and now_s < engine.swept_s + min(SWEEP_S, engine.options.staging_grace_s / 4):
        return 0
    engine.swept_s = now_s
    root = f"{engine.path}/staging"
    if not engine.fs.exists(root):
        return 0
    oldest = engine.clock.now_us() / 1e6 - engine.options.staging_grace_s
    removed = 0
    for name in engine.fs.listdir(root):
        if name in engine.committing or (name.startswith("ingest-") and not opening):
            continue
        with suppress(OSError):  # somebody may write or remove it at this moment: another time, then
            at_once = (opening and name.startswith(OWN)) or name in engine.jobs
            if at_once or engine.fs.stat(f"{root}/{name}").mtime_s < oldest:
                engine.fs.rmtree(f"{root}/{name}")
                if not opening:  # else whoever opens the table may be about to commit it again
                    engine.jobs.pop(name, None)
                removed += 1
    return removed


__all__ = [
    "COMMITTED",
    "MAX_SEALED_BYTES",
    "SEALED",
    "note_committed",
    "read_committed",
    "remove",
    "sweep_staging",
]
