"""Made the table and the backups of this folder: ``python -m tests.compat.v1.make FOLDER``.

Kept to be read: it says which calls of which version made them.  README.md says when a new one is made.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import kudu_core as kc
from tests.compat.v1 import contents

OPTIONS = {
    "maintenance": "manual",
    "history_retention_s": None,
    "token_retention_s": None,
    "file_grace_s": 0,
    "rowset_target_bytes": 1 << 16,
}


def make(folder: Path) -> None:
    """Write ``table/``, ``backups/`` and ``kept.json`` into an empty folder."""
    columns = [
        kc.Column(name, type_, default=default, encoding=encoding, compression=compression)
        for name, type_, default, encoding, compression in contents.COLUMNS
    ]
    partitions = [kc.HashPartition(["region", "id"], 2), kc.RangePartition("day", [contents.FIRST_RANGE])]
    times = []
    with kc.create_table(
        folder / "table", columns, contents.KEY, partition_by=partitions, options=OPTIONS
    ) as table:
        for _, operation, given in contents.STEPS:
            step(table, folder / "backups", operation, given)
            times.append(table.timestamp)
    (folder / "kept.json").write_text(json.dumps({"times": times}) + "\n")
    trim(folder)


def step(table: kc.Table, backups: Path, operation: str, given: Any) -> None:
    if operation == "alter":
        before, after = contents.RENAMED_COLUMN
        new = kc.Column(contents.NEW_COLUMN, "string", default=contents.NEW_DEFAULT)
        dropped = [contents.DROPPED_COLUMN]
        table.alter(add=[new], drop=dropped, rename={before: after}, add_range=contents.NEW_RANGE)
    elif operation == "upsert_as":
        app, version, rows = given
        table.upsert(rows, txn=(app, version))
    elif operation == "backup":
        table.backup(backups, since=given)
    elif operation == "compact":
        table.compact(full=True)
    elif operation == "flush":
        table.flush()
    else:
        getattr(table, operation)(given)


def trim(folder: Path) -> None:
    """Keep no room that a log segment has reserved and not used, and no word of who held a lock."""
    for segment in (folder / "table" / "wal").glob("*.log"):
        used = segment.read_bytes().rstrip(b"\0")
        segment.write_bytes(used + bytes(-len(used) % 64))
    for lock in folder.rglob("LOCK"):
        lock.write_bytes(b"")


if __name__ == "__main__":
    target = Path(sys.argv[1])
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    make(target)
