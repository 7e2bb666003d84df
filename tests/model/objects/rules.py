"""The rules for object stores that can be switched, the shortcuts, and the size of a run's world.

A field of :class:`Rules` is one decision of docs/protocol-objects.md: its default is the rule, its other
value a shortcut that somebody could find reasonable.  This file does not know what the rules do.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

# Times are counted in steps of the scheduler.
PROOF = 60  #: how old a writer's last proof may be
STAGING = 20  #: staging_grace_s
DEADLINE = 5  #: attempts after which a writer gives up (store_deadline_s)


class Violation(Exception):
    """The model has shown something that the protocol promises not to show."""


class Corruption(Exception):
    """The table is refused, loudly."""


class Fenced(Exception):
    """A writer has learned that it is no longer the writer."""


class Poisoned(Exception):
    """A writer stops: of a commit it does not know whether it is there."""


class Gone(Exception):
    """A reader has met the traces of a deletion and starts again."""


@dataclass(frozen=True, slots=True)
class Rules:
    """The protocol as specified; the comment gives the rule."""

    one_in_flight: bool = True  # protocol B1
    ack_after_put: bool = True  # protocol B2
    same_number: bool = True  # protocol B3: an unknown PUT is repeated under its number
    own_id: bool = True  # protocol B3: "exists" is resolved by the put id
    epoch_before_log: bool = True  # protocol B4
    stop_at_later_epoch: bool = True  # protocol B4
    fence: bool = True  # protocol B4; no lease stands for it, protocol B11
    verify_after_fence: bool = True  # protocol B4
    gap_again: bool = True  # protocol B4: what follows a gap is no part of the log
    keep_fences: bool = True  # protocol B5
    proof_ages: bool = True  # protocol B5
    cas_table: bool = True  # protocol B6
    unique_table: bool = True  # protocol B6
    numbered_edits: bool = True  # protocol B7: replay leaves out what the snapshot has
    file_before_edit: bool = True  # protocol B7
    boundary_first: bool = True  # protocol B8: TABLE before the log is deleted
    first_covers_memory: bool = True  # protocol B8
    tokens_in_table: bool = True  # protocol B8
    mark_before_forgetting: bool = True  # protocol B8: of jobs, before the log may drop the record
    reader_checks_table: bool = True  # protocol B9
    reader_checks_start: bool = True  # protocol B9
    follower_checks_table: bool = True  # protocol B9
    age_after_answer: bool = True  # protocol B9: of TABLE, when the log's end is known
    chained: bool = True  # protocol B9
    clean_end_asked: bool = True  # protocol B10
    now_before_table: bool = True  # protocol B10
    retire_after_edit: bool = True  # protocol B12
    epoch_in_names: bool = True  # protocol B12: a name is never used again
    grace: bool = True  # protocol B12
    grace_for_found: bool = True  # protocol B13: what an opener finds gets its grace too
    sweep_older_epochs: bool = True  # protocol B13
    sweep_by_name: bool = True  # protocol B13: never by prefix in files/
    give_up_first: bool = True  # protocol B13: a record gives a job up before its files go
    sweep_proves: bool = True  # protocol B13: TABLE is looked at after the choice
    absence_by_get: bool = True  # protocol B13: LIST may lack what is there
    mark_after_record: bool = True  # protocol B13
    mark_outlives_job: bool = True  # protocol B13
    job_looked_last: bool = True  # protocol B13: JOB after the fence and after COMMITTED
    gone_again: bool = True  # protocol B14


@dataclass(frozen=True, slots=True)
class Environment:
    """How large a run's world is and what happens in it."""

    writers: int = 4
    readers: int = 2
    jobs: int = 1
    commits: int = 2  # of each job: drivers that do not know of each other
    operations: int = 14  # of a writer
    grace: int = 24  # file_grace_s
    late: int = 150  # how long a request may be under way
    kept: int = 180  # how long fences and marks of jobs are kept: longer than that
    upkeep: bool = False  # more checkpoints, deletions and sweeps, fewer writes
    steps: int = 1200
    faults: float = 0.08  # of requests
    kills: float = 0.002  # of steps
    pauses: float = 0.025  # of steps
    broken: float = 0.0  # of puts of log objects: the store overwrites what is there


AS_SPECIFIED = Rules()

WORLDS: dict[str, Environment] = {
    "mixed": Environment(),
    "upkeep": Environment(upkeep=True),
    "zombies": Environment(upkeep=True, writers=8, readers=1, jobs=0, operations=10, kills=0.006),
    "readers": Environment(upkeep=True, writers=5, readers=4, jobs=0, operations=8),
    "long-grace": Environment(
        upkeep=True, writers=12, readers=2, jobs=0, operations=3, grace=400, steps=400, pauses=0.005,
        kills=0.01,
    ),
    "jobs": Environment(upkeep=True, writers=2, readers=0, jobs=2, commits=4, operations=20, pauses=0.04),
    "sweeps": Environment(
        upkeep=True, writers=4, readers=0, commits=3, operations=30, steps=400, faults=0.05, kills=0,
        pauses=0.05,
    ),
    "one-job": Environment(
        upkeep=True, writers=1, readers=0, commits=5, operations=60, steps=450, faults=0.3, kills=0.02,
        pauses=0.005, late=400, kept=430,
    ),
}


def _without(field: str, what: str) -> tuple[dict[str, Any], str]:
    return {field: False}, what


#: name -> (the fields changed, what is wrong)
SHORTCUTS: dict[str, tuple[dict[str, Any], str]] = {
    "two-in-flight": _without("one_in_flight", "n and n+1 under way at once, each acknowledged by its own"),
    "acknowledged-early": _without("ack_after_put", "acknowledged when the record is in the buffer"),
    "number-given-up": _without("same_number", "after an unknown PUT the next number is taken"),
    "later-epoch-ignored": _without("stop_at_later_epoch", "an opener reads on over a later epoch"),
    "no-fence": _without("fence", "an opener believes the end of the log; a lease stands for the fence"),
    "unverified": _without("verify_after_fence", "TABLE is not read again after the fence"),
    "gap-skipped": _without("gap_again", "of a parallel read, objects behind a missing number are taken"),
    "fences-deleted": (
        {"keep_fences": False, "proof_ages": False},
        "fences are deleted with the log before them",
    ),
    "proof-for-ever": _without("proof_ages", "a writer that slept longer than fences live looks at nothing"),
    "table-unconditional": _without("cas_table", "TABLE is overwritten without a condition"),
    "table-repeats": _without("unique_table", "TABLE without a put id: another's bytes pass for own ones"),
    "edits-again": _without("numbered_edits", "replay applies edits that the snapshot has"),
    "edit-before-file": _without("file_before_edit", "the EDIT record is put before the file"),
    "log-deleted-first": _without("boundary_first", "log objects are deleted before TABLE says so"),
    "first-beyond-memory": _without("first_covers_memory", "log_first passes rows that only memory has"),
    "tokens-forgotten": _without("tokens_in_table", "TABLE lacks the tokens of what the log drops"),
    "mark-forgotten": _without("mark_before_forgetting", "the log drops a job's record, and nothing says so"),
    "missing-ends-log": _without("reader_checks_table", "a missing number is the end, TABLE is not asked"),
    "end-compared": (
        {"reader_checks_start": False, "chained": False},
        "of TABLE is asked only if the log begins beyond the end; prev_id, which would tell, is not compared",
    ),
    "follower-trusts": _without("follower_checks_table", "a follower takes a missing number for no news"),
    "age-asked-early": _without("age_after_answer", "TABLE's age is asked before the log is read"),
    "unchained": _without("chained", "prev_id is not compared (a store that breaks its conditions)"),
    "settled-unasked": _without("clean_end_asked", "a reader takes silence for a table without a writer"),
    "now-too-late": _without("now_before_table", "a settled read takes the clock after it has read TABLE"),
    "retired-before-edit": _without("retire_after_edit", "inputs of a merge are deleted before its edit"),
    "names-reused": _without("epoch_in_names", "files are named by edit number, without the epoch"),
    "no-grace": _without("grace", "deleted at once, while readers leave out the look at TABLE"),
    "no-grace-at-open": _without("grace_for_found", "an opener deletes what it finds at once"),
    "sweep-own-epochs": _without("sweep_older_epochs", "an opener sweeps names of its own and later epochs"),
    "sweep-by-prefix": _without("sweep_by_name", "files/<job>/ goes by prefix when the job is over"),
    "sweep-by-age": _without("give_up_first", "files of a job go by age alone, no record gives it up"),
    "sweep-unproved": _without("sweep_proves", "a sweep acts on what it once chose, TABLE is not asked"),
    "absence-listed": _without("absence_by_get", "that a LIST lacks JOB is believed"),
    "mark-before-record": _without("mark_after_record", "COMMITTED is put before the job's record"),
    "mark-goes-with-job": _without("mark_outlives_job", "COMMITTED is deleted together with JOB"),
    "job-looked-first": _without("job_looked_last", "JOB is looked at before the table is opened"),
    "gone-left-out": _without("gone_again", "a reader leaves out a file that has vanished"),
}

#: name -> (the fields changed, why it is safe, what it costs): no run may catch these.
SAFE: dict[str, tuple[dict[str, Any], str]] = {
    "exists-believed": _without("own_id", "a writer fences itself where only an answer was lost"),
    "log-before-epoch": _without("epoch_before_log", "the CAS fails if anything was dropped since the read"),
}


def shortcut(name: str) -> Rules:
    """The protocol with one shortcut in it."""
    return replace(AS_SPECIFIED, **(SHORTCUTS | SAFE)[name][0])
