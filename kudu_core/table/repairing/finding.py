"""What a damaged table is: its uuid, columns, partitions and tablets, from TABLE and what stands beside it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from kudu_core.common.partitions import PartitionSchema
from kudu_core.common.schema import Schema
from kudu_core.common.stored import BROKEN
from kudu_core.errors import InvalidArgument, KuduError
from kudu_core.table.alteration import Alteration, alters
from kudu_core.table.repairing.report import Finding
from kudu_core.table.state import TableState, TabletEntry, check_tablets, read_state
from kudu_core.wal.salvage import SalvagedLog, salvage_log

if TYPE_CHECKING:
    from kudu_core.fs.api import FileSystem

NAMES = ("TABLE",)


@dataclass(slots=True)
class Found:
    """What is known of the table as a whole."""

    state: TableState
    log: SalvagedLog
    findings: list[Finding] = field(default_factory=list)
    assumptions: list[str] = field(default_factory=list)

    @property
    def tablets(self) -> list[TabletEntry]:
        """Those whose rows the newest state has."""
        return [entry for entry in self.state.tablets if entry.dropped_ts is None]


def find(fs: FileSystem, path: str) -> Found:
    """What there is at ``path``, as far as it can be read."""
    findings: list[Finding] = []
    states: list[TableState] = []
    for name in NAMES:
        try:
            states.append(read_state(fs, f"{path}/{name}"))
        except FileNotFoundError:
            findings.append(Finding(f"{path}/{name}", "the file is missing"))
        except (KuduError, OSError) as error:
            findings.append(Finding(f"{path}/{name}", str(error)[:300]))
    state = max(states, key=lambda s: (s.epoch, s.applied_ts), default=None)
    if state is None:
        raise NotImplementedError
    log = salvage_log(fs, f"{path}/wal", state.uuid, clean_end=state.clean_end)
    try:
        found = Found(state, log, findings)
        found.state = _followed(found, log, path)
    except BaseException:
        log.close()
        raise
    return found


def _followed(found: Found, log: SalvagedLog, path: str) -> TableState:
    """The state after the records that alter the table, as far as they can be read."""
    state = found.state
    for record in log:
        if record.ts <= state.applied_ts:
            continue
        try:
            if not alters(record):
                continue
            after = Alteration.of_record(record, state.schema).after(state, record.ts)
            check_tablets(after)
        except (KuduError, *BROKEN) as error:
            reason = f"log record {record.lsn} alters the table in no way that is possible: {error!s:.200}"
            found.findings.append(Finding(f"{path}/wal", reason))
            continue
        state = after
    return state


__all__ = ["Found", "find"]
