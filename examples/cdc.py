"""A Debezium stream, as lines of JSON, into a table: every change once, in order, also when it is killed.

    python examples/cdc.py [--events FILE] [--table FOLDER] [--key id] [--batch 5000] [--rows 20000]

A line is the value of a message as a Debezium connector writes it: ``op`` is c (created), u, d or r (read by
the first snapshot), ``before`` and ``after`` are the row.  A deletion is followed by a tombstone, ``null``.
Without ``--events`` a file is made up.

How nothing is lost and nothing comes twice: lines are applied in batches, each as one change of the table,
named by the number of its last line (``txn``).  A file beside the table says which lines are being applied,
before, and that they are, after.  Killed between the two it applies the same lines again under the same name,
which does nothing.  Of a topic the number is the offset in its partition, and the name is the partition's.

The types of the columns are those of the first line's schema.  Debezium's ``decimal.handling.mode=string``
and its times as they come by default (microseconds, milliseconds, days) are understood.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import random
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

import kudu_core as kc

Row = dict[str, Any]
OPERATIONS = {"c": "upsert", "r": "upsert", "u": "upsert", "d": "delete_ignore"}
TYPES = {
    "boolean": pa.bool_(),
    "int8": pa.int8(),
    "int16": pa.int16(),
    "int32": pa.int32(),
    "int64": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
}
TIMES = {
    "io.debezium.time.Date": pa.date32(),
    "io.debezium.time.Timestamp": pa.timestamp("ms"),
    "io.debezium.time.MicroTimestamp": pa.timestamp("us"),
}
"""What a number means, by the name that Debezium gives its type."""


# ---- lines to rows ----


def columns_of(line: str, key: list[str]) -> list[kc.Column]:
    """The table's columns, of a line that has its schema.  All but the key may be NULL."""
    told = json.loads(line)
    if "schema" not in told:
        raise SystemExit("the first line has no schema: let the connector write it")
    [row] = [field for field in told["schema"]["fields"] if field["field"] == "after"]
    made = []
    for field in row["fields"]:
        type_ = TIMES.get(field.get("name", ""), TYPES.get(field["type"]))
        if type_ is None:
            raise SystemExit(f"column {field['field']!r}: no type here for Debezium's {field['type']!r}")
        made.append(kc.Column(field["field"], type_, nullable=field["field"] not in key))
    return made


def rows_of(lines: list[str]) -> list[Row]:
    """Rows for ``apply``, in the order of the lines.  A tombstone says only what the deletion has said."""
    rows = []
    for line in lines:
        told = json.loads(line)
        if told is None:
            continue
        change = told.get("payload", told)
        rows.append({"_op": OPERATIONS[change["op"]], **(change["after"] or change["before"])})
    return rows


def as_columns(rows: list[Row], schema: pa.Schema) -> pa.Table:
    """Numbers that mean times become times: Arrow casts them, column by column."""
    arrays = {"_op": pa.array([row["_op"] for row in rows])}
    for field in schema:
        values = [row.get(field.name) for row in rows]
        told = field.type
        if pa.types.is_temporal(told):
            told = pa.int32() if pa.types.is_date32(told) else pa.int64()
        arrays[field.name] = pa.array(values, told).cast(field.type)
    return pa.table(arrays)


# ---- where it stands ----


class Position:
    """How many lines are applied, and up to which they are being applied; in a file that is there whole."""

    def __init__(self, path: Path) -> None:
        self._path = path
        text = path.read_text() if path.exists() else "0 0"
        self.applied, self.until = map(int, text.split())

    def move(self, applied: int, until: int) -> None:
        self.applied, self.until = applied, until
        new = self._path.with_suffix(".new")
        with new.open("w") as file:
            file.write(f"{applied} {until}")
            file.flush()
            os.fsync(file.fileno())
        new.replace(self._path)


def follow(
    table: kc.Table, events: Path, position: Position, batch: int
) -> Iterator[tuple[int, kc.WriteResult]]:
    """Apply what the file has beyond the position.  Yields lines and result after each batch."""
    with events.open() as file:
        lines = itertools.islice(file, position.applied, None)
        while True:
            at = position.applied
            begun = position.until - at  # by a run that was killed: exactly those once more
            some = list(itertools.islice(lines, begun or batch))
            if some and not some[-1].endswith("\n"):
                some.pop()  # it is being written
            if not some:
                return
            until = at + len(some)
            position.move(at, until)
            result = table.apply(as_columns(rows_of(some), table.schema), txn=(events.name, until))
            position.move(until, until)
            yield len(some), result


# ---- a made-up stream ----


def make_events(path: Path, count: int) -> None:
    """What a connector would write of a table of customers, of which ``count`` changes are told."""
    fields = [
        {"type": "int64", "optional": False, "field": "id"},
        {"type": "string", "optional": True, "field": "name"},
        {"type": "string", "optional": True, "field": "balance"},
        {"type": "int64", "optional": True, "field": "seen", "name": "io.debezium.time.MicroTimestamp"},
    ]
    row = {"type": "struct", "optional": True, "fields": fields}
    schema = {"type": "struct", "fields": [{**row, "field": "before"}, {**row, "field": "after"}]}
    rng, there = random.Random(1), dict[int, Row]()
    with path.open("w") as file:
        for number in range(count):
            before = there.pop(rng.choice(list(there)[-500:])) if there and rng.random() < 0.6 else None
            gone = before is not None and rng.random() < 0.2
            after: Row | None = None
            if not gone:
                known = before or {"id": number, "name": f"customer {number}"}
                balance = f"{rng.randrange(100_000) / 100:.2f}"
                after = {**known, "balance": balance, "seen": 1_767_225_600_000_000 + number}
                there[after["id"]] = after
            op = "d" if gone else "c" if before is None else "u"
            change = {"before": before, "after": after, "op": op, "ts_ms": 1_767_225_600_000 + number}
            file.write(json.dumps({"schema": schema, "payload": change}) + "\n")
            if gone:
                file.write("null\n")


# ---- all of it ----


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--events", type=Path, help="lines of JSON; made up where this is not given")
    parser.add_argument("--table", type=Path, help="keep it here, and go on where it stands")
    parser.add_argument("--key", nargs="+", default=["id"])
    parser.add_argument("--batch", type=int, default=5_000, help="lines that become one change of the table")
    parser.add_argument("--batches", type=int, help="end after so many")
    parser.add_argument("--rows", type=int, default=20_000, help="changes of a stream that is made up")
    given = parser.parse_args()

    folder = Path(tempfile.mkdtemp(prefix="cdc-"))
    try:
        events = given.events or folder / "customers.jsonl"
        if given.events is None:
            make_events(events, given.rows)
        run(events, given.table or folder / "table", given)
    finally:
        shutil.rmtree(folder)


def run(events: Path, path: Path, given: argparse.Namespace) -> None:
    with events.open() as file:
        first = file.readline()
    if not path.exists():
        kc.create_table(path, columns_of(first, given.key), given.key).close()
    with kc.open_table(path, "rw") as table:
        position = Position(path.with_name(path.name + ".position"))
        if position.applied:
            print(f"goes on after line {position.applied:,}")
        begun, lines, repeated = time.perf_counter(), 0, 0
        done = {"inserted": 0, "updated": 0, "deleted": 0}
        for some, result in itertools.islice(follow(table, events, position, given.batch), given.batches):
            lines, repeated = lines + some, repeated + result.deduplicated
            for name in done:
                done[name] += 0 if result.deduplicated else getattr(result, name)
        took = time.perf_counter() - begun
        counts = ", ".join(f"{count:,} {name}" for name, count in done.items())
        print(f"{lines:,} lines in {took:.2f} s ({lines / took:,.0f} a second): {counts}")
        print(f"{repeated} batches had been applied before; the table has {table.count():,} rows")


if __name__ == "__main__":
    main()
