"""What the engine tells about itself: plain values, and who may be told.

The library logs only through ``log_events``, itself a listener.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field, fields
from typing import Any, Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something that happened.  ``elapsed_s`` is seconds, sizes are bytes."""

    elapsed_s: float = 0.0
    error: str | None = None
    """What went wrong; None when nothing did."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FlushEnd(Event):
    """A MemRowSet became DiskRowSets, and they are installed."""

    tablet_id: str
    rows: int
    rowsets_added: int
    output_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DeltaFlushEnd(Event):
    """A DeltaMemStore became a DeltaFile."""

    tablet_id: str
    rowset_id: int
    changes: int
    output_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DeltaCompactionEnd(Event):
    """REDO files of a rowset became one ("minor"), or new base columns ("major")."""

    tablet_id: str
    rowset_id: int
    kind: str
    files: int
    changes: int
    columns: int
    output_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeEnd(Event):
    """Rowsets became others that overlap nowhere."""

    tablet_id: str
    rowsets: int
    rowsets_added: int
    rows: int
    rows_dropped: int
    """Rows of the inputs that are none of the outputs: nobody can see them, or another copy tells of them."""
    changes: int
    """Changes that came meanwhile, and were carried over."""
    rounds: int
    input_bytes: int
    output_bytes: int
    horizon: int


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryCollected(Event):
    """History at or below ``horizon`` (hybrid time) was dropped."""

    tablet_id: str
    horizon: int
    undo_files: int
    rowsets: int
    freed_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FilesDeleted(Event):
    """Files that nothing names any more were deleted."""

    tablet_id: str
    files: int
    freed_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class IngestEnd(Event):
    """A bulk ingest, or an overwrite of the table, is committed."""

    tablets: int
    rows: int
    rowsets_added: int
    output_bytes: int
    timestamp: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LogTruncated(Event):
    """Log segments at or before ``through`` (hybrid time) are no longer needed."""

    through: int
    segments: int
    freed_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TokensDropped(Event):
    """Tokens of idempotent writers are gone, by their age or their number: their last writes, repeated, would
    be applied again."""

    tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TableOpened(Event):
    """A table is open; ``records_replayed`` of its log were applied again.

    Of what nothing names, ``orphans_kept`` files and folders went to ``lost/``, and ``orphans_deleted`` had
    been let go of before; ``brought_back`` files came back from ``lost/``.
    """

    path: str
    mode: str
    tablets: int
    records_replayed: int
    orphans_deleted: int
    orphans_kept: int = 0
    brought_back: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TableAltered(Event):
    """Columns or ranges were changed by the record of ``timestamp`` (hybrid time)."""

    timestamp: int
    schema_version: int
    tablets: int
    """Of the table now, without those of dropped ranges."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TabletsPurged(Event):
    """Tablets of dropped ranges, and of before an overwrite, are gone: nobody may read their history."""

    horizon: int
    tablets: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WritersThrottled(Event):
    """Writers wait until memory is flushed."""

    memory_bytes: int
    limit_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MaintenanceError(Event):
    """A maintenance operation failed and will be tried again."""

    tablet_id: str
    operation: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkEvent(Event):
    """A long work begins, goes on or has ended: ``Started``, then any ``Progress``, then ``Ended``.

    These have one ``work_id``.  ``elapsed_s`` counts from the beginning of the work.
    """

    operation: str
    """"flush", "delta flush", "minor", "major", "merge", "history gc", "log gc", "ingest", "alter",
    "compact", "backup", "restore", "verify", "repair"."""
    work_id: int
    """No other work of this process has it."""
    parent_id: int | None = None
    """Of the work that this one is a part of, as a merge is of a compact."""
    tablet_id: str = ""
    phase: str = ""
    """What is done now, where that has several parts: "reading", "writing"."""
    done: int = 0
    """Of ``total``, about; both are of the phase, which may begin anew where a write had to."""
    total: int | None = None
    unit: str = ""
    """What is counted: "rows" or "bytes"."""
    rate: float = 0.0
    """Done per second, in this phase."""
    token: CancelToken | None = field(default=None, repr=False, compare=False)

    def cancel(self) -> None:
        """Ask the work to end, from any thread: it raises ``Cancelled`` at its next step, if it still has one
        before what it does is done."""
        if self.token is not None:
            self.token.cancel()

    def __reduce__(self) -> Any:
        """To another process it goes without its token: the work is here."""
        values = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "token"}
        return _again, (type(self), values)


def _again(kind: type[WorkEvent], values: dict[str, Any]) -> WorkEvent:
    return kind(**values)


class CancelToken(Protocol):
    """By which a long work is asked to end."""

    def cancel(self) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Started(WorkEvent):
    """Nothing is done yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress(WorkEvent):
    """Something is; told ten times a second at most.

    The work may hold locks of the table now: whoever is told must not call the table, but may ``cancel``.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended(WorkEvent):
    """All is done, or ``error`` says why not."""


class EventListener(Protocol):
    """Told what happened, after it happened, and of long work when it begins and goes on.

    Called on the thread that did the work, with no lock held but at ``Progress``, so by several threads at a
    time where several work.  A listener must not call back into the table; what it raises is logged and
    dropped.
    """

    def __call__(self, event: Event, /) -> None: ...


_log = logging.getLogger("kudu_core")
_WARNINGS = (WritersThrottled, MaintenanceError)


def log_events(event: Event, /) -> None:
    """The listener that writes to ``logging.getLogger("kudu_core")``."""
    level = logging.WARNING if event.error is not None or isinstance(event, _WARNINGS) else logging.INFO
    if isinstance(event, WorkEvent) and event.error is None:
        level = logging.DEBUG  # what came of it has an event of its own
    if _log.isEnabledFor(level):
        _log.log(level, "%s", describe(event))


def describe(event: Event) -> str:
    """One line: the event's name and its fields."""
    shown = [
        f"{one.name}={getattr(event, one.name):.3f}"
        if one.name in ("elapsed_s", "rate")
        else f"{one.name}={getattr(event, one.name)!r}"
        for one in fields(event)
        if not (one.name == "error" and event.error is None) and one.name != "token"
    ]
    return f"{type(event).__name__} {' '.join(shown)}"


def tell(listener: EventListener | None, event: Event) -> None:
    """Tell a listener; what it raises is logged and dropped."""
    if listener is None:
        return
    try:
        listener(event)
    except Exception:  # noqa: BLE001  a listener's fault is not the engine's
        _log.exception("a listener raised at %s", describe(event))
