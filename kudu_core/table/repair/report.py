"""What a repair says of a table: what is kept, what is lost, what is in doubt, and why."""

from __future__ import annotations

from dataclasses import dataclass, field

SHOWN = 40
"""Findings that the text names one by one."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is damaged, missing or not as it should be."""

    path: str
    reason: str
    rows_lost: int = 0
    """Rows that were there and cannot be read, at most: some may be dead, or found elsewhere."""
    changes_lost: int | None = 0
    """Updates and deletions, or records of the log, at most; None: nobody knows how many."""
    bytes_lost: int = 0
    after_ts: int | None = None
    before_ts: int | None = None
    """Of records: the times between which they were."""


@dataclass(frozen=True, slots=True)
class TabletRepair:
    """One tablet."""

    id: int
    partition: int
    rows_kept: int
    """Of which are in doubt:"""
    rows_maybe: int
    """as they are, or were before something that cannot be read;"""
    rows_older: int
    """as they were before a change of which not everything can be read."""
    rows_lost: int
    """Rows whose keys are known and whose cells are not: they are put aside."""
    rows_unreadable: int
    """Rows of pages and files whose keys cannot be read, at most."""
    changes_kept: int
    """Rows of the log's records that were looked at."""
    changes_aside: int
    """Newer changes of older rows: they are not laid over them."""
    findings: tuple[Finding, ...]

    @property
    def rows_doubtful(self) -> int:
        return self.rows_maybe + self.rows_older


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairReport:
    """What ``kudu_core.repair`` found, and what the repaired table holds.

    The same for a dry run and a real one, but for ``written``.

    >>> stock.close()
    >>> kc.repair(stock.path).rows_kept
    3
    """

    path: str
    target: str
    written: bool
    """Whether the table was made at ``target``."""
    tablets: tuple[TabletRepair, ...]
    findings: tuple[Finding, ...]
    """Of the table as a whole: TABLE, the log."""
    assumptions: tuple[str, ...]
    """What was taken for granted where nothing says it."""
    records_kept: int
    """Of the log."""
    records_lost: int | None
    """None: some, nobody knows how many."""
    complete_until: int | None
    """Changes after this time may be missing of any row; None: none are."""
    files_used: tuple[str, ...] = field(repr=False)
    files_unused: tuple[tuple[str, str], ...] = field(repr=False)
    """(path, why)."""

    def _sum(self, name: str) -> int:
        return sum(int(getattr(tablet, name)) for tablet in self.tablets)

    @property
    def rows_kept(self) -> int:
        return self._sum("rows_kept")

    @property
    def rows_doubtful(self) -> int:
        """Of the rows kept: perhaps not the newest, or deleted since."""
        return self._sum("rows_doubtful")

    @property
    def rows_lost(self) -> int:
        """Rows that were there, at most, and of which the repaired table has none."""
        return self._sum("rows_lost") + self._sum("rows_unreadable")

    @property
    def changes_aside(self) -> int:
        return self._sum("changes_aside")

    @property
    def is_sound(self) -> bool:
        """Whether nothing is damaged: then the repaired table equals this one."""
        return not self.findings and not any(tablet.findings for tablet in self.tablets)

    def text(self) -> str:
        """For people.

        >>> stock.close()
        >>> report = kc.repair(stock.path).text()
        """
        lines = [
            f"{self.path}: {'sound' if self.is_sound else 'damaged'}",
            f"rows kept: {self.rows_kept:,}"
            + (f", of which {self.rows_doubtful:,} in doubt" if self.rows_doubtful else ""),
            f"rows lost: {'at most ' if self.rows_lost else ''}{self.rows_lost:,}",
        ]
        if self.changes_aside:
            lines.append(f"changes put aside: {self.changes_aside:,}")
        lost = "an unknown number" if self.records_lost is None else f"{self.records_lost:,}"
        lines.append(f"records of the log kept: {self.records_kept:,}, lost: {lost}")
        if self.complete_until is not None:
            lines.append(f"changes after {self.complete_until} may be missing of any row")
        lines += [f"assumed: {text}" for text in self.assumptions]
        found = [*self.findings, *(f for tablet in self.tablets for f in tablet.findings)]
        lines += [_line(finding) for finding in found[:SHOWN]]
        if len(found) > SHOWN:
            lines.append(f"... and {len(found) - SHOWN:,} more")
        lines.append(f"files read: {len(self.files_used):,}, not used: {len(self.files_unused):,}")
        made = "the repaired table is at" if self.written else "dry run: a repaired table would be made at"
        return "\n".join([*lines, f"{made} {self.target}"])

    def __str__(self) -> str:
        return self.text()


def _line(finding: Finding) -> str:
    what = []
    if finding.rows_lost:
        what.append(f"rows lost, at most: {finding.rows_lost:,}")
    if finding.changes_lost is None:
        what.append("changes lost: nobody knows how many")
    elif finding.changes_lost:
        what.append(f"changes lost, at most: {finding.changes_lost:,}")
    if finding.bytes_lost:
        what.append(f"{finding.bytes_lost:,} bytes")
    return f"{finding.path}: {finding.reason}" + (f" ({'; '.join(what)})" if what else "")


__all__ = ["Finding", "RepairReport", "TabletRepair"]
