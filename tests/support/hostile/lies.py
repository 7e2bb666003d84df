"""Lies with good checksums: ids and names in TABLE, MANIFEST and log that are others than were written."""

from __future__ import annotations

import copy
import json
import os
import shutil
import struct
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from warnings import catch_warnings, simplefilter

import kudu_core as kc
from kudu_core.errors import UnreplayedWarning
from kudu_core.table.stored import table_state
from kudu_core.tablet.store import manifest_format as form
from kudu_core.tablet.store import records
from kudu_core.wal import format as wal
from tests.support.guard import at_most, within
from tests.support.hostile.forge import MEMORY, encoded, log_records, places, with_edits, with_record
from tests.support.hostile.links import SCHEMA, aged, home, world
from tests.support.inside import sweep_lost_soon, sweep_soon

SECONDS = 20.0
OPTIONS = {"maintenance": "manual", "durability": "none", "file_grace_s": 0, "ingest_threshold_rows": 20}
NUMBERS = (-1, 0, 1, 2, 3, 5, 77, 2**31, 2**32 - 1, 2**32, 2**63, 2**64 - 1, 10**30, "../../house", None)
NAMES = (
    "../00000002/000002-00000001.rows",
    "../../TABLE",
    "../../../house/letter",
    "/etc/passwd",
    "..",
    "MANIFEST",
    "000002-00000001.rows",
    "000002-00000002.rows",
    "999999-99999999.rows",
    "job-" + "0" * 32,
    "a\0b",
    "",
    7,
)


def make(path: Path, *, closed: bool = True) -> None:
    """Two tablets, each with files of rows and changes; ingests, an ALTER and small writes in the log."""
    table = kc.create_table(
        path, SCHEMA, "k", partition_by=kc.RangePartition("k", [(0, 100), (100, 200)]), options=OPTIONS
    )
    for first in (0, 100):
        table.insert({"k": list(range(first, first + 40)), "v": ["x"] * 40})
        table.flush()
        table.update({"k": list(range(first, first + 25)), "v": ["y"] * 25})
    table.flush()
    table.alter(add_range=(200, 300), add=[kc.Column("w", "int32", default=1)])
    table.insert({"k": list(range(50, 80)), "v": ["z"] * 30})
    table.upsert({"k": [1, 101, 201], "v": ["m"] * 3})
    table.delete({"k": [2, 102]})
    if closed:
        table.close()
    else:
        shutil.copytree(path, path.parent / "killed")
        table.close()
        shutil.rmtree(path)
        (path.parent / "killed").rename(path)


def data_of(path: Path) -> Counter[bytes]:
    """What the data files of tablets and of `lost/` hold."""
    files = [*path.glob("tablets/*/*"), *path.glob("lost/**/*")]
    return Counter(f.read_bytes() for f in files if f.name.endswith((".rows", ".delta")))


class Lied:
    """A table that is forged again and again, beside somebody's files."""

    def __init__(self, place: Path, sound: Path) -> None:
        self.place, self.sound = place, sound
        self.outside = home(place)
        self.path = place / "t"
        self.outcomes: Counter[str] = Counter()

    def fresh(self) -> None:
        for name in ("t", "t.repaired"):
            shutil.rmtree(self.place / name, ignore_errors=True)
        shutil.copytree(self.sound, self.path)

    def judge(self, what: str) -> None:
        """Open the table in every mode, and repair it."""
        before, data = aged(self.outside), data_of(self.path)
        try:
            with within(SECONDS), at_most(MEMORY), catch_warnings():
                simplefilter("ignore", UnreplayedWarning)
                for step in (self._repair, self._read, self._write):
                    try:
                        step()
                        self.outcomes[f"{step.__name__} went well"] += 1
                    except (kc.KuduError, OSError) as error:
                        self.outcomes[type(error).__name__] += 1
            assert world(self.outside) == before
            assert set(os.listdir(self.place)) <= {"house", "t", "t.repaired"}
            gone = data - data_of(self.path)
            assert not gone, f"{gone.total()} data files were deleted"
        except BaseException as error:
            error.add_note(what)
            raise

    def _read(self) -> None:
        with kc.open_table(self.path) as table:
            table.scan().to_table()
            table.get(3)
            table.verify()

    def _write(self) -> None:
        with kc.open_table(self.path, "rw") as table:
            sweep_soon(table)
            sweep_lost_soon(table)
            table.gc()

    def _repair(self) -> None:
        before = world(self.path)
        try:
            kc.repair(self.path, dry_run=False)
            with kc.open_table(f"{self.path}.repaired") as made:
                made.verify()
        finally:
            shutil.rmtree(f"{self.path}.repaired", ignore_errors=True)
            assert world(self.path) == before, "a repair has changed the table"


def lies(value: Any, chosen: frozenset[str]) -> Iterator[tuple[str, Any]]:
    """The value with one id, or name of a file, that is another.  ``chosen``: members that hold ids."""
    for path in places(value):
        found = value
        for name in path:
            found = found[name]
        is_name = isinstance(found, str) and found.endswith((".rows", ".delta"))
        if not is_name and not (isinstance(found, int | None) and chosen.intersection(map(str, path))):
            continue
        for lie in NAMES if is_name else NUMBERS:
            changed = copy.deepcopy(value)
            parent = changed
            for name in path[:-1]:
                parent = parent[name]
            if lie != parent[path[-1]]:
                parent[path[-1]] = lie
                yield f"{path} = {lie!r:.40}", changed


IDS_OF_TABLE = frozenset(
    ("epoch", "tablets", "next_tablet", "edits", "id", "version", "next_id", "horizon", "applied_ts")
).union(("clean_end", "key_ids", "ranges", "hashes"))
IDS_OF_EDITS = frozenset(
    ("id", "remove", "next_file", "next_rowset", "I", "G", "H", "D", "mark", "rows")
).union(("base", "redo", "undo", "ts"))
IDS_OF_RECORDS = frozenset(("parts", "created", "dropped", "tablets", "next_tablet", "id", "version", "base"))


def table_lies(path: Path) -> Iterator[tuple[str, dict[Path, bytes]]]:
    data = (path / "TABLE").read_bytes()
    for what, value in lies(json.loads(data[table_state.HEADER.size :]), IDS_OF_TABLE):
        yield f"TABLE: {what}", {path / "TABLE": table_of(value), path / "TABLE.copy": table_of(value)}


def table_of(value: Any) -> bytes:
    return table_state.ENVELOPE.around(encoded(value))


def manifest_lies(path: Path) -> Iterator[tuple[str, dict[Path, bytes]]]:
    for manifest in sorted(path.glob("tablets/*/MANIFEST")):
        data = manifest.read_bytes()
        edits = [(e.offset, e.number, e.epoch, list(e.lines)) for e in form.scan_edits(data)[0]]
        for which, (at, number, epoch, lines) in enumerate(edits):
            for what, changed in lies(lines, IDS_OF_EDITS):
                forged = [*edits[:which], (at, number, epoch, changed), *edits[which + 1 :]]
                made = with_edits(data, forged)
                where = f"{manifest.parent.name}, edit {number}: {what}"
                yield where, {manifest: made, manifest.with_name("MANIFEST.copy"): made}


def log_lies(path: Path) -> Iterator[tuple[str, dict[Path, bytes]]]:
    for segment in sorted(path.glob("wal/*.log")):
        data = segment.read_bytes()
        if wal.unpack_segment_header(data[:64]) is None:
            continue
        for at, length in log_records(data):
            kind = wal.RECORD_HEADER.unpack_from(data, at)[6]
            payload = data[at + wal.RECORD_HEADER.size : at + length]
            for what, forged in record_lies(kind, payload):
                yield f"record at {at} of kind {kind}: {what}", {segment: with_record(data, at, forged)}


def record_lies(kind: int, payload: bytes) -> Iterator[tuple[str, bytes]]:
    if kind == wal.RECORD_KIND_ALTER:
        for what, value in lies(json.loads(payload), IDS_OF_RECORDS | IDS_OF_TABLE):
            yield what, encoded(value)
    if kind == wal.RECORD_KIND_CHECKPOINT:
        for at in range(0, len(payload) - 7, 8):
            for number in (0, 1, 2, 77, 2**32, 2**63, 2**64 - 1):
                yield f"u64 at {at} = {number}", payload[:at] + struct.pack("<Q", number) + payload[at + 8 :]
    if kind not in (wal.RECORD_KIND_WRITE, wal.RECORD_KIND_INGEST):
        return
    _, tablets, size, _ = records.PAYLOAD.unpack_from(payload)
    for tablet in range(tablets):
        at = records.PAYLOAD.size + 4 * tablet
        for number in (0, 1, 2, 3, 77, 2**31, 2**32 - 1):
            changed = payload[:at] + struct.pack("<I", number) + payload[at + 4 :]
            if changed != payload:
                yield f"tablet {tablet} = {number}", changed
    if size:
        for what, value in lies(records.decode_extra(payload, "", 0), IDS_OF_RECORDS):
            yield what, with_text(payload, value)


def with_text(payload: bytes, value: Any) -> bytes:
    """The payload of a record with another JSON."""
    sections, tablets, size, zero = records.PAYLOAD.unpack_from(payload)
    begin = records.PAYLOAD.size + (4 * tablets + 7) // 8 * 8
    raw = encoded(value)
    head = records.PAYLOAD.pack(sections, tablets, len(raw), zero) + payload[records.PAYLOAD.size : begin]
    return head + raw + bytes(-len(raw) % 8) + payload[begin + (size + 7) // 8 * 8 :]
