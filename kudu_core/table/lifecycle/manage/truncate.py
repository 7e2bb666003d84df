"""``Table.truncate``: new, empty tablets in the place of all that are there, by one ALTER record.

What it costs follows the tablets and not the rows, as dropping a range does.  The old tablets are then those
of a dropped range (protocol A3): snapshots of before read them, ``changes`` shows their rows as deleted, and
they are purged when history has left them behind (protocol H3).
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

from kudu_core.common.run.locks import HeldLocks
from kudu_core.events import TableAltered
from kudu_core.table.lifecycle.alter import log_and_apply, new_tablet
from kudu_core.table.stored.alteration import Alteration

if TYPE_CHECKING:
    from kudu_core.table.opened.engine import Engine


def truncate(engine: Engine) -> int:
    """Apply it as one record; its timestamp.  Errors are those of ``alter``."""
    started = engine.clock.monotonic_s()
    with engine.altering:
        engine.check_writable()
        alteration = Alteration.overwriting(engine.table_file.state)
        # Other partitions, though equal: whoever has routed rows by those of before looks again.
        partitions = copy.copy(engine.partitions)
        created = [new_tablet(engine, partitions, *entry) for entry in alteration.created]
        # The new ones too: whoever finds them in memory waits until all is as the record says.
        with HeldLocks([tablet.mutex for tablet in (*engine.tablets, *created)]):
            engine.check_writable()
            ts = log_and_apply(engine, alteration, created, engine.schema, partitions)
    engine.wait_visible(ts)
    engine.tell(
        TableAltered(
            elapsed_s=engine.clock.monotonic_s() - started,
            timestamp=ts,
            schema_version=engine.schema.version,
            tablets=sum(t.dropped_ts is None for t in engine.tablets),
        )
    )
    return ts


__all__ = ["truncate"]
