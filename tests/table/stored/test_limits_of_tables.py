"""Each limit of versions, partitions and TABLE, exactly reached, is taken; one more is refused."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

import kudu_core as kc
from kudu_core.common.format.members import LIMIT
from kudu_core.common.idempotence import writers
from kudu_core.common.idempotence.fingerprint import Fingerprint
from kudu_core.common.idempotence.writers import AppliedWrite
from kudu_core.common.partition import partitions, ranges
from kudu_core.common.schema import declare, schema
from kudu_core.common.types.keycodec import MAX_KEY_BYTES
from kudu_core.errors import Corruption, InvalidArgument, NotSupported
from kudu_core.table.stored import alteration, table_state
from tests.support.fs.memory import MemoryFileSystem
from tests.support.inside import forget_parsed_tables, table_file_of
from tests.support.limits import MANUAL, PATH, Column, comes_back, contents, make, refused, unreadable
from tests.support.models.overwriting import overwrite

# ---- versions of the schema


def test_ids_of_columns_end(fs: MemoryFileSystem, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schema, "MAX_COLUMN_ID", 5)
    with make(fs) as table:
        table.alter(add=[Column("a", "int8")])
        table.alter(add=[Column("b", "int8")], drop=["a"])
        refused(fs, lambda: table.alter(add=[Column("c", "int8")], drop=["b"]), "next column id 6")
        comes_back(fs, table)
    monkeypatch.setattr(schema, "MAX_COLUMN_ID", 4)
    unreadable(fs, "whole number")


def test_versions_end(fs: MemoryFileSystem, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schema, "MAX_VERSION", 3)
    with make(fs) as table:
        table.alter(add=[Column("a", "int8")])
        refused(fs, lambda: table.alter(drop=["a"]), "schema version 3")
        comes_back(fs, table)
    monkeypatch.setattr(schema, "MAX_VERSION", 2)
    unreadable(fs, "whole number")


def test_a_version_as_a_file_has_it(fs: MemoryFileSystem, monkeypatch: pytest.MonkeyPatch) -> None:
    columns = [Column("k", "int64"), Column("s", "string", default="\x01" * 5000)]
    size = declare.declare(columns, "k").json_bytes
    assert size == len(json.dumps(declare.declare(columns, "k").to_json(), separators=(",", ":"))) > 60_000
    monkeypatch.setattr(schema, "MAX_SCHEMA_BYTES", size - 1)
    refused(fs, lambda: make(fs, columns), f"take {size:,} bytes; at most {size - 1:,} are stored")
    monkeypatch.setattr(schema, "MAX_SCHEMA_BYTES", size)
    with make(fs, columns) as table:
        refused(fs, lambda: table.alter(add=[Column("a", "int8")]), "are stored")
        comes_back(fs, table)


def test_of_wide_schemas_fewer_versions_are_remembered(
    fs: MemoryFileSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    with make(fs) as table:
        for number in range(70):
            table.alter(add=[Column(f"a{number}", "int8")])
        versions = [s.version for s in table_file_of(table).schemas]
        assert versions == list(range(8, 72)), "64 of narrow ones"
        sizes = [s.json_bytes for s in table_file_of(table).schemas]
        # As much as the three before the next version take: that one, and these three.
        monkeypatch.setattr(table_state, "OLD_SCHEMAS_BYTES", sum(sizes[-3:]))
        table.alter(rename={"a1": "b1"})
        assert [s.version for s in table_file_of(table).schemas] == [69, 70, 71, 72]
        monkeypatch.setattr(table_state, "OLD_SCHEMAS_BYTES", 0)
        table.alter(rename={"b1": "a1"})
        assert [s.version for s in table_file_of(table).schemas] == [73], "the newest in any case"
        comes_back(fs, table)


# ---- partitions


def test_partitions_of_a_table(fs: MemoryFileSystem, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partitions, "MAX_PARTITIONS", 6)
    hashed = kc.HashPartition("k", 2)

    def ranges(count: int) -> kc.RangePartition:
        return kc.RangePartition("k", [(i, i + 1) for i in range(count)])

    refused(fs, lambda: make(fs, partition_by=[hashed, ranges(4)]), "8 partitions; a table has at most 6")
    with make(fs, partition_by=[hashed, ranges(2)]) as table:
        table.alter(add_range=(2, 3))
        refused(fs, lambda: table.alter(add_range=(3, 4)), "8 partitions")
        refused(fs, lambda: table.alter(drop_range=(0, 1), add_range=(3, 4)), "dropped ones counted")
        table.insert({"k": [0, 1, 2]})
        comes_back(fs, table)
    monkeypatch.setattr(partitions, "MAX_PARTITIONS", 5)
    unreadable(fs, "6 partitions")


def test_many_ranges_are_checked_in_time() -> None:
    """As many as there may be; each was compared with each."""
    declared = declare.declare([Column("k", "int64")], "k")
    count = partitions.MAX_PARTITIONS
    bounds = [(i, i + 1) for i in range(count)]
    made = partitions.PartitionSchema.make(declared, kc.RangePartition("k", bounds[::-1]))
    assert len(made.partitions) == count and made.router is not None
    again = partitions.PartitionSchema.from_json(json.loads(json.dumps(made.to_json())), declared)
    assert again == made
    with pytest.raises(InvalidArgument, match=r"range \[\(5\), \(7\)\) overlaps"):
        partitions.PartitionSchema.make(declared, kc.RangePartition("k", [*bounds[:10], (5, 7)]))
    with pytest.raises(InvalidArgument, match="65,537 partitions"):
        partitions.PartitionSchema.make(declared, kc.RangePartition("k", [*bounds, (count, count + 1)]))


def test_bounds_of_ranges(fs: MemoryFileSystem, monkeypatch: pytest.MonkeyPatch) -> None:
    columns = [Column("k", "binary"), Column("s", "string")]

    def cut(size: int) -> kc.RangePartition:
        return kc.RangePartition("k", [(None, b"x" * size), (b"x" * size, None)])

    most = MAX_KEY_BYTES
    refused(fs, lambda: make(fs, columns, partition_by=cut(most + 1)), "16,385 bytes as a key; .* 16,384")
    with make(fs, columns, partition_by=cut(most)) as table:
        refused(fs, lambda: table.alter(drop_range=(b"y" * (most + 1), None)), "16,385 bytes")
        table.insert({"k": [b"x" * most, b"w" * most]})
        comes_back(fs, table)
    monkeypatch.setattr(ranges, "MAX_KEY_BYTES", most - 1)
    unreadable(fs, "a bound of 16384 bytes")


def test_bounds_of_all_ranges(fs: MemoryFileSystem, monkeypatch: pytest.MonkeyPatch) -> None:
    cut = kc.RangePartition("k", [(i, i + 1) for i in range(10)])
    wanted = 10 * (2 * 8 + 2 * 8 + 20)
    monkeypatch.setattr(ranges, "MAX_RANGES_BYTES", wanted - 1)
    refused(fs, lambda: make(fs, partition_by=cut), f"10 ranges take {wanted} bytes; at most {wanted - 1}")
    monkeypatch.setattr(ranges, "MAX_RANGES_BYTES", wanted)
    with make(fs, partition_by=cut) as table:
        taken = len(json.dumps(table.partitions.to_json()["ranges"], separators=(",", ":")))
        assert taken <= wanted, "what is counted is no less than what is stored"
        refused(fs, lambda: table.alter(add_range=(10, 11)), "11 ranges take")
        comes_back(fs, table)
    monkeypatch.setattr(ranges, "MAX_RANGES_BYTES", wanted - 1)
    unreadable(fs, "10 ranges take")


def test_ranges_from_an_iterator(fs: MemoryFileSystem) -> None:
    """They were looked at twice, and the second time there were none: a table that nobody could open."""
    bounds: Any = (b for b in [(0, 5), (5, 9)])
    with make(fs, partition_by=kc.RangePartition("k", bounds)) as table:
        assert len(table.partitions.partitions) == 2
        comes_back(fs, table)


NO_PARTITIONS: list[Any] = [
    5,
    [5],
    kc.HashPartition(5, 2),  # type: ignore[arg-type]
    kc.RangePartition("k", 5),  # type: ignore[arg-type]
    kc.RangePartition("k", [5]),  # type: ignore[list-item]
]


@pytest.mark.parametrize("wrong", NO_PARTITIONS)
def test_what_is_no_partition(fs: MemoryFileSystem, wrong: Any) -> None:
    refused(fs, lambda: make(fs, partition_by=wrong), "partition|dimension|range")


# ---- tablets, epochs, TABLE


def test_tablets_that_are_listed(fs: MemoryFileSystem, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_state, "MAX_TABLETS", 4)
    cut = kc.RangePartition("k", [(0, 1), (1, 2)])
    options = MANUAL | {"history_retention_s": 3600}
    with make(fs, partition_by=cut, options=options) as table:
        table.insert({"k": [0, 1], "s": ["a", "b"]})
        overwrite(table, [{"k": 0, "s": "c"}])
        rows = table.scan().to_pylist()
        refused(fs, lambda: table.alter(add_range=(2, 3)), "1 new tablets beside 4", NotSupported)
        with pytest.raises(NotSupported, match="2 new tablets beside 4"):
            overwrite(table, [{"k": 1, "s": "d"}])
        assert table.scan().to_pylist() == rows
        comes_back(fs, table)
    with kc.open_table(PATH, "rw", options={"history_retention_s": 0}, _fs=fs) as table:
        table.gc()
        table.alter(add_range=(2, 3))
        assert len(table_file_of(table).tablets) == 3
        comes_back(fs, table)
    monkeypatch.setattr(table_state, "MAX_TABLETS", 2)
    unreadable(fs, "3 tablets; at most 2")


def test_ids_of_tablets_end(fs: MemoryFileSystem, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (table_state, alteration):
        monkeypatch.setattr(module, "MAX_TABLET", 4)
    with make(fs, partition_by=kc.RangePartition("k", [(0, 1), (1, 2)])) as table:
        table.alter(add_range=(2, 3))
        refused(fs, lambda: table.alter(add_range=(3, 4)), "from id 4 on", NotSupported)
        with pytest.raises(NotSupported, match="from id 4 on"):
            overwrite(table, [{"k": 1, "s": "d"}])
        comes_back(fs, table)
    monkeypatch.setattr(table_state, "MAX_TABLET", 3)
    forget_parsed_tables()
    unreadable(fs, "whole number")


def test_epochs_end(fs: MemoryFileSystem, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_state, "MAX_EPOCH", 4)
    from kudu_core.table.lifecycle import open_writer as opening

    monkeypatch.setattr(opening, "MAX_EPOCH", 4)
    make(fs).close()
    with kc.open_table(PATH, "rw", _fs=fs) as table:
        assert table_file_of(table).epoch == 3
        table.insert({"k": [1]})
    refused(fs, lambda: kc.open_table(PATH, "rw", _fs=fs), "opened for writing 3 times", NotSupported)
    with kc.open_table(PATH, _fs=fs) as reader:
        assert reader.count() == 1
    monkeypatch.setattr(table_state, "MAX_EPOCH", 3)
    forget_parsed_tables()
    with pytest.raises(Corruption, match="whole number"):
        kc.open_table(PATH, _fs=fs)


def test_the_parts_of_table_come_to_less_than_it_may_be() -> None:
    """So nobody but those who add to a part has to ask for its size."""
    text = "\x01" * 1024
    number = LIMIT - 1
    rows = Fingerprint((1 << 62) - 1, (1 << 64) - 1, (1 << 64) - 1)
    token = AppliedWrite(
        writers.MAX_VERSION - 1, number, (number,) * 4, rows, text[: writers.MAX_SOURCE_BYTES],
        ((writers.MAX_VERSION - 1, rows),) * writers.RECENT_VERSIONS,
    )  # fmt: skip
    entry = table_state.TabletEntry((1 << 32) - 1, partitions.MAX_PARTITIONS - 1, number, number)
    declared = declare.declare([Column("k", "int64")], "k")
    none = table_state.TableState(
        bytes(16), table_state.MAX_EPOCH - 1, kc.Options(), (declared,),
        partitions.PartitionSchema.make(declared), (entry,), {text[: writers.MAX_APP_ID_BYTES]: token},
        number, number, number, number,
    )  # fmt: skip
    one, other = len(none.to_bytes()), len(replace(none, tokens={}).to_bytes())
    a_token = one - other + 1
    a_tablet = len(json.dumps([entry.id, entry.partition, number, number], separators=(",", ":"))) + 1
    most = (
        other
        + schema.MAX_SCHEMA_BYTES
        + table_state.OLD_SCHEMAS_BYTES
        + ranges.MAX_RANGES_BYTES
        + a_tablet * table_state.MAX_TABLETS
        + a_token * writers.MAX_TOKENS
    )
    assert most < table_state.MAX_BYTES


def test_a_table_file_that_is_too_long_is_not_written(
    fs: MemoryFileSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = make(fs)
    size = len(table_file_of(table).to_bytes())
    table.close()
    monkeypatch.setattr(table_state, "MAX_BYTES", size - 40)
    before = contents(fs)
    with pytest.raises(Corruption, match="longer than"):
        kc.open_table(PATH, _fs=fs)
    assert contents(fs) == before
    with pytest.raises(NotSupported, match="TABLE would have"):
        make(MemoryFileSystem())
