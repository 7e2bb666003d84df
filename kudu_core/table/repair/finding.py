"""What a damaged table is: uuid, columns, partitions and tablets, from TABLE or what stands beside it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kudu_core.common.format.members import BROKEN
from kudu_core.errors import InvalidArgument, KuduError
from kudu_core.fs.copies import copy_of
from kudu_core.table.repair.guessing import Given, guess, uuid_of
from kudu_core.table.repair.report import Finding
from kudu_core.table.stored.alteration import Alteration, alters
from kudu_core.table.stored.table_state import TableState, TabletEntry, check_tablets, read_state
from kudu_core.wal.salvage import SalvagedLog, salvage_log

if TYPE_CHECKING:
    from kudu_core.fs.api import FileSystem


@dataclass(slots=True)
class Found:
    """What is known of the table as a whole."""

    state: TableState
    log: SalvagedLog
    is_told: bool = True
    """Whether TABLE, or its copy, can be read; else partitions and tablets are guessed."""
    findings: list[Finding] = field(default_factory=list)
    assumptions: list[str] = field(default_factory=list)

    @property
    def tablets(self) -> list[TabletEntry]:
        """Those whose rows the newest state has."""
        return [entry for entry in self.state.tablets if entry.dropped_ts is None]


def find(fs: FileSystem, path: str, given: Given) -> Found:
    """What there is at ``path``, as far as it can be read.

    Raises
    ------
    TableNotFound
        There is nothing of a table.
    InvalidArgument
        ``given`` does not fit what is there.
    """
    findings: list[Finding] = []
    table = _read(fs, f"{path}/TABLE", findings)
    copy = _read(fs, copy_of(f"{path}/TABLE"), [])
    states = [state for state in (table, copy) if state is not None]
    uuid = uuid_of(fs, path)
    if uuid is not None and any(state.uuid != uuid for state in states):
        # A file of another table came in its place: what the others say stands.
        states = [state for state in states if state.uuid == uuid]
        if table is not None and table.uuid != uuid:
            findings.append(Finding(f"{path}/TABLE", "it is another table's"))
            table = None
    state = max(states, key=lambda s: (s.epoch, s.applied_ts), default=None)
    if state is not None and not given.is_empty:
        raise InvalidArgument(
            "schema, primary_key and partition_by are for a table whose TABLE and TABLE.copy cannot be read"
        )
    clean_end = state.clean_end if state is not None else 0
    log = salvage_log(fs, f"{path}/wal", None if state is None else state.uuid, clean_end=clean_end)
    try:
        if state is None:
            guessed = guess(fs, path, log, given)
            return Found(guessed.state, log, False, findings, guessed.assumptions)
        found = Found(state, log, True, findings)
        if table is None:
            found.assumptions.append(f"TABLE is as {path}/TABLE.copy has it")
        elif table.epoch < max(state.epoch, log.epoch):
            findings.append(Finding(f"{path}/TABLE", f"an older copy: it is of epoch {table.epoch}"))
        if state.epoch < log.epoch:
            found.assumptions.append(
                f"columns and ranges are those of epoch {state.epoch}, though the log is of {log.epoch}"
            )
        found.state = _followed(found, log, path)
    except BaseException:
        log.close()
        raise
    return found


def _read(fs: FileSystem, path: str, findings: list[Finding]) -> TableState | None:
    try:
        return read_state(fs, path)
    except FileNotFoundError:
        findings.append(Finding(path, "the file is missing"))
    except (KuduError, OSError) as error:
        findings.append(Finding(path, str(error)[:300]))
    return None


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
