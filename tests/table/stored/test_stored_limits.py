"""What a file may say, number by number: the last value that a writer gives is read, the next one is refused.

``test_limits.py`` goes through tables; here are the guards of readers alone, each on both sides of its limit.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

import kudu_core as kc
from kudu_core.cfile.columns import specs
from kudu_core.common.format import members, names
from kudu_core.common.format.members import LIMIT
from kudu_core.common.idempotence import writers
from kudu_core.common.idempotence.fingerprint import MAX_ROWS, Fingerprint
from kudu_core.common.idempotence.writers import AppliedWrite, Txn, check_txn
from kudu_core.common.partition import hash_dimension
from kudu_core.common.partition.partitions import PartitionSchema
from kudu_core.common.schema import schema
from kudu_core.common.schema.declare import Column, declare
from kudu_core.common.schema.schema import Schema
from kudu_core.common.types.keycodec import MAX_KEY_BYTES
from kudu_core.common.types.types import ColumnType
from kudu_core.errors import Corruption, InvalidArgument, NotSupported
from kudu_core.rowset.rows import meta
from kudu_core.rowset.rows.meta import DeltaRef, RowSetMeta
from kudu_core.table.stored import alteration
from kudu_core.table.stored import table_state as state
from kudu_core.tablet.store import manifest_format as form
from kudu_core.tablet.store import records
from kudu_core.wal import format as wal
from tests.support.fs.memory import MemoryFileSystem
from tests.support.hostile.damage import put
from tests.support.hostile.forge import table_file
from tests.support.limits import PATH, comes_back, make, unreadable
from tests.tablet.store.test_manifest import meta as rowset

ROWS = [3, "0" * 32]
TOKEN = [1, 2, 3, 4, 5, 6, *ROWS, "source", []]
DELTA = {"file": ["000001-00000009.delta", 5, 6], "entries": 3, "ts": [1, 2], "record_ts": None}
DELTA |= {"liveness": 1, "updates": [[1, 1, 2]]}
DECLARED = declare([Column("k", "int64"), Column("b", "binary")], ["k", "b"])
SCHEMA = DECLARED.to_json()
PARTITIONS = PartitionSchema.make(DECLARED, kc.HashPartition("k", 2)).to_json()
RANGES = PartitionSchema.make(DECLARED, kc.RangePartition("b", [(b"a", b"b")])).to_json()
COLUMN = SCHEMA["columns"][0]


@dataclass(frozen=True)
class Member:
    """A member of something stored, and the last value that it may have."""

    name: str
    read: Callable[[Any], object]
    """Of something stored whose member has the value."""
    last: Any
    next: Any
    first: Any = None
    """The least value, where one below it is another one."""
    before: Any = None


def token(place: int) -> Callable[[Any], object]:
    return lambda value: AppliedWrite.from_json([*TOKEN[:place], value, *TOKEN[place + 1 :]])


def txn(place: int) -> Callable[[Any], object]:
    given = ["app", 1, *ROWS, "source"]
    return lambda value: Txn.from_json([*given[:place], value, *given[place + 1 :]])


def member(read: Callable[..., object], whole: Any, *path: Any) -> Callable[[Any], object]:
    """Reads the whole with another value at the path."""

    def with_value(value: Any) -> object:
        changed = json.loads(json.dumps(whole))
        parent = changed
        for step in path[:-1]:
            parent = parent[step]
        parent[path[-1]] = value
        return read(changed)

    return with_value


def numbers(name: str, read: Callable[[Any], object], upper: int, lower: int = 0) -> Member:
    """A whole number in [lower, upper)."""
    return Member(name, read, upper - 1, upper, lower, lower - 1)


def partitions_of(value: Any) -> object:
    return PartitionSchema.from_json(value, DECLARED)


MEMBERS = [
    numbers("a number", members.integer, LIMIT),
    numbers("a number or nothing", members.integer_or_none, LIMIT),
    numbers("the name of a member", lambda value: members.key(str(value)), LIMIT),
    numbers("version of a writer", token(0), writers.MAX_VERSION),
    numbers("time of a token", token(1), LIMIT),
    *(numbers(f"count {place} of a token", token(place), LIMIT) for place in range(2, 6)),
    numbers("rows of a token", token(6), MAX_ROWS),
    numbers("rows of a fingerprint", lambda rows: Fingerprint.from_json((rows, "0" * 32)), MAX_ROWS),
    Member(
        "digits", lambda digits: Fingerprint.from_json((1, digits)), "f" * 32, "f" * 33, "0" * 32, "0" * 31
    ),
    Member("source", token(8), "x" * 256, "x" * 257, "x", ""),
    Member("source in UTF-8", token(8), "\u00e9" * 128, "\u00e9" * 128 + "x"),
    Member("recent versions", token(9), [[1, *ROWS]] * 16, [[1, *ROWS]] * 17),
    numbers("a recent version", lambda v: token(9)([[v, *ROWS]]), writers.MAX_VERSION),
    numbers("rows of a recent version", lambda v: token(9)([[1, v, "0" * 32]]), MAX_ROWS),
    Member("app_id", writers.stored_app_id, "x" * 1024, "x" * 1025, "x", ""),
    Member("app_id of a record", txn(0), "\u00e9" * 512, "\u00e9" * 512 + "x", "x", ""),
    numbers("version of a record", txn(1), writers.MAX_VERSION),
    numbers("rows of a record", txn(2), MAX_ROWS),
    Member("source of a record", txn(4), "x" * 256, "x" * 257, "x", ""),
    numbers("schema version", member(Schema.from_json, SCHEMA, "version"), schema.MAX_VERSION, 1),
    # The last id that a column may have is one less: then the next one is the limit itself.
    Member(
        "next column id", member(Schema.from_json, SCHEMA, "next_id"), (1 << 31) - 16, (1 << 31) - 15, 3, 2
    ),
    numbers("column id", member(schema.StoredColumn.from_json, COLUMN, "id"), schema.MAX_COLUMN_ID),
    Member("name", member(schema.StoredColumn.from_json, COLUMN, "name"), "x" * 256, "x" * 257, "x", ""),
    Member("comment", member(schema.StoredColumn.from_json, COLUMN, "comment"), "\u00e9" * 256, "x" * 257),
    numbers(
        "buckets", member(partitions_of, PARTITIONS, "hash", 0, "buckets"), hash_dimension.MAX_BUCKETS + 1, 2
    ),
    numbers("seed", member(partitions_of, PARTITIONS, "hash", 0, "seed"), 1 << 64),
    Member(
        "bound",
        member(partitions_of, RANGES, "ranges", 0, 1),
        "62" * MAX_KEY_BYTES,
        "62" * (MAX_KEY_BYTES + 1),
    ),
    Member("precision", lambda p: ColumnType.parse(f"decimal128({p},1)"), 38, 39, 1, 0),
    Member("scale", lambda s: ColumnType.parse(f"decimal128(38,{s})"), 38, 39, 0, -1),
    numbers(
        "created tablet", lambda i: alteration._tablets({"created": [[i, 0]], "dropped": []}), 1 << 32, 1
    ),
    numbers("dropped tablet", lambda i: alteration._tablets({"created": [], "dropped": [i]}), 1 << 32, 1),
    numbers("entries", member(DeltaRef.from_json, DELTA, "entries"), specs.MAX_ROWS + 1),
    numbers("liveness", member(DeltaRef.from_json, DELTA, "liveness"), specs.MAX_ROWS + 1),
    numbers("first time", member(DeltaRef.from_json, DELTA, "ts", 0), LIMIT),
    numbers("last time", member(DeltaRef.from_json, DELTA, "ts", 1), LIMIT),
    numbers("time of the record", member(DeltaRef.from_json, DELTA, "record_ts"), LIMIT),
    numbers("updates", member(DeltaRef.from_json, DELTA, "updates", 0, 2), specs.MAX_ROWS + 1),
    numbers("last column", lambda i: meta._spans_from_json([[1, i, 1]]), (1 << 20) + 1, 1),
    numbers("a column far up", lambda i: meta._spans_from_json([[i, i, 1]]), meta.COLUMN_IDS),
    numbers("a span behind another", lambda i: meta._spans_from_json([[1, 5, 1], [i, 9, 1]]), 10, 6),
    numbers("columns of a file", lambda i: meta._id_spans([[1, i]]), (1 << 20) + 1, 1),
    numbers("columns of two spans", lambda i: meta._id_spans([[0, 9], [20, i]]), (1 << 20) + 10, 20),
    numbers("a column of a file", lambda i: meta._id_spans([[i, i]]), meta.COLUMN_IDS),
    numbers("a span of ids behind another", lambda i: meta._id_spans([[1, 5], [i, 9]]), 10, 6),
    numbers(
        "rows of a rowset", member(RowSetMeta.from_json, rowset(1).to_json(), "rows"), specs.MAX_ROWS + 1, 1
    ),
    numbers("offset of statistics", lambda n: meta.statistics_from_json([n, 64, 1, []]), LIMIT, 40),
    numbers("size of statistics", lambda n: meta.statistics_from_json([64, n, 1, []]), 64 << 20, 16),
    numbers("crc of statistics", lambda n: meta.statistics_from_json([64, 64, n, []]), 1 << 32),
]


@pytest.mark.parametrize("limit", MEMBERS, ids=lambda m: m.name)
def test_a_reader_takes_what_a_writer_gives_and_no_more(limit: Member) -> None:
    limit.read(limit.last)
    with pytest.raises((*members.BROKEN, InvalidArgument)):
        limit.read(limit.next)
    if limit.first is not None:
        limit.read(limit.first)
        with pytest.raises((*members.BROKEN, InvalidArgument)):
            limit.read(limit.before)


@pytest.mark.parametrize("wrong", [True, 1.0, "1", None, [1]])
def test_a_number_is_no_other_value(wrong: Any) -> None:
    with pytest.raises(ValueError, match="a whole number from 0"):
        members.integer(wrong)


def test_ids_of_tablets_as_folders_have_them() -> None:
    for known in (1, names.MAX_TABLET - 1):
        assert names.tablet_of_folder(names.tablet_folder(known)) == known
    for unknown in (0, names.MAX_TABLET):
        assert names.tablet_of_folder(names.tablet_folder(unknown)) is None


# ---- what callers give


def test_the_longest_names_of_writers_come_back() -> None:
    fs = MemoryFileSystem()
    app_id, source, version = "\u00e9" * 512, "s" * 256, writers.MAX_VERSION - 1
    with make(fs) as table:
        assert table.insert({"k": [1]}, txn=(app_id, version, source)).inserted == 1
        for txn, why in (
            ((app_id + "x", 1), "app_id has 1,025 bytes of UTF-8; 1,024 are the most"),
            (("app", 1, source + "x"), "source has 257 bytes of UTF-8; 256 are the most"),
            (("app", version + 1), "a whole number from 0"),
            (("app", -1), "a whole number from 0"),
            (("", 1), "a name"),
            (("app", 1, ""), "the id of what the rows come from"),
        ):
            with pytest.raises(InvalidArgument, match=why):
                table.insert({"k": [2]}, txn=txn)
        assert check_txn(("a", 0)) == Txn("a", 0)
        comes_back(fs, table)
    with kc.open_table(PATH, "rw", _fs=fs) as table:
        assert table.insert({"k": [1]}, txn=(app_id, version, source)).deduplicated


def test_buckets_of_a_dimension() -> None:
    for buckets in (2, 4096):
        made = PartitionSchema.make(DECLARED, kc.HashPartition("k", buckets))
        assert PartitionSchema.from_json(made.to_json(), DECLARED) == made
    for buckets in (1, 4097):
        with pytest.raises(InvalidArgument, match="buckets is a whole number of 2 to 4,096"):
            PartitionSchema.make(DECLARED, kc.HashPartition("k", buckets))


def test_partitions_of_hash_dimensions_alone() -> None:
    def cut(buckets: int) -> PartitionSchema:
        return PartitionSchema.make(DECLARED, [kc.HashPartition("k", 256), kc.HashPartition("b", buckets)])

    assert PartitionSchema.from_json(cut(256).to_json(), DECLARED) == cut(256)
    with pytest.raises(InvalidArgument, match="65,792 partitions; a table has at most 65,536"):
        cut(257)
    wide = cut(256).to_json()
    wide["hash"][1]["buckets"] = 257
    with pytest.raises(InvalidArgument, match="65,792 partitions"):
        PartitionSchema.from_json(wide, DECLARED)


def test_digits_of_a_decimal_are_ours_to_refuse() -> None:
    """Before Arrow does, by an error of its own."""
    with pytest.raises(InvalidArgument, match=r"decimal128\(39,1\): a decimal has a precision of 1 to 38"):
        ColumnType.parse("decimal128(39,1)")


# ---- TABLE


def forged(fs: MemoryFileSystem, change: Callable[[dict[str, Any]], object]) -> MemoryFileSystem:
    """The table with another TABLE, whose checksum is right."""
    copied = fs.crash_clone(keep="all")
    value = json.loads(copied.read_bytes(f"{PATH}/TABLE", 1 << 30)[state.HEADER.size :])
    change(value)
    put(copied, f"{PATH}/TABLE", table_file(value))
    return copied


def test_ranges_that_overlap_in_a_file_are_damage() -> None:
    """A key would belong to two tablets, and be there twice or not at all."""
    fs = MemoryFileSystem()
    cut = kc.RangePartition("k", [(0, 5), (5, 9), (20, None)])
    with make(fs, partition_by=cut) as table:
        table.insert({"k": [1, 6, 30]})

    def bounds(value: dict[str, Any]) -> list[Any]:
        found: list[Any] = value["partitions"]["ranges"]
        return found

    with kc.open_table(PATH, _fs=forged(fs, lambda value: None)) as same:
        assert same.count() == 3, "nothing but the overlap is the matter"
    changes: list[Callable[[dict[str, Any]], object]] = [
        lambda value: bounds(value)[1].__setitem__(0, bounds(value)[0][0]),
        lambda value: bounds(value)[1].__setitem__(0, None),
        lambda value: bounds(value)[0].__setitem__(1, None),
        lambda value: bounds(value)[1].__setitem__(1, None),
        lambda value: bounds(value)[2].__setitem__(0, bounds(value)[0][0]),
    ]
    for change in changes:
        unreadable(forged(fs, change), "overlaps")


@pytest.mark.parametrize("dropped", [False, True])
@pytest.mark.parametrize(("lower", "upper"), [(6, 6), (9, 6)])
def test_a_range_that_takes_no_key_in_a_file_is_damage(lower: int, upper: int, dropped: bool) -> None:
    """No ALTER makes one.  Scans would find the rows of its tablet, and no key would lead to them."""
    fs = MemoryFileSystem()
    make(fs, partition_by=kc.RangePartition("k", [(6, 9)])).close()
    made = [(bound + (1 << 63)).to_bytes(8, "big").hex() for bound in (lower, upper)]
    empty = forged(fs, lambda value: value["partitions"].update(ranges=[[*made, dropped]]))
    unreadable(empty, rf"TABLE.*range \[\({lower}\), \({upper}\)\) is empty")


def test_a_dropped_range_may_lie_under_another_one() -> None:
    fs = MemoryFileSystem()
    with make(fs, partition_by=kc.RangePartition("k", [(0, 5), (5, 9)])) as table:
        table.insert({"k": [1, 6]})
        table.alter(drop_range=(0, 5))
        table.alter(add_range=(1, 3))
        table.insert({"k": [2]})
        comes_back(fs, table)


# ---- the log


def test_times_and_numbers_of_a_segment() -> None:
    for place in range(4):
        fields = [7, 7, 7, 7]
        fields[place] = LIMIT - 1
        header = wal.SegmentHeader(bytes(16), *fields)
        assert wal.unpack_segment_header(header.pack()) == header
        fields[place] = LIMIT
        assert wal.unpack_segment_header(wal.SegmentHeader(bytes(16), *fields).pack()) is None


def test_the_counter_of_committed() -> None:
    for counter, known in ((LIMIT - 1, True), (LIMIT, False)):
        slot = wal.Committed(counter, 5, 6, 7)
        data = bytearray(2 * wal.COMMITTED_STRIDE)
        data[slot.offset() : slot.offset() + wal.COMMITTED_SLOT.size] = slot.pack(bytes(16))
        assert wal.unpack_committed(data, bytes(16)) == (slot if known else wal.NOTHING_COMMITTED)


def test_the_json_of_a_record(monkeypatch: pytest.MonkeyPatch) -> None:
    payload = records.Payload((1,), [], {"counts": [0] * 10})
    size = len(json.dumps(payload.extra, separators=(",", ":")))
    monkeypatch.setattr(records, "MAX_EXTRA_BYTES", size)
    data = memoryview(b"".join(bytes(piece) for piece in records.encode(payload)))
    assert records.decode(data, "log", 0).extra == payload.extra
    assert records.decode_extra(data, "log", 0) == payload.extra
    monkeypatch.setattr(records, "MAX_EXTRA_BYTES", size - 1)
    with pytest.raises(InvalidArgument, match=f"{size} bytes in the log, {size - 1} are the most"):
        records.encode(payload)
    for read in (records.decode, records.decode_extra):
        with pytest.raises(Corruption, match=f"{size} bytes of JSON, {size - 1} are the most"):
            read(data, "log", 0)


# ---- MANIFEST

HEADER = form.Header(bytes(16), 1)


class Source:
    """A manifest's bytes."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    def size(self) -> int:
        return len(self.data)

    def pread(self, length: int, offset: int) -> bytes:
        return self.data[offset : offset + length]


def edit_of(lines: list[bytes]) -> form.Window:
    """A window on an edit that begins at byte 0."""
    return form.Window(Source(b"".join(form.frames(HEADER, 0, 1, 1, 1, lines))))


def lines_of(window: form.Window) -> list[bytes] | None:
    found = form.edit_at(window, HEADER, 0)
    return None if found is None else list(found[1])


def test_a_line_of_a_manifest(monkeypatch: pytest.MonkeyPatch) -> None:
    value = {"add": "x" * 300}
    size = len(json.dumps(value, separators=(",", ":")))
    monkeypatch.setattr(form, "MAX_FRAME_BYTES", 64)
    monkeypatch.setattr(form, "MAX_LINE_BYTES", size + 1)
    made = form.lines_of([value])
    window = edit_of(made)
    assert lines_of(window) == made
    monkeypatch.setattr(form, "MAX_LINE_BYTES", size)
    with pytest.raises(NotSupported, match=f"{size} bytes, {size} are the most"):
        form.lines_of([value])
    monkeypatch.setattr(form, "MAX_LINE_BYTES", 100)
    with pytest.raises(ValueError, match="a line of more than 100 bytes"):
        lines_of(window)


def test_frames_of_an_edit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(form, "MAX_FRAME_BYTES", 64)
    monkeypatch.setattr(form, "MAX_PARTS", 5)
    made = [b"x" * (5 * 64)]
    window = edit_of(made)
    assert lines_of(window) == made
    with pytest.raises(NotSupported, match="an edit of a manifest would take 328 bytes"):
        edit_of([b"x" * (5 * 64 + 1)])
    monkeypatch.setattr(form, "MAX_PARTS", 4)
    assert form.frame_at(window, HEADER, 0) is None and lines_of(window) is None
    monkeypatch.setattr(form, "MAX_PARTS", 5)
    monkeypatch.setattr(form, "MAX_FRAME_BYTES", 56)
    assert form.frame_at(window, HEADER, 0) is None
