"""The walk of a repair: find, read, judge, write beside, rename (docs/repair.md, protocol S1)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from kudu_core.common.rows.keys import decode_keys
from kudu_core.common.rows.rowblock import RowBlock
from kudu_core.common.run.clock import Clock
from kudu_core.common.run.measure.work import counted_here
from kudu_core.errors import Corruption, Locked, TableNotFound
from kudu_core.table.repair.facts import LOST, MAYBE, OLDER, PRESENT, MissingFacts, Verdicts
from kudu_core.table.repair.files import Files
from kudu_core.table.repair.finding import Found, find
from kudu_core.table.repair.guessing import Given
from kudu_core.table.repair.log_changes import TabletChanges, Unusable, changes_of
from kudu_core.table.repair.report import Finding, RepairReport, TabletRepair
from kudu_core.table.repair.tablet_facts import TabletFacts
from kudu_core.table.repair.write_beside import Aside, RepairedRange, write_beside
from kudu_core.table.stored.table_state import TabletEntry, tablet_directory
from kudu_core.tablet.store.salvage import salvage_manifest

if TYPE_CHECKING:
    from kudu_core.fs.api import FileSystem, Identity


@dataclass(slots=True)
class _RepairWalk:
    """One reading of a damaged table."""

    fs: FileSystem
    path: str
    found: Found
    files: Files
    unusable: list[Unusable] = field(default_factory=list)
    tablets: list[TabletRepair] = field(default_factory=list)

    def outputs(self) -> Iterator[RepairedRange]:
        """The rows that are kept, and what is put aside, tablet by tablet."""
        found = self.found
        entries = found.tablets
        changes = changes_of(
            found.log, found.state.schema, {entry.id for entry in entries}, self.unusable.append
        )
        for entry in entries:
            yield from self._tablet(entry, changes.pop(entry.id))

    def _tablet(self, entry: TabletEntry, changes: TabletChanges) -> Iterator[RepairedRange]:
        found, state = self.found, self.found.state
        log = found.log
        directory = tablet_directory(self.path, entry.id)
        manifest = salvage_manifest(
            self.fs,
            directory,
            state.uuid,
            entry.id,
            max(log.edit_numbers.get(entry.id, 0), state.edits.get(entry.id, 0)),
            closed=state.clean_end > 0 and entry.id in state.edits,
        )
        gaps = [gap.before_ts for gap in log.gaps if gap.before_ts is not None]
        gaps += [record.ts + 1 for record in self.unusable]
        gaps.append(log.begins_after + 1)
        missing = MissingFacts(tuple(sorted(gaps)), (), manifest.state.mark)
        through, begins = log.through, log.begins_after
        facts = TabletFacts.open(
            self.files, directory, state.schema, manifest, changes, missing, through, begins
        )
        counts = _Counts()
        try:
            for verdicts in facts.verdicts():
                yield self._output(entry, verdicts, counts)
            findings = self._findings(facts)
        finally:
            facts.close()
        self.tablets.append(
            TabletRepair(
                id=entry.id,
                partition=entry.partition,
                rows_kept=counts.kept,
                rows_maybe=counts.maybe,
                rows_older=counts.older,
                rows_lost=counts.lost,
                rows_unreadable=sum(finding.rows_lost for finding in findings),
                changes_kept=changes.rows,
                changes_aside=counts.aside,
                findings=tuple(findings),
            )
        )

    def _output(self, entry: TabletEntry, verdicts: Verdicts, counts: _Counts) -> RepairedRange:
        schema, partitions = self.found.state.schema, self.found.state.partitions
        block = decode_keys(schema, verdicts.keys)
        block = RowBlock({**block.columns, **verdicts.columns}, block.rows)
        verdict = verdicts.verdict
        mine: np.ndarray | bool = True
        if self.found.is_told:  # what belongs to another tablet is of a file that came from elsewhere
            mine = partitions.route(block) == entry.partition
        kept = np.flatnonzero((verdict <= OLDER) & mine)
        lost = np.flatnonzero((verdict == LOST) & mine)
        counts.kept += len(kept)
        counts.maybe += int((verdict[kept] == MAYBE).sum())
        counts.older += int((verdict[kept] == OLDER).sum())
        counts.lost += len(lost)
        counts.aside += int(verdicts.aside[kept].sum())
        doubtful = kept[verdict[kept] != PRESENT]
        aside = Aside(
            entry.id,
            block.take(lost),
            {i: mask[lost] for i, mask in verdicts.known.items()},
            block.select(schema.key_ids).take(doubtful),
            verdict[doubtful],
        )
        return RepairedRange(block if len(kept) == block.rows else block.take(kept), aside)

    def _findings(self, facts: TabletFacts) -> list[Finding]:
        findings = [Finding(path, reason, changes_lost=None) for path, reason in facts.manifest.damage]
        by_path: dict[str, Finding] = {}
        for store in facts.stores:
            for damage in store.rowset.damage:
                path = damage.path if "/" in damage.path else f"{facts.directory}/{damage.path}"
                before = by_path.get(path, Finding(path, damage.reason))
                by_path[path] = replace(
                    before,
                    rows_lost=before.rows_lost + damage.rows,
                    changes_lost=(before.changes_lost or 0) + damage.changes,
                )
        return [*findings, *by_path.values()]


@dataclass(slots=True)
class _Counts:
    kept: int = 0
    maybe: int = 0
    older: int = 0
    lost: int = 0
    aside: int = 0


def repair(
    fs: FileSystem, path: str, target: str, given: Given, *, dry_run: bool, clock: Clock
) -> RepairReport:
    """Read what can be read of the table at ``path``; make a table of it at ``target`` unless ``dry_run``.

    The walk behind ``kudu_core.repair``.
    """
    before = _unopened(fs, path)
    inside = fs.rooted(path)  # a damaged table may be a hostile one
    found = find(inside, path, given)
    walk = _RepairWalk(inside, path, found, Files(inside, path))

    def told() -> RepairReport:
        """All was read: if nobody has written meanwhile, of one state of the table."""
        if _unopened(fs, path) != before:
            raise Locked(path, None, None)
        return _report(walk, target, written=not dry_run)

    try:
        if not dry_run:
            write_beside(fs, target, found, walk.outputs(), told, clock)
            return _report(walk, target, written=True)
        for _ in counted_here(walk.outputs(), lambda output: output.kept.rows):
            pass
        return told()
    finally:
        found.log.close()


def _unopened(fs: FileSystem, path: str) -> Identity | None:
    """Which file TABLE is, None where it is none: another one when somebody has opened the table for writing
    since.  ``Locked`` while somebody has."""
    if not fs.exists(path) or not fs.is_dir(path):
        raise TableNotFound(f"there is no folder at {path}")
    inside = fs.rooted(path)
    holder = None
    if inside.exists(f"{path}/LOCK"):
        with suppress(Corruption):  # what is no regular file is nobody's lease
            holder = inside.lease(f"{path}/LOCK").holder()
    if holder is not None:
        raise Locked(path, holder.pid, holder.host)
    with suppress(OSError, Corruption):
        return inside.identity(f"{path}/TABLE")
    return None


def _report(walk: _RepairWalk, target: str, *, written: bool) -> RepairReport:
    found, log = walk.found, walk.found.log
    gaps = [
        Finding(
            gap.path,
            gap.reason,
            changes_lost=gap.records,
            bytes_lost=gap.nbytes,
            after_ts=gap.after_ts,
            before_ts=gap.before_ts,
        )
        for gap in log.gaps
    ]
    gaps += [
        Finding(f"{walk.path}/wal", f"log record {r.lsn}: {r.reason}", changes_lost=1, before_ts=r.ts + 1)
        for r in walk.unusable
    ]
    lost = [gap.records for gap in log.gaps]
    until = [gap.after_ts for gap in log.gaps] + [record.ts - 1 for record in walk.unusable]
    unused = sorted(set(walk.files.everywhere()) - walk.files.used)
    return RepairReport(
        path=walk.path,
        target=target,
        written=written,
        tablets=tuple(walk.tablets),
        findings=(*found.findings, *gaps),
        assumptions=tuple(found.assumptions),
        records_kept=log.records,
        records_lost=None if None in lost else sum(n or 0 for n in lost) + len(walk.unusable),
        complete_until=min(until, default=None),
        files_used=tuple(sorted(walk.files.used)),
        files_unused=(*((path, "no edit and no record needs it") for path in unused), *log.unused),
    )


__all__ = ["repair"]
