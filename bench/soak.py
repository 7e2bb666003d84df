"""Mixed load for a long time: whether memory, open files, threads and the log stay level.

    python bench/soak.py --minutes 60 [--path DIR] [--writers 2] [--readers 2] [--every 5] [--deletes]

Writers upsert rows and columns, singly, in batches and by ingest, over keys of a fixed number; readers of
this process scan, count and get; one reader of another process opens, reads and refreshes.  Background
maintenance runs.  With --deletes keys are deleted and inserted again too: then the number of rowsets, and
with it that of files, is level only where rowsets are merged.

A line of figures is printed every few seconds.  At the end the second half is compared with the second
quarter: what has grown by more than its allowance is told, and the exit status is 1.
"""

from __future__ import annotations

import argparse
import gc
import os
import random
import shutil
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
from collections import Counter
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np
import pyarrow as pa

import kudu_core as kc
from kudu_core.events import Event, MaintenanceError

KEYS = 200_000
SEGMENT = 64 << 20

READER = """
    import sys, time
    import kudu_core as kc
    path, seconds = sys.argv[1], float(sys.argv[2])
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        with kc.open_table(path) as table:
            for _ in range(20):
                try:
                    rows = table.scan(["k", "v", "w"]).to_table()
                except kc.SnapshotTooOld:
                    table.refresh()
                    continue
                v, w = rows["v"].to_numpy(), rows["w"].to_numpy()
                assert (v == -w).all(), "a batch was seen in part"
                table.refresh()
                time.sleep(0.05)
"""


@dataclass(frozen=True, slots=True)
class Figures:
    """What is watched.  Bytes, numbers."""

    rss: int
    open_files: int
    threads: int
    log_bytes: int
    log_segments: int
    disk_bytes: int
    files: int
    pinned: int


# Fewer looks than this say nothing.
LOOKS = 8

# By how much a figure may be larger in the second half than in the second quarter: share, and absolute.
ALLOWED = {
    "rss": (0.15, 64 << 20),
    "open_files": (0.2, 12),
    "threads": (0.0, 1),
    "log_bytes": (0.2, SEGMENT),
    "log_segments": (0.0, 2),
    "disk_bytes": (0.25, 128 << 20),
    "files": (0.3, 30),
    "pinned": (0.0, 4),
}


def rss_bytes() -> int:
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def look(table: kc.Table, path: Path) -> Figures:
    stats = table.stats().to_pylist()[0]
    size = files = 0
    for file in path.rglob("*"):
        try:
            size += file.stat().st_size
            files += 1
        except FileNotFoundError:
            continue  # removed since it was listed
    return Figures(
        rss_bytes(),
        len(os.listdir("/proc/self/fd")),
        threading.active_count(),
        stats["log_bytes"],
        stats["log_segments"],
        size,
        files,
        stats["snapshots_pinned"],
    )


class Load:
    """The threads, what they did and what went wrong."""

    def __init__(self, table: kc.Table, seed: int, *, deletes: bool) -> None:
        self.table = table
        self.deletes = deletes
        self.seed = seed
        self.stop = threading.Event()
        self.done: Counter[str] = Counter()
        self.failed: list[BaseException] = []

    def guarded(self, work: str, number: int) -> None:
        try:
            getattr(self, work)(random.Random(self.seed * 100 + number), number)
        except BaseException as error:  # noqa: BLE001  told by the main thread
            self.failed.append(error)
            self.stop.set()

    def write(self, rng: random.Random, number: int) -> None:
        draw = np.random.default_rng(rng.randrange(1 << 30))
        step = number
        while not self.stop.is_set():
            step += 1
            shares = (60, 100, 10 * self.deletes, 1, 10, 30)
            kind = rng.choices(("upsert", "row", "delete", "ingest", "batch", "column"), shares)[0]
            size = {"upsert": 500, "row": 1, "delete": 100, "ingest": 40_000, "batch": 50, "column": 300}[
                kind
            ]
            keys = np.unique(draw.integers(0, KEYS, size))
            v = draw.integers(0, 1 << 40, len(keys))
            rows = pa.table({"k": keys, "v": v, "w": -v, "s": [f"s{x % 97}" for x in v.tolist()]})
            if kind == "delete":
                self.table.delete(pa.table({"k": keys}), on_missing="ignore")
            elif kind == "row":
                self.table.upsert(rows.to_pylist())
            elif kind == "batch":
                with self.table.batch() as batch:
                    batch.upsert(rows)
                    batch.upsert(rows.select(["k", "s"]))
                    if self.deletes:
                        batch.delete(pa.table({"k": keys[: len(keys) // 2]}))
            elif kind == "column":
                self.table.update(rows.select(["k", "s"]), on_missing="ignore")
            else:
                self.table.upsert(rows)
            self.done[kind] += 1

    def read(self, rng: random.Random, number: int) -> None:
        while not self.stop.is_set():
            kind = rng.choice(("scan", "count", "get", "get_many", "past", "half", "order"))
            if kind == "scan":
                rows = self.table.scan(["v", "w"]).to_table()
                assert bool((rows["v"].to_numpy() == -rows["w"].to_numpy()).all()), "a batch was seen in part"
            elif kind == "count":
                self.table.count(where=[("s", "=", "s5")])
            elif kind == "get":
                for _ in range(200):
                    row = self.table.get(rng.randrange(KEYS))
                    assert row is None or row["v"] == -row["w"]
            elif kind == "get_many":
                self.table.get_many([rng.randrange(KEYS) for _ in range(500)])
            elif kind == "past":
                with self.table.snapshot() as snapshot:
                    first = snapshot.scan(["k"]).count()
                    time.sleep(0.1)
                    assert snapshot.scan(["k"]).count() == first, "a snapshot has changed"
            elif kind == "half":
                next(iter(self.table.scan(batch_rows=1_000)), None)
            else:
                self.table.scan(["k"], order="key", limit=1_000).to_table()
            self.done[kind] += 1


def judge(seen: list[Figures]) -> list[str]:
    """What is not level: the largest of the second half beside the largest of the second quarter."""
    quarter = len(seen) // 4
    if len(seen) < LOOKS:
        return ["too short to judge: fewer than eight looks"]
    complaints = []
    for field in fields(Figures):
        share, absolute = ALLOWED[field.name]
        early = max(getattr(f, field.name) for f in seen[quarter : 2 * quarter])
        late = max(getattr(f, field.name) for f in seen[2 * quarter :])
        if late > early + max(share * early, absolute):
            complaints.append(f"{field.name} grew from {early:,} to {late:,}")
    return complaints


def create(path: Path) -> None:
    """An empty table, small in all that makes maintenance work."""
    schema = pa.schema([("k", pa.int64()), ("v", pa.int64()), ("w", pa.int64()), ("s", pa.string())])
    options = {
        "durability": "group",
        "flush_threshold_bytes": 4 << 20,
        "flush_age_s": 10,
        "memory_limit_bytes": 256 << 20,
        "page_cache_bytes": 64 << 20,
        "ingest_threshold_rows": 20_000,
        "history_retention_s": 5,
        "file_grace_s": 2,
    }
    kc.create_table(path, schema, "k", partition_by=kc.HashPartition("k", 2), options=options).close()


def run(
    path: Path,
    minutes: float,
    writers: int,
    readers: int,
    every_s: float,
    seed: int,
    *,
    deletes: bool = False,
) -> list[str]:
    """Load the table and return what was wrong with it."""
    errors: list[str] = []

    def listen(event: Event) -> None:
        if isinstance(event, MaintenanceError):
            errors.append(f"maintenance: {event.error}")

    create(path)
    seen: list[Figures] = []
    with kc.open_table(path, "rw", listener=listen) as table:
        every = np.arange(KEYS)
        table.insert(
            pa.table({"k": every, "v": every, "w": -every, "s": [f"s{x % 97}" for x in range(KEYS)]})
        )
        load = Load(table, seed, deletes=deletes)
        threads = [
            threading.Thread(target=load.guarded, args=(work, number), name=f"soak-{work}-{number}")
            for work, count in (("write", writers), ("read", readers))
            for number in range(count)
        ]
        other = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(READER), str(path), str(minutes * 60)]
        )
        begun = time.monotonic()
        for thread in threads:
            thread.start()
        print(" ".join(f"{name:>13}" for name in ("seconds", *(f.name for f in fields(Figures)), "calls")))
        while not load.stop.wait(every_s) and (time.monotonic() - begun < minutes * 60 or len(seen) < LOOKS):
            gc.collect()
            now = look(table, path)
            seen.append(now)
            values = (round(time.monotonic() - begun), *(getattr(now, f.name) for f in fields(Figures)))
            print(" ".join(f"{value:>13,}" for value in (*values, load.done.total())), flush=True)
        load.stop.set()
        for thread in threads:
            thread.join()
        if other.wait(timeout=120):
            errors.append(f"the reader of another process ended with {other.returncode}")
        errors += [f"{type(error).__name__}: {error}" for error in load.failed]
        whole = {row["k"]: row for row in table.scan().to_pylist()}
    print("calls:", dict(load.done))
    with kc.open_table(path, "rw") as again:
        if {row["k"]: row for row in again.scan().to_pylist()} != whole:
            errors.append("the table is another one after it was closed and opened")
    return errors + judge(seen)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--path", type=Path, help="an empty folder for the table (default: a temporary one)")
    parser.add_argument("--writers", type=int, default=2)
    parser.add_argument("--readers", type=int, default=2)
    parser.add_argument("--every", type=float, default=5.0, help="seconds between two looks")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--deletes", action="store_true", help="delete and insert again too")
    given = parser.parse_args()
    if given.path is not None:
        Path(given.path).mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="kudu-core-soak-", dir=given.path))
    try:
        wrong = run(
            folder / "t",
            given.minutes,
            given.writers,
            given.readers,
            given.every,
            given.seed,
            deletes=given.deletes,
        )
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    for complaint in wrong:
        print("NOT LEVEL:" if "grew" in complaint else "FAILED:", complaint)
    if not wrong:
        print("level")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
