"""Files with other contents and good checksums: what an attacker can make, and no accident.

Such a table may hold other data.  It may not do anything else: no other exception than ours, no hang, and
no memory by the numbers that the file claims.
"""

from __future__ import annotations

import copy
import json
import random
import struct
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any
from warnings import catch_warnings, simplefilter

import kudu_core as kc
from kudu_core._ext.base.crc32c import crc32c
from kudu_core.cfile.columns.column_list import LIST_ENTRY, LIST_HEAD
from kudu_core.cfile.pages import container
from kudu_core.cfile.pages.footer import FOOTER_HEAD, split_footer
from kudu_core.errors import UnreplayedWarning
from kudu_core.table.stored import table_state
from kudu_core.tablet.store import manifest_format as form
from kudu_core.tablet.store import records
from kudu_core.wal import format as wal
from tests.support.clock import ManualClock
from tests.support.faults import TINY, Stage, checking, segments_of
from tests.support.guard import at_most, within
from tests.support.hostile.damage import CPU_SECONDS, Damage, Subject, kind_of

MEMORY = 512 << 20
"""Address space that a case may add: numbers from a file reach for terabytes."""

HOSTILE: tuple[Any, ...] = (
    None,
    True,
    -1,
    0,
    1,
    7,
    2**31,
    2**32 - 1,
    2**63,
    2**64 - 1,
    2**64,
    10**30,
    1.5,
    1e300,
    float("nan"),
    float("inf"),
    "",
    "x",
    "../../TABLE",
    "a/b",
    "a\0b",
    "int64",
    "int32",
    "float64",
    "bool",
    "string",
    "plain",
    "decimal128(99,99)",
    "-1",
    "\ud800",
    "n" * 70_000,
    [],
    {},
    [[]],
    [1, 2, 3, 4, 5, 6],
    {"x": 1},
)
NUMBERS = (0, 1, 2, 3, 7, 8, 63, 64, 255, 256, 2**15, 2**16 - 1, 2**31 - 1, 2**31, 2**32 - 8, 2**32 - 1)


def places(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path of every member of a JSON value."""
    members = (
        value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    )
    for name, member in members:
        yield (*at, name)
        yield from places(member, (*at, name))


def another(rng: random.Random, value: Any) -> tuple[str, Any]:
    """The value with one member changed, removed or doubled."""
    changed = copy.deepcopy(value)
    where = list(places(changed))
    if not where:
        return "all of it", rng.choice(HOSTILE)
    path = rng.choice(where)
    parent = changed
    for name in path[:-1]:
        parent = parent[name]
    name = path[-1]
    act = rng.random()
    if act < 0.15:
        del parent[name]
        return f"{path} removed", changed
    if act < 0.25 and isinstance(parent, list):
        parent.append(copy.deepcopy(parent[name]))
        return f"{path} doubled", changed
    if act < 0.5 and isinstance(parent[name], int):
        parent[name] = rng.choice((parent[name] + 1, parent[name] - 1, -parent[name], parent[name] << 32))
    else:
        parent[name] = rng.choice(HOSTILE)
    return f"{path} = {str(parent[name])[:40]!r}", changed


def encoded(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode("utf-8", "surrogatepass")


# ---- every kind of file


def _table(rng: random.Random, _subject: Subject, _path: str, data: bytes) -> tuple[str, bytes]:
    what, value = another(rng, json.loads(data[table_state.HEADER.size :]))
    return what, table_file(value)


def table_file(value: Any) -> bytes:
    """TABLE with these contents, and a checksum that says they are sound."""
    return table_state.ENVELOPE.around(encoded(value))


def _edits(data: bytes) -> list[tuple[int, int, int, Any]]:
    """(offset, number, epoch, lines) of each edit."""
    edits, bad = form.scan_edits(data)
    assert not bad
    return [(edit.offset, edit.number, edit.epoch, list(edit.lines)) for edit in edits]


def with_edits(data: bytes, edits: list[tuple[int, int, int, Any]]) -> bytes:
    """The manifest with these edits, every checksum good."""
    header = form.read_header(data, "MANIFEST")
    made = bytearray(data[: form.HEADER.size])
    for _, number, epoch, lines in edits:
        text = [encoded(line) for line in (lines if isinstance(lines, list) and lines else [lines])]
        for piece in form.frames(header, len(made), number, epoch, number, text):
            made += piece
    return bytes(made)


def _manifest(rng: random.Random, _subject: Subject, _path: str, data: bytes) -> tuple[str, bytes]:
    edits = _edits(data)
    which = rng.randrange(len(edits))
    at, number, epoch, value = edits[which]
    if rng.random() < 0.15:
        number, epoch = rng.choice(((2**64 - 1, epoch), (number, 2**64 - 1), (0, epoch), (number, 0)))
        what = f"number {number}, epoch {epoch}"
    else:
        what, value = another(rng, value)
    edits[which] = (at, number, epoch, value)
    return f"edit {which}: {what}", with_edits(data, edits)


def log_records(data: bytes) -> list[tuple[int, int]]:
    """(offset, length) of the records of a segment."""
    header = wal.unpack_segment_header(data[:64])
    assert header is not None
    found, at = [], wal.SEGMENT_HEADER.size
    while at + wal.RECORD_HEADER.size <= len(data):
        length = struct.unpack_from("<I", data, at)[0]
        end = at + wal.padded(length)
        if length < wal.RECORD_HEADER.size or end > len(data):
            break
        if not wal.record_is_sound(header.salt(), memoryview(data)[at:end]):
            break
        found.append((at, length))
        at = end
    return found


def _log(rng: random.Random, subject: Subject, _path: str, data: bytes) -> tuple[str, bytes]:
    header = wal.unpack_segment_header(data[:64])
    assert header is not None
    here = log_records(data)
    if not here or rng.random() < 0.1:
        fields = [header.table_uuid, header.epoch, header.seq, header.prev_ts, header.prev_lsn]
        which = rng.randrange(1, 5)
        fields[which] = rng.choice((0, 1, 2**63, 2**64 - 1))
        return f"header field {which} = {fields[which]}", wal.SegmentHeader(*fields).pack() + data[64:]
    at, length = rng.choice(here)
    _, _, lsn, ts, _, version, kind = wal.RECORD_HEADER.unpack_from(data, at)
    payload = bytearray(data[at + wal.RECORD_HEADER.size : at + length])
    act = rng.random()
    if act < 0.15:
        kind = rng.randrange(1, 6)
        what = f"kind {kind}"
    elif act < 0.25:
        version = rng.choice((0, 2, 2**31, 2**32 - 1))
        what = f"schema version {version}"
    elif act < 0.3:
        ts = rng.choice((0, 1, ts - 1, ts + 1, 2**64 - 1))
        what = f"timestamp {ts}"
    elif act < 0.55 and kind in (wal.RECORD_KIND_WRITE, wal.RECORD_KIND_INGEST):
        what, payload = _extra(rng, payload)
    elif len(payload) >= 4:
        where = rng.randrange(0, min(len(payload) - 3, rng.choice((16, 120, len(payload)))))
        struct.pack_into("<I", payload, where, rng.choice(NUMBERS))
        what = f"u32 at {where} of the payload"
    else:
        what = "nothing"
    return f"record {lsn}: {what}", with_record(data, at, bytes(payload), ts=ts, version=version, kind=kind)


def with_record(
    data: bytes,
    at: int,
    body: bytes,
    *,
    ts: int | None = None,
    version: int | None = None,
    kind: int | None = None,
) -> bytes:
    """A segment in which the record at a byte has another payload, and a checksum that says it is sound."""
    header = wal.unpack_segment_header(data[:64])
    assert header is not None
    length, _, lsn, ts_before, synced, version_before, kind_before = wal.RECORD_HEADER.unpack_from(data, at)
    ts = ts_before if ts is None else ts
    version = version_before if version is None else version
    kind = kind_before if kind is None else kind
    size = wal.RECORD_HEADER.size + len(body)
    padding = bytes(wal.padded(size) - size)
    crc = wal.payload_crc((body, padding))
    made = wal.record_header(header.salt(), crc, size, lsn, ts, synced, version, kind) + body + padding
    return data[:at] + made + data[at + wal.padded(length) :]


def _extra(rng: random.Random, payload: bytearray) -> tuple[str, bytearray]:
    """The JSON of a record."""
    sections, tablets, size, zero = records.PAYLOAD.unpack_from(payload)
    begin = records.PAYLOAD.size + (4 * tablets + 7) // 8 * 8
    value = (
        json.loads(bytes(payload[begin : begin + size]))
        if size
        else {"txn": ["a", 1, 2, "0" * 32, None], "counts": [1, 2, 3, 4]}
    )
    what, changed = another(rng, value)
    raw = encoded(changed)
    head = records.PAYLOAD.pack(sections, tablets, len(raw), zero)
    rest = payload[begin + (size + 7) // 8 * 8 :]
    return what, bytearray(head + payload[16:begin] + raw + bytes(-len(raw) % 8) + rest)


def _committed(rng: random.Random, subject: Subject, _path: str, data: bytes) -> tuple[str, bytes]:
    uuid = json.loads(subject.files[next(p for p in subject.files if p.endswith("/TABLE"))][24:])["uuid"]
    now = wal.unpack_committed(data, bytes.fromhex(uuid))
    fields = [now.counter + 1, now.ts, now.lsn, now.epoch]
    which = rng.randrange(4)
    fields[which] = rng.choice((0, 1, fields[which] + 1, 2**63, 2**64 - 1))
    slot = wal.Committed(*fields)
    out = bytearray(data)
    out[slot.offset() : slot.offset() + wal.COMMITTED_SLOT.size] = slot.pack(bytes.fromhex(uuid))
    return f"field {which} = {fields[which]}", bytes(out)


def _another_list(rng: random.Random, data: bytes) -> tuple[str, bytes]:
    """Another list of columns: a field of an entry or of the head, an entry gone or in two places."""
    count, _ = LIST_HEAD.unpack_from(data)
    entries = [list(LIST_ENTRY.unpack_from(data, _entry_at(number))) for number in range(count)]
    rest = bytearray(data[_entry_at(count) :])
    number, act = rng.randrange(count), rng.random()
    what = f"column {entries[number][0]}"
    if act < 0.6:
        field = rng.randrange(len(entries[number]))
        code = LIST_ENTRY.format.lstrip("<")[field]
        most = (1 << 8 * struct.calcsize(code)) - 1
        value = entries[number][field]
        near = value + 1, value - 1, value ^ 1 << rng.randrange(8)
        value = rng.choice((*near, rng.choice(NUMBERS), most, most >> 1)) & most
        entries[number][field] = value - most - 1 if code == "i" and value > most >> 1 else value
        what += f": field {field} = {value}"
    elif act < 0.7:
        del entries[number]
        what += " gone"
    elif act < 0.8:
        entries.insert(rng.randrange(count), entries[number])
        what += " double"
    elif act < 0.9:
        rest[rng.randrange(len(rest))] = rng.randrange(256)
        what = "the rest of the list"
    else:
        packed = LIST_HEAD.pack(*(rng.choice((count, len(rest), *NUMBERS)) for _ in range(2)))
        return "the head of the list", packed + data[LIST_HEAD.size :]
    packed = b"".join(LIST_ENTRY.pack(*entry) for entry in entries)
    return what, LIST_HEAD.pack(len(entries), len(rest)) + packed + rest


def _entry_at(number: int) -> int:
    return LIST_HEAD.size + number * LIST_ENTRY.size


def _container(rng: random.Random, _subject: Subject, _path: str, data: bytes) -> tuple[str, bytes]:
    """Another footer; ``damages`` tells the manifest of it."""
    offset, length, _, magic = container.TRAILER.unpack_from(data, len(data) - container.TRAILER.size)
    payload = memoryview(data)[offset + container.SECTION_FRAME.size : offset + length]
    told, rest = split_footer(payload)
    columns = bytes(rest)
    if rng.random() < 0.4:
        what, told = another(rng, told)
    else:
        what, columns = _another_list(rng, columns)
    raw = encoded(told)
    raw = FOOTER_HEAD.pack(len(raw)) + raw + columns
    frame = container.SECTION_FRAME.pack(0, container.SECTION_FOOTER, 0, len(raw)) + raw
    seed = crc32c(container.CRC_PLACE.pack(offset, container.SECTION_FOOTER), crc32c(data[20:36], 0))
    crc = crc32c(frame[4:], seed)
    frame = struct.pack("<I", crc) + frame[4:]
    return what, data[:offset] + frame + container.TRAILER.pack(offset, len(frame), crc, magic)


FORGERS: dict[str, Callable[[random.Random, Subject, str, bytes], tuple[str, bytes]]] = {
    "TABLE": _table,
    "MANIFEST": _manifest,
    "log": _log,
    "COMMITTED": _committed,
    "rows": _container,
    "delta": _container,
}


def forged(subject: Subject, path: str, rng: random.Random) -> list[Damage]:
    """One forged file, and the manifest that knows it."""
    data = subject.files[path]
    what, made = FORGERS[kind_of(path)](rng, subject, path, data)
    found = [Damage(path, what, made)]
    if kind_of(path) in ("rows", "delta"):
        directory, name = path.rsplit("/", 1)
        owner = f"{directory}/MANIFEST"
        text = subject.files[owner]
        crc = container.TRAILER.unpack_from(made, len(made) - container.TRAILER.size)[2]
        edits = _edits(text)
        for _, _, _, value in edits:
            _rename(value, name, [name, len(made), crc])
        found.append(Damage(owner, "knows it", with_edits(text, edits)))
    return found


def _rename(value: Any, name: str, ref: list[Any]) -> None:
    """Put a file's new size and CRC wherever it is named."""
    for member in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        if isinstance(member, list) and len(member) == 3 and member[0] == name:
            member[:] = ref
        _rename(member, name, ref)


# ---- judging


def survive(subject: Subject, damages: list[Damage], mode: str, seed: int) -> str:
    """Use the table in every way; returns the name of the error that ended it, or "read"."""
    fs = subject.damaged(damages[0])
    for more in damages[1:]:
        from tests.support.hostile.damage import put

        put(fs, more.path, more.data)
    stage = Stage(fs, subject.history, seed, ManualClock(subject.now_us))
    with segments_of(TINY), checking(False), within(CPU_SECONDS), at_most(MEMORY), catch_warnings():
        simplefilter("ignore", UnreplayedWarning)
        try:
            table = stage.open(mode)
            keys = list(range(45))
            for timestamp in (None, subject.history.writes[3]):
                with suppress(kc.SnapshotInFuture, kc.SnapshotTooOld):
                    table.scan(at=timestamp, order="key").to_table()
                    table.scan(at=timestamp, where=[("b", ">", "x")]).count()
                    table.get_many({"k": keys}, at=timestamp)
            table.get(7)
            table.stats("column")
            table.layout()
            if mode == "rw":
                table.upsert({"k": keys, "a": keys})
                table.flush()
                table.delete({"k": keys})
                table.close()
        except kc.KuduError as error:
            if stage.table is not None:
                with suppress(kc.KuduError):
                    stage.table.close()
            return type(error).__name__
        table.close()
    return "read"
