"""Mutations: change one line of a critical room, run the tests nearest to it, list what nobody noticed.

First come the tests that the map below names, then the folder of tests that mirrors the mutated file's
package, then those that use the whole table: only what all of them let pass has survived.

The kinds of mutation are in ``ci/mutation_finder.py``.  A mutation that changes nothing that
anybody could see stands in ``ci/equivalent_mutations.txt`` with the reason, and is not drawn again.
"""

from __future__ import annotations

import argparse
import ast
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from queue import Queue

from mutation_finder import Finder, Mutation, mutated

ROOT = Path(__file__).resolve().parent.parent
EQUIVALENT = ROOT / "ci" / "equivalent_mutations.txt"
TIMEOUT_S = 1800
"""Of one run.  A test that hangs ends by its own limit, and has noticed; this is for what that cannot end."""
MAY_SURVIVE = 2


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
            *_of("wal", "log", "sync", "watermarks", "segments", "tail", "open_segments", "check"),
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
        ("kudu_core/rowset/history/straight.py", "kudu_core/table/changes/stretch.py"),
        _tests("table/changes", "straight", "changes", "large_images"),
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
        (*_of("fs", "base", "posix", "lease"), "kudu_core/cfile/pages/container.py"),
        (
            *_tests("fs", "files", "posix", "lease", "power_cut", "rooted"),
            *_tests("cfile", "format", "files", "write_errors", "hostile"),
            "tests/hostile/input/test_names.py",
            "tests/table/lifecycle/test_writers.py",
            *_tests("crash", "faults"),
        ),
    ),
}


def mutations(root: Path = ROOT) -> Iterator[Mutation]:
    """Every mutation of every room; ``SystemExit`` for a file or test that is not there."""
    for name, room in ROOMS.items():
        for missing in (p for p in (*room.files, *room.tests, *WHOLE_TABLE) if not (root / p).exists()):
            raise SystemExit(f"room {name}: there is no {missing}; the map is in ci/mutate.py")
        for path in room.files:
            source = (root / path).read_text()
            finder = Finder(name, path, source)
            finder.visit(ast.parse(source))
            yield from finder.found


def mirror(path: str) -> str:
    """The folder of tests that mirrors a file's package, or else its room."""
    folder = Path("tests", *Path(path).parts[1:-1])
    while not (ROOT / folder).is_dir():
        folder = folder.parent
    return folder.as_posix()


def explained() -> dict[str, str]:
    """Of each known equivalent mutation its reason."""
    reasons: dict[str, str] = {}
    for entry in EQUIVALENT.read_text().split("\n\n"):
        lines = [line for line in entry.splitlines() if line and not line.startswith("#")]
        if lines:
            reasons[lines[0]] = " ".join(line.strip() for line in lines[1:])
    return reasons


def sample(found: list[Mutation], count: int, seed: int) -> list[Mutation]:
    """As many of each room as of every other one, as far as there are."""
    rng = random.Random(seed)
    by_room: dict[str, list[Mutation]] = {}
    for mutation in found:
        by_room.setdefault(mutation.room, []).append(mutation)
    for mutations_of_room in by_room.values():
        rng.shuffle(mutations_of_room)
    rooms, chosen = list(by_room), []
    rng.shuffle(rooms)
    while len(chosen) < count and any(by_room.values()):
        for room in rooms:
            if by_room[room] and len(chosen) < count:
                chosen.append(by_room[room].pop())
    return chosen


def copy_of_tree(target: Path) -> None:
    """With the built kernels."""
    left_out = shutil.ignore_patterns(".git", ".venv*", "build", "dist", "__pycache__", ".*_cache", "*.c")
    shutil.copytree(ROOT, target, ignore=left_out, dirs_exist_ok=True)


def run(tree: Path, tests: tuple[str, ...], temporary: Path) -> tuple[bool, str]:
    """(whether the tests pass, the first that fails or what ended them)."""
    environment = os.environ | {
        "PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1", "TMPDIR": str(temporary),
    }  # fmt: skip
    command = [
        sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "--timeout=240",
        "-o", "faulthandler_timeout=0", "--no-header", "--tb=line", *tests,
    ]  # fmt: skip
    try:
        done = subprocess.run(
            command, cwd=tree, env=environment, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired:
        return False, f"no end within {TIMEOUT_S} s"
    if done.returncode == 0:
        return True, ""
    noticed = [line for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
    return False, noticed[0] if noticed else f"exit status {done.returncode}"


def main() -> int:
    parser = argparse.ArgumentParser(description="single-line mutations of the critical rooms")
    parser.add_argument("--sample", type=int, default=40, help="how many (40)")
    parser.add_argument("--seed", type=int, default=int(os.environ.get("KUDU_CORE_SEED", "0")))
    parser.add_argument("--room", action="append", choices=ROOMS, help="only of this room")
    parser.add_argument("--only", help="PATH:LINE, all mutations of that line")
    parser.add_argument("--jobs", type=int, default=2, help="so many at a time (2)")
    parser.add_argument("--list", action="store_true", help="only count")
    arguments = parser.parse_args()

    known = explained()
    found = [m for m in mutations() if m.key not in known]
    stale = known.keys() - {m.key for m in mutations()}
    if stale:
        print("no longer there, to be taken out of ci/equivalent_mutations.txt:", *sorted(stale), sep="\n  ")
        return 1
    if arguments.room:
        found = [m for m in found if m.room in arguments.room]
    if arguments.only:
        found = [m for m in found if f"{m.path}:{m.line}" == arguments.only]
    if arguments.list:
        for room, count in Counter(m.room for m in found).items():
            print(f"{room:12} {count:5} mutations of {', '.join(ROOMS[room].files)}")
        return 0
    chosen = found if arguments.only else sample(found, arguments.sample, arguments.seed)
    survivors: list[Mutation] = []
    with tempfile.TemporaryDirectory(prefix="kudu-core-mutate-") as scratch:
        free: Queue[Path] = Queue()
        for number in range(arguments.jobs):
            tree = Path(scratch) / f"tree-{number}"
            copy_of_tree(tree)
            free.put(tree)

        def one(mutation: Mutation) -> None:
            tree = free.get()
            temporary = Path(tempfile.mkdtemp(dir=scratch))
            path = tree / mutation.path
            source = path.read_text()
            started = time.monotonic()
            try:
                path.write_text(mutated(source, mutation))
                for tests in (ROOMS[mutation.room].tests, (mirror(mutation.path),), WHOLE_TABLE):
                    survived, how = run(tree, tests, temporary)
                    if not survived:
                        break
            finally:
                path.write_text(source)
                shutil.rmtree(temporary, ignore_errors=True)
                free.put(tree)
            if survived:
                survivors.append(mutation)
            outcome = "SURVIVED" if survived else f"caught by {how[:120]}"
            print(f"[{time.monotonic() - started:4.0f} s] {mutation}\n         {outcome}", flush=True)

        with ThreadPoolExecutor(arguments.jobs) as pool:
            list(pool.map(one, chosen))
    print(f"\nseed {arguments.seed}: {len(chosen)} mutations, {len(survivors)} survived")
    for mutation in survivors:
        print(f"  {mutation.key}")
    return int(len(survivors) > MAY_SURVIVE)


if __name__ == "__main__":
    sys.exit(main())
