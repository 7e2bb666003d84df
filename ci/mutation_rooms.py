"""What ``ci/mutate.py`` mutates: files by room, and the tests that are to notice."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Room:
    """Files that are mutated, and the tests that are to notice, the nearest first."""

    files: tuple[str, ...]
    tests: tuple[str, ...]


def _of(folder: str, *names: str) -> tuple[str, ...]:
    return tuple(f"kudu_core/{folder}/{name}.py" for name in names)


def _tests(folder: str, *names: str) -> tuple[str, ...]:
    return tuple(f"tests/{folder}/test_{name}.py" for name in names)


JOBS = _tests("spark/write", "jobs", "job_rows")
WHOLE_TABLE = (
    *_tests("stories", "small_guards", "scenarios"),
    *_tests("table/write", "durable_answers"),
    *_tests("table/lifecycle", "closing_beside", "opening", "readers_beside"),
    *_tests("tablet/maintain", "flushes"),
    *_tests("interrupts", "between_steps"),
    *_tests("stories", "mixed_histories", "differential"),
    "tests/hostile/files",
)
"""What the tests of a room let pass, these may notice."""

ROOMS = {
    "decide": Room(
        (
            *_of("table/calls", "call", "prepared", "decide", "refused"),
            *_of("table/write", "door", "found_walk", "log_walk", "one_row", "few_rows"),
            "kudu_core/table/opened/record.py",
        ),
        (
            *_tests("table/calls", "decide", "row_rules"),
            *_tests("table/write", "row_path", "row_path_taken", "row_path_left", "few_rows", "batches"),
            *_tests("table/write", "door", "few_arrow_rows", "found_rows"),
            *_tests("table/opened", "txn", "repetition", "repetition_of_jobs"),
            *_tests("hostile/input", "bad_input", "bad_paths"),
            *JOBS,
        ),
    ),
    "apply": Room(
        ("kudu_core/tablet/store/apply.py", "kudu_core/tablet/store/records.py"),
        (
            *_tests("tablet/store", "records", "reserving", "laying"),
            *_tests("stories", "scenarios", "versions"),
            *_tests("table/write", "row_path", "row_path_taken", "row_path_left", "few_rows"),
            *_tests("crash", "replay"),
        ),
    ),
    "commit": Room(
        (
            *_of("table/ingest", "commit_parts", "ingest", "spill"),
            "kudu_core/table/jobs/commit.py",
        ),
        (
            *_tests("table/ingest", "bulk", "bulk_failures", "overwrite", "overwrite_beside"),
            *_tests("table/jobs", "abandon", "job_commits"),
            *JOBS,
        ),
    ),
    "recheck": Room(
        (
            "kudu_core/tablet/ingest/recheck.py",
            "kudu_core/table/jobs/resolve.py",
            "kudu_core/table/ingest/accept.py",
            "kudu_core/table/ingest/build.py",
        ),
        (*JOBS, *_tests("table/ingest", "bulk", "bulk_failures"), *_tests("stories", "bank")),
    ),
    "replay": Room(
        (
            "kudu_core/tablet/replay/bootstrap.py",
            *_of("table/lifecycle", "checks", "open_reader", "open_writer"),
            "kudu_core/table/stored/alteration.py",
        ),
        (
            *_tests("crash", "replay", "invariants", "alter"),
            *_tests("table/lifecycle", "readers"),
            *_tests("stories", "small_guards"),
            *_tests("table/lifecycle", "alter", "alter_beside"),
            "tests/hostile/files/test_damage.py",
            *_tests("crash", "faults"),
        ),
    ),
    "log": Room(
        (
            *_of("wal", "log", "appending", "sync", "watermarks", "segments", "tail"),
            *_of("wal", "open_segments", "check"),
            "kudu_core/wal/find_records.py",
        ),
        (
            *_tests("wal", "log", "log_failures", "segments", "reading", "follow", "power_cut"),
            *_tests("interrupts", "log_segments"),
            *_tests("crash", "alter", "faults"),
        ),
    ),
    "manifest": Room(
        (
            *_of("tablet/store", "manifest", "tablet"),
            *_of("table", "opened/table_file", "stored/table_state"),
            "kudu_core/wal/fence.py",
        ),
        (
            *_tests("interrupts", "failed_fsyncs"),
            "tests/table/opened/test_table_file.py",
            "tests/table/stored/test_formats.py",
            "tests/hostile/files/test_damage.py",
            *_tests("crash", "invariants", "replay"),
            *_tests("stories", "scenarios"),
            *_tests("tablet/maintain", "maintenance"),
            *_tests("crash", "faults"),
        ),
    ),
    "flush": Room(
        (*_of("tablet/flush", "memory", "deltas"), "kudu_core/rowset/disk/writing.py"),
        (
            *_tests("stories", "versions"),
            *_tests("tablet/maintain", "maintenance"),
            *_tests("tablet/store", "reserving", "laying"),
            *_tests("crash", "invariants", "faults"),
        ),
    ),
    "maintain": Room(
        _of("tablet/maintain", "looks", "scoring", "together", "flush_lane"),
        _tests("tablet/maintain", "looks", "scoring", "together", "flushes", "maintaining"),
    ),
    "compaction": Room(
        (*_of("tablet/compact", "delta_compaction", "history_gc"), "kudu_core/tablet/store/garbage.py"),
        (
            *_tests("tablet/compact", "delta_compaction"),
            *_tests("stories", "versions"),
            *_tests("tablet/maintain", "maintaining", "pressure"),
            *_tests("crash", "faults"),
        ),
    ),
    "merge": Room(
        (
            *_of("tablet/compact", "merge", "merge_past", "merge_output"),
            *_of("rowset/history", "joining", "merging"),
        ),
        (
            *_tests("tablet/compact", "merge_compaction", "merge_cases", "merge_dead_rows", "merge_beside"),
            *_tests("rowset", "joining"),
            *_tests("tablet/compact", "merge_interrupted"),
            *_tests("tablet/compact/elsewhere", "states", "failures", "maintenance"),
            *_tests("crash", "faults"),
        ),
    ),
    "pins": Room(
        (
            "kudu_core/table/opened/pins.py",
            "kudu_core/table/read/moment.py",
            "kudu_core/table/read/snapshot.py",
            "kudu_core/table/lifecycle/purge.py",
        ),
        (
            *_tests("table/opened", "snapshots", "times_ahead"),
            *_tests("stories", "small_guards"),
            *_tests("table/lifecycle/ranges", "alter_ranges", "dropped_ranges"),
            *_tests("stories", "versions"),
            *_tests("table/ingest", "overwrite"),
            *_tests("crash", "alter"),
        ),
    ),
    "few": Room(
        (*_of("table/read", "short_scan", "few_keys", "scan_columns"), *_of("table/opened", "kept_plans")),
        (
            *_tests("table/read", "short_scan", "fixed_keys", "scans", "pruning"),
            *_tests("rowset", "first_rows"),
        ),
    ),
    "patches": Room(
        (
            *_of("rowset/disk", "patches", "warming", "heat"),
            "kudu_core/tablet/maintain/delta_policy.py",
        ),
        (
            *_tests("tablet/store", "patches"),
            *_tests("rowset", "scan_over_changes"),
            *_tests("tablet/maintain", "delta_policy"),
            *_tests("stories", "versions"),
        ),
    ),
    "told": Room(
        (
            *_of("rowset/history", "straight", "window", "history"),
            *_of("table/changes", "stretch", "changes", "keyed", "net", "states", "changes_plan"),
            *_of("cfile/files", "ascending", "delta_file"),
            "kudu_core/rowset/memory/logged.py",
        ),
        (
            *_tests("table/changes", "straight", "changes", "large_images", "changes_of_keys", "some_rows"),
            *_tests("cfile", "delta_files"),
        ),
    ),
    "opened": Room(
        (
            *_of("table/opened", "store_memory", "tablets", "writers"),
            "kudu_core/tablet/maintain/memory_use.py",
        ),
        (
            *_tests("table/opened", "store_memory", "tablets", "known_writers"),
            *_tests("table/opened", "token_retention", "repetition", "repetition_of_jobs"),
            *_tests("tablet/maintain", "memory", "maintaining", "pressure"),
        ),
    ),
    "staging": Room(
        (
            "kudu_core/table/jobs/stager.py",
            "kudu_core/table/lifecycle/staging_folders.py",
            "kudu_core/table/opened/job_marks.py",
            "kudu_core/table/runs/staged.py",
        ),
        (
            *JOBS,
            *_tests("table/jobs", "job_commits", "job_marks", "job_rechecks"),
            *_tests("table/ingest", "bulk", "bulk_failures"),
            *_tests("tablet/compact/elsewhere", "states", "failures"),
            "tests/hostile/input/test_names.py",
        ),
    ),
    "alter": Room(
        ("kudu_core/table/lifecycle/alter.py", "kudu_core/table/ingest/overwrite.py"),
        (
            *_tests("table/lifecycle", "alter", "alter_beside", "alter_threads"),
            *_tests("table/lifecycle/ranges", "alter_ranges", "dropped_ranges"),
            *_tests("stories", "alter_random"),
            *_tests("table/ingest", "overwrite", "overwrite_beside"),
            *_tests("crash", "alter"),
        ),
    ),
    "files": Room(
        (
            *_of("fs", "base", "posix", "lease"),
            *_of("cfile/pages", "container", "container_writer", "section_copies"),
        ),
        (
            *_tests("fs", "files", "posix", "lease", "power_cut", "rooted"),
            *_tests("cfile", "format", "files", "write_errors", "hostile"),
            *_tests("objects", "section_copies"),
            "tests/hostile/input/test_names.py",
            "tests/table/lifecycle/test_writers.py",
            *_tests("crash", "faults"),
        ),
    ),
    "object log": Room(
        _of("wal/objects", "log_object", "object_tail", "object_fence", "object_log"),
        (
            *_tests("wal/objects", "log_object", "object_log"),
            *_tests("table/in_store", "takeover", "requests", "outages", "readers"),
            *_tests("table/in_store/killed", "killed"),
            *_tests("table/in_store", "differential_in_store"),
        ),
    ),
    "cache of the machine": Room(
        (*_of("fs", "piece_cache"), *_of("objects", "cache_options")),
        (*_tests("fs", "piece_cache"), *_tests("table/in_store", "cached")),
    ),
    "commands": Room(
        (
            *_of("cli/shared", "json_values", "arrays_of_json", "typed_text", "files_read", "files_written"),
            *_of("cli/inside", "container_spans", "file_pieces", "log_spans", "manifest_spans"),
        ),
        _tests("cli", "files", "look", "care", "wrong", "change"),
    ),
    "nested": Room(
        _of("common/types/nested", "nested_nodes", "nested_flatten", "nested_assemble", "nested_layout"),
        _tests("common/nested", "nested_types", "nested_copies", "nested_damage", "nested_round_trip"),
    ),
    "in store": Room(
        (
            *_of("table/lifecycle/in_store", "table_object", "found", "store_home", "open_store_writer"),
            *_of("table/lifecycle/in_store", "open_store_reader", "create_in_store", "put_ids"),
            *_of("tablet/store", "edit_records", "logged_manifest"),
            *_of("table/stored", "store_place"),
            *_of("objects", "object_lease"),
            *_of("objects/files", "object_files", "file_ends", "asked_pieces"),
        ),
        (
            *_tests("objects", "object_files", "object_lease"),
            *_tests("table/in_store", "takeover", "requests", "outages", "readers", "reading"),
            *_tests("table/in_store/killed", "killed"),
            *_tests("table/in_store", "differential_in_store"),
            *_tests("objects", "tables"),
        ),
    ),
}
