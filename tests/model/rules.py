"""The rules of the protocol that can be switched, and the size of the world a run takes place in.

A field of :class:`Rules` is one decision of the protocol: its default is the rule, every other value a
shortcut that somebody could find reasonable.  :data:`SHORTCUTS` names each shortcut once; the tests prove
that the model catches it.  This file does not know what the rules do.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

APPS = 2  #: applications that write with tokens


class Violation(Exception):
    """The model has shown something that the protocol promises not to show."""


class Corruption(Exception):
    """Recovery refuses to open the table."""


class Fenced(Exception):
    """A writer has found that TABLE is no longer the one it installed (protocol P2)."""


@dataclass(frozen=True, slots=True)
class Rules:
    """The protocol as specified; the comment gives the rule and, after the bar, the shortcuts."""

    replay_home: str = "newest_state_below_d"  # protocol O5 | any_live, largest_insert_time, memory_first
    orphans: str = "after_log"  # protocol O7 | before_log
    edit_waits_for_log: bool = True  # protocol E1
    merge_stamp: str = "last_round"  # protocol C4 | install
    merge_catch_up: str = "rounds"  # protocol C3, C4 | memory, once
    merge_stops_flushes: bool = False  # protocol C3 wants it; protocol C4's look at D is enough
    ingest_deltas: str = "flush_first"  # protocol G3 | over_memory
    ingest_edits_first: bool = True  # protocol G3: manifests durable before the record
    ingest_decides_again: bool = True  # protocol G3: keys changed and rowsets replaced since the build
    horizon_persisted: bool = True  # protocol H2
    horizon_at_most_w: bool = True  # protocol H2
    reinsert_into_frozen: bool = False  # protocol F1
    flush_in_order: bool = True  # protocol F3
    reader_log_first: bool = True  # protocol R1
    reader_locks_first: bool = True  # protocol R1, E4: before it looks at TABLE and manifests
    reader_table_before_log: bool = True  # decision 0001
    reader_skips_through: bool = False  # decision 0001
    join_writes_absent: bool = True  # protocol C2
    join_by_time: bool = True  # protocol C2
    torn_tail: str = "evidence"  # protocol O3 | any_valid_after
    segment_under_crc: bool = True  # recycled segments: epoch, seq and lsn of a record are checked
    tail_copied: bool = True  # protocol O3: the last segment is copied into one of the new epoch
    larger_epoch_wins: bool = True  # protocol O3: of two segments with one seq
    manifests_at_open: str = "rewritten"  # decision 0001 | first_edit
    edit_numbers: bool = True  # protocol O2, T2
    mark_checked: bool = True  # protocol O3
    table_before_truncation: bool = True  # protocol T1: TABLE.applied_ts >= X
    truncation_waits_for_edits: bool = True  # protocol T1
    deletion_waits_for_edit: bool = True  # protocol E4
    table_at_most_w: bool = True  # TABLE names nothing that the log may lose
    fencing: bool = True  # protocol P2
    ticket_done: str = "visible"  # protocol W9 | applied
    refusal_waits: bool = True  # protocol W4
    fence_before_committed: bool = True  # decision 0001: protocol P2's check precedes COMMITTED
    fence_before_segment: bool = True  # decision 0001: and a new segment
    read_ahead_raises: bool = True  # protocol H1: a read in (V, now]
    cut: str = "last_record"  # decision 0001 | last_ts (the raised one)
    purge_persists_floor: bool = True  # decision 0001
    offline_reader_syncs: bool = True  # decision 0001


@dataclass(frozen=True, slots=True)
class Environment:
    """How large a run's world is and what happens in it."""

    steps: int = 120
    partitions: int = 2  # key k lives in partition k % partitions
    keys: int = 5
    columns: int = 2
    segment_records: int = 6
    delete_insert: bool = False  # many batches that delete and insert a key under one timestamp
    flush_in_replay: bool = True
    contested: bool = False  # writers lose the lease often and go on for a while
    invariants: bool = True  # False: only harm that a user sees counts, not the invariants inside


AS_SPECIFIED = Rules()

#: name -> (the fields changed, what is wrong, whether the first model found it)
SHORTCUTS: dict[str, tuple[dict[str, Any], str, bool]] = {
    "home-any-live": ({"replay_home": "any_live"}, "replay: the rowset that holds k live, then its D", True),
    "home-insert-time": (
        {"replay_home": "largest_insert_time"},
        "replay: the rowset with the largest insert time <= t",
        True,
    ),
    "home-memory-first": (
        {"replay_home": "memory_first"},
        "replay: MemRowSet first, else the first rowset with D < t",
        True,
    ),
    "orphans-before-log": ({"orphans": "before_log"}, "orphans deleted before the log tail is read", True),
    "edit-before-log": ({"edit_waits_for_log": False}, "manifest edit not waiting for the log's fsync", True),
    "merge-stamp-install": (
        {"merge_stamp": "install"},
        "merge outputs stamped 'through install', last changes only in memory",
        True,
    ),
    "merge-memory": (
        {"merge_catch_up": "memory"},
        "merge catch-up in memory, stamped with the snapshot",
        True,
    ),
    "merge-once": (
        {"merge_catch_up": "once"},
        "merge catch-up persisted once, an ingest arrives before the install",
        True,
    ),
    "ingest-over-memory": (
        {"ingest_deltas": "over_memory"},
        "INGEST adds a delta file and raises D over an unflushed DeltaMemStore",
        True,
    ),
    "ingest-before-edits": (
        {"ingest_edits_first": False},
        "INGEST record names a rowset whose own edit is not durable",
        True,
    ),
    "horizon-forgotten": ({"horizon_persisted": False}, "history horizon not persisted, may go back", True),
    "horizon-above-w": ({"horizon_at_most_w": False}, "horizon above the committed watermark", True),
    "reinsert-frozen": ({"reinsert_into_frozen": True}, "REINSERT into a frozen MemRowSet", True),
    "flush-order": ({"flush_in_order": False}, "two flushes of a tablet install out of order", True),
    "reader-manifests-first": (
        {"reader_log_first": False},
        "another process reads manifests first, the log later",
        True,
    ),
    "reader-locks-late": (
        {"reader_locks_first": False},
        "another process takes its lock on LOCK after it has read the manifests",
        False,
    ),
    "reader-table-late": (
        {"reader_table_before_log": False},
        "a reader with log handles from before a takeover does not notice it",
        False,
    ),
    "reader-skips-through": (
        {"reader_skips_through": True},
        "a reader leaves out what lies below a CHECKPOINT that it read after its manifests",
        False,
    ),
    "join-implied-absent": (
        {"join_writes_absent": False},
        "joined history: 'absent before' of the later lifetime not written",
        True,
    ),
    "join-concatenated": (
        {"join_by_time": False},
        "joined history by concatenation instead of by time",
        True,
    ),
    "torn-any-valid": (
        {"torn_tail": "any_valid_after"},
        "recovery: a valid record after a bad one is Corruption",
        True,
    ),
    "recycled-unsealed": (
        {"segment_under_crc": False},
        "a record with a right CRC is taken for one of this life of a recycled segment",
        False,
    ),
    "tail-in-place": ({"tail_copied": False}, "appending behind a torn tail instead of copying it", False),
    "smaller-epoch-segment": (
        {"larger_epoch_wins": False},
        "of two segments with one seq the older is read",
        False,
    ),
    "manifest-first-edit": (
        {"manifests_at_open": "first_edit"},
        "MANIFEST rewritten by the first edit of an epoch instead of at open",
        False,
    ),
    "edits-unnumbered": ({"edit_numbers": False}, "a MANIFEST that lost durable edits is accepted", False),
    "mark-unchecked": ({"mark_checked": False}, "a log that ends below a manifest's mark is accepted", False),
    "tokens-truncated": (
        {"table_before_truncation": False},
        "log truncated past the tokens that TABLE holds",
        False,
    ),
    "truncate-before-edits": (
        {"truncation_waits_for_edits": False},
        "log truncated before the edits that replace it are durable",
        False,
    ),
    "delete-before-edit": (
        {"deletion_waits_for_edit": False},
        "files deleted before the edit that drops them is durable",
        False,
    ),
    "table-ahead": ({"table_at_most_w": False}, "TABLE holds tokens of records that the log may lose", False),
    "unfenced": ({"fencing": False}, "a stale writer acknowledges, edits and deletes", False),
    "committed-before-fence": (
        {"fence_before_committed": False},
        "COMMITTED written before the check of TABLE",
        False,
    ),
    "segment-unfenced": (
        {"fence_before_segment": False},
        "a stale writer creates a segment",
        False,
    ),
    "ticket-applied": (
        {"ticket_done": "applied"},
        "a ticket is done when its record is applied, not when that is durable",
        False,
    ),
    "refusal-at-once": (
        {"refusal_waits": False},
        "what changes nothing is answered before the record that it rests on is durable",
        False,
    ),
    "read-ahead": ({"read_ahead_raises": False}, "a read in (V, now] does not raise last_ts", False),
    "cut-raised": ({"cut": "last_ts"}, "a cut names the raised last_ts, which no record carries", False),
    "ingest-stale-build": (
        {"ingest_decides_again": False},
        "an ingest installs what its build decided, though keys or rowsets changed since",
        False,
    ),
    "purge-forgets-floor": (
        {"purge_persists_floor": False},
        "a dropped tablet is purged by a floor that nothing durable records",
        False,
    ),
    "offline-reader": (
        {"offline_reader_syncs": False},
        "a reader without a writer takes the end of an un-synced log as W_r",
        False,
    ),
}


def shortcut(name: str) -> Rules:
    """The protocol with one shortcut in it."""
    return replace(AS_SPECIFIED, **SHORTCUTS[name][0])
