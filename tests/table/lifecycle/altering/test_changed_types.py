"""``Table.alter(change={...: {"type": ...}})``: types that are stored as the same cells."""

from __future__ import annotations

import datetime as dt
import pickle
import uuid
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import kudu_core as kc
from kudu_core.table.ingest import ingest
from kudu_core.table.jobs import commit
from tests.support.inside import engine_of, handle_of, schema_of
from tests.support.objects.memory import MemoryObjectStore
from tests.support.objects.tables import URL

Place = Callable[[kc.Table], None]
OPTIONS = {"maintenance": "manual", "scan_threads": 1, "file_grace_s": 0, "ingest_threshold_rows": 20}
NOON = dt.datetime(2026, 1, 1, 12, tzinfo=dt.UTC)
BERLIN = dt.timezone(dt.timedelta(hours=1))
U = uuid.UUID(int=7)

CHANGES: list[tuple[str, str, Any, Any, Any]] = [
    # from, to, a value of the one, the same of the other, another one of the other
    ("string", "large_string", "a", "a", "b"),
    ("large_string", "string_view", "a", "a", "b"),
    ("string_view", "string", "a" * 40, "a" * 40, "b"),
    ("string", "dictionary[string]", "a", "a", "b"),
    ("dictionary[string]", "large_string", "a", "a", "b"),
    ("binary", "large_binary", b"a", b"a", b"b"),
    ("fixed_size_binary[2]", "binary", b"ab", b"ab", b"b"),
    ("uuid", "fixed_size_binary[16]", U, U.bytes, b"b" * 16),
    ("uuid", "binary_view", U, U.bytes, b"b"),
    ("fixed_size_binary[16]", "uuid", U.bytes, U, uuid.UUID(int=8)),
    ("timestamp[us,UTC]", "timestamp[us,+01:00]", NOON, NOON.astimezone(BERLIN), NOON.replace(hour=1)),
    ("decimal128(10,2)", "decimal128(20,2)", Decimal("1.25"), Decimal("1.25"), Decimal("123456789012.50")),
    ("decimal32(5,1)", "decimal128(20,1)", Decimal("1.5"), Decimal("1.5"), Decimal("12345678901.5")),
    ("decimal64(18,0)", "decimal256(38,0)", Decimal(5), Decimal(5), Decimal(10**37)),
    ("float16", "float32", 1.5, 1.5, 2.0**100),
]
KEYS = [case for case in CHANGES if not case[0].startswith(("decimal", "float"))]


def make(path: Path, type_: str, **more: Any) -> kc.Table:
    columns = [kc.Column("k", "int64"), kc.Column("v", type_, **more)]
    return kc.create_table(str(path / "t"), columns, "k", options=OPTIONS)


def values(scan: Any) -> dict[int, Any]:
    return {row["k"]: row["v"] for row in scan.to_pylist()}


@pytest.mark.parametrize("case", CHANGES, ids=[f"{case[0]}-{case[1]}" for case in CHANGES])
def test_values_stay_and_others_come(tmp_path: Path, place: Place, case: Any) -> None:
    before, after, old, same, other = case
    with make(tmp_path, before, default=old) as table:
        table.insert([{"k": 1, "v": old}, {"k": 2, "v": None}, {"k": 3, "v": old}])
        place(table)
        since = table.timestamp
        scan, reader = table.scan(), kc.open_table(table.path)
        told = reader.scan().to_table()
        table.alter(change={"v": {"type": after}})
        arrow = table.schema.field("v").type
        assert values(scan) == {1: old, 2: None, 3: old}, "a scan keeps its columns"
        assert reader.scan().to_table() == told
        reader.refresh()
        table.update([{"k": 1, "v": other}])
        table.insert([{"k": 4}])
        table.insert(pa.table({"k": pa.array(range(10, 40)), "v": pa.array([other] * 30, arrow)}))
        wanted = {1: other, 2: None, 3: same, 4: same}
        for handle in (table, reader):
            handle.refresh()
            assert handle.schema.field("v").type == arrow
            found = handle.scan(where=pc.field("k") < 10).to_table()
            assert found.schema.field("v").type == arrow
            assert values(found) == wanted
            assert {k: handle.get(k)["v"] for k in wanted} == wanted
            assert values(handle.scan(at=since)) == {1: same, 2: None, 3: same}
            assert handle.get_many([3, 4]).schema.field("v").type == arrow
            assert handle.count([("v", "==", other)]) == 31
            assert handle.count([("v", "==", same)]) == 2
            rows = handle.changes(since, where=pc.field("k") < 10, images="both").to_table().to_pylist()
            assert [(r["_op"], r["k"], r["v"], (r["_before"] or {}).get("v")) for r in rows] == [
                ("update", 1, other, same),
                ("insert", 4, same, None),
            ]
        reader.close()
        table.close()
        table = kc.open_table(table.path, "rw")
        assert values(table.scan(where=pc.field("k") < 10)) == wanted
        table.flush()
        table.compact(full=True)
        assert values(table.scan(where=pc.field("k") < 10)) == wanted
        assert values(table.scan(at=since)) == {1: same, 2: None, 3: same}
        table.verify()
        table.close()


@pytest.mark.parametrize("case", KEYS, ids=[f"{case[0]}-{case[1]}" for case in KEYS])
@pytest.mark.parametrize("cut", [(), kc.HashPartition("k", 3)], ids=["one", "hash"])
def test_keys(tmp_path: Path, case: Any, cut: Any) -> None:
    before, after, old, same, other = case
    columns = [kc.Column("k", before), kc.Column("v", "int64")]
    path = str(tmp_path / "t")
    with kc.create_table(path, columns, "k", partition_by=cut, options=OPTIONS) as table:
        table.insert([{"k": old, "v": 1}])
        table.flush()
        table.alter(change={"k": {"type": after}})
        if other != same:
            table.insert([{"k": other, "v": 2}])
        table.upsert([{"k": same, "v": 3}])
        for handle in (table, kc.open_table(path)):
            assert handle.get(same) == {"k": same, "v": 3}
            assert handle.count([("k", "==", same)]) == 1
            assert handle.count() == 1 + (other != same)
            if handle is not table:
                handle.close()
    with kc.open_table(path, "rw") as again:
        again.compact(full=True)
        assert again.get(same) == {"k": same, "v": 3}


def test_fewer_digits_where_all_fit(tmp_path: Path, place: Place) -> None:
    with make(tmp_path, "decimal128(20,2)") as table:
        table.insert([{"k": 1, "v": Decimal("999.99")}, {"k": 2, "v": Decimal("-1000")}])
        place(table)
        narrow = {"v": {"type": "decimal128(5,2)"}}
        with pytest.raises(kc.InvalidArgument, match=r"'v' cannot become decimal.*: .* 1 row, .*k = 2"):
            table.alter(change=narrow)
        table.update([{"k": 2, "v": Decimal("-999.99")}])
        with pytest.raises(kc.InvalidArgument, match="in a past state"):
            table.alter(change=narrow)
        table.alter(change=narrow, options={"history_retention_s": 0})
        assert values(table.scan()) == {1: Decimal("999.99"), 2: Decimal("-999.99")}
        with pytest.raises(kc.InvalidArgument, match="more digits than"):
            table.update([{"k": 1, "v": Decimal("1000")}])
        assert table.count([("v", "<", Decimal(0))]) == 1


def test_an_ingest_with_more_digits_that_is_overtaken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with make(tmp_path, "decimal128(20,2)") as table:
        real, left = ingest._build, [lambda: table.alter(change={"v": {"type": "decimal128(5,2)"}})]

        def build(*args: Any, **more: Any) -> Any:
            made = real(*args, **more)
            if left:
                left.pop()()
            return made

        monkeypatch.setattr(ingest, "_build", build)
        cells = pa.array([Decimal(1000)] * 30, pa.decimal128(20, 2))
        with pytest.raises(kc.SchemaMismatch, match=r"'v' has become decimal128\(5,2\) meanwhile"):
            table.insert(pa.table({"k": pa.array(range(30)), "v": cells}))
        assert table.count() == 0


@pytest.mark.parametrize("count", [3, 30])
def test_a_job_that_began_before(tmp_path: Path, count: int) -> None:
    with make(tmp_path, "decimal128(10,2)") as table:
        cells = pa.array([Decimal("1.25")] * count, pa.decimal128(10, 2))
        batch = pa.RecordBatch.from_pydict({"k": pa.array(range(count)), "v": cells})
        job = commit.begin(handle_of(table), "insert", [("k", "int64"), ("v", "decimal128(10,2)")])
        stager = commit.stager(job, "a", engine_of(table).fs)
        stager.append(batch)
        runs = stager.finish()
        table.alter(change={"v": {"type": "decimal128(30,2)"}})
        assert commit.commit_job(job, runs, handle_of(table)).inserted == count
        assert table.count([("v", "==", Decimal("1.25"))]) == count


def test_backups_from_before_and_after(tmp_path: Path) -> None:
    """Of a value that the type of now has not, and a NULL where none is taken, a later backup tells."""
    folder, none = str(tmp_path / "backups"), {"history_retention_s": 0}
    with make(tmp_path, "decimal128(20,2)") as table:
        table.alter(add=[pa.field("w", pa.string()), pa.field("x", pa.timestamp("us", "UTC"))])
        table.insert([{"k": 1, "v": Decimal(10**10)}, {"k": 2, "v": Decimal(2), "w": "b", "x": NOON}])
        first = table.backup(folder)
        table.update([{"k": 1, "v": Decimal(1), "w": "a"}])
        second = table.backup(folder, first)
        table.alter(
            change={
                "v": {"type": "decimal64(5,2)"},
                "w": {"type": "large_string", "nullable": False},
                "x": {"type": "timestamp[us,+01:00]"},
            },
            options=none,
        )
        table.insert([{"k": 3, "v": Decimal(3), "w": "c"}])
        table.backup(folder, second)
        rows, schema = sorted(table.scan().to_pylist(), key=lambda row: row["k"]), table.schema
    with kc.restore(folder, str(tmp_path / "again")) as again:
        assert again.schema == schema
        assert sorted(again.scan().to_pylist(), key=lambda row: row["k"]) == rows
        again.verify()


def test_a_damaged_table_is_repaired(tmp_path: Path) -> None:
    with make(tmp_path, "decimal128(10,2)") as table:
        table.insert([{"k": k, "v": Decimal(k)} for k in range(5)])
        table.flush()
        table.update([{"k": 1, "v": Decimal(7)}])
        table.flush()
        table.alter(change={"v": {"type": "decimal128(20,2)"}}, rename={"k": "key"})
        table.update([{"key": 2, "v": Decimal(10**15)}])
        table.flush()
    for segment in Path(table.path).glob("wal/*.log"):
        segment.unlink()  # files alone tell
    manifest = next(Path(table.path).glob("tablets/*/MANIFEST"))
    data = bytearray(manifest.read_bytes())
    data[len(data) // 2] ^= 255
    manifest.write_bytes(data)
    kc.repair(table.path, str(tmp_path / "again"), dry_run=False)
    with kc.open_table(str(tmp_path / "again")) as again:
        found = {row["key"]: row["v"] for row in again.scan().to_pylist()}
        assert found == {0: 0, 1: 7, 2: 10**15, 3: 3, 4: 4}
        assert again.schema.field("v").type == pa.decimal128(20, 2)


@pytest.mark.parametrize(
    ("before", "after", "named"),
    [
        ("int64", "float64", "'v': int64 cannot become float64"),
        ("float64", "int64", "'v': float64 cannot become int64"),
        ("timestamp[us]", "date32", "'v': timestamp"),
        ("int64", "string", "'v': int64 cannot become string"),
        ("string", "binary", "'v': string cannot become binary"),
        ("binary", "string", "'v': binary cannot become string"),
        ("binary", "uuid", "'v': binary cannot become"),
        ("float32", "float16", "'v': float32 cannot become float16"),
        ("decimal128(10,2)", "decimal128(20,3)", "'v': decimal128"),
        ("decimal128(10,2)", "decimal256(50,2)", "'v': decimal128"),
        ("timestamp[us]", "timestamp[us,UTC]", "'v': timestamp"),
        ("uint8", "bool", "'v': uint8"),
        ("int32", "date32", "'v': int32"),
        ("string", pa.list_(pa.string()), "'v': string cannot become list"),
        ("string", "text", "'v': 'text' is not a column type"),
        ("string", 7, "'v'"),
    ],
)
def test_other_types_are_refused(tmp_path: Path, before: str, after: Any, named: str) -> None:
    with make(tmp_path, before) as table:
        schema = schema_of(table)
        with pytest.raises(kc.InvalidArgument, match=named):
            table.alter(change={"v": {"type": after}})
        assert schema_of(table) is schema


def test_decimals_of_a_key_stay(tmp_path: Path) -> None:
    columns = [kc.Column("k", "decimal128(10,2)"), kc.Column("v", "int64")]
    with kc.create_table(str(tmp_path / "t"), columns, "k") as table:
        with pytest.raises(kc.InvalidArgument, match=r"'k': in a key decimal128\(10,2\)"):
            table.alter(change={"k": {"type": "decimal128(20,2)"}})
        with pytest.raises(kc.InvalidArgument, match="'v': int64 cannot become string"):
            table.alter(change={"v": {"type": "string"}})


def test_a_repeated_write_is_known(tmp_path: Path) -> None:
    with make(tmp_path, "decimal128(10,2)") as table:
        rows = {"k": [1], "v": [Decimal("1.25")]}
        first = table.insert(rows, txn=("app", 1))
        table.alter(change={"v": {"type": "decimal64(18,2)"}}, order=["v"])
        assert table.insert(rows, txn=("app", 1)).timestamp == first.timestamp
        assert table.count() == 1


def test_a_default_goes_with_its_type(tmp_path: Path) -> None:
    with make(tmp_path, "uuid", default=U) as table:
        table.insert([{"k": 1}])
        table.alter(change={"v": {"type": "binary"}})
        table.insert([{"k": 2}])
        assert values(table.scan()) == {1: U.bytes, 2: U.bytes}
        table.alter(change={"v": {"type": "large_binary", "default": b"x"}})
        table.insert([{"k": 3}])
        assert values(table.scan()) == {1: U.bytes, 2: U.bytes, 3: b"x"}


def test_fields_of_structs(tmp_path: Path, place: Place) -> None:
    inner = pa.struct([pa.field("d", pa.decimal128(5, 1), False), pa.field("t", pa.string())])
    outer = pa.struct([pa.field("in", inner), pa.field("n", pa.int32(), False)])
    columns = [kc.Column("k", "int64"), kc.Column("v", outer)]
    with kc.create_table(str(tmp_path / "t"), columns, "k", options=OPTIONS) as table:
        one = {"in": {"d": Decimal("1.5"), "t": "a"}, "n": 1}
        table.insert([{"k": 1, "v": one}, {"k": 2, "v": None}, {"k": 3, "v": {"in": None, "n": 3}}])
        place(table)
        since, scan = table.timestamp, table.scan()
        with pytest.raises(kc.SchemaMismatch):
            table.upsert([{"k": 4, "v": {"in": one["in"], "n": None}}])
        table.alter(
            change={
                "v.in.d": {"type": "decimal128(20,1)", "nullable": True},
                "v.in.t": {"type": pa.large_string()},
                "v.n": {"nullable": True},
            }
        )
        before = {1: one, 2: None, 3: {"in": None, "n": 3}}
        assert values(scan) == before
        assert scan.schema.field("v").type == outer
        large = {"in": {"d": Decimal(10**12), "t": "b"}, "n": None}
        table.upsert([{"k": 4, "v": large}, {"k": 2, "v": {"in": {"d": None, "t": None}, "n": 2}}])
        table.update([{"k": 1, "v.in.d": Decimal(10**13)}])
        wanted = {
            1: {"in": {"d": Decimal(10**13), "t": "a"}, "n": 1},
            2: {"in": {"d": None, "t": None}, "n": 2},
            3: {"in": None, "n": 3},
            4: large,
        }
        for handle in (table, kc.open_table(table.path)):
            type_ = handle.schema.field("v").type
            assert type_.field("in").type.field("d").type == pa.decimal128(20, 1)
            assert type_.field("in").type.field("t").type == pa.large_string()
            assert [type_.field("n").nullable, type_.field("in").type.field("d").nullable] == [True, True]
            assert values(handle.scan()) == wanted
            assert values(handle.scan(at=since)) == before
            assert {k: handle.get(k)["v"] for k in wanted} == wanted
            assert handle.count([("v.in.d", ">", Decimal(10**12))]) == 1
            told = handle.changes(since).to_table().to_pylist()
            assert {row["k"]: row["v"] for row in told} == {k: wanted[k] for k in (1, 2, 4)}
            if handle is not table:
                handle.close()
        table.flush()
        table.compact(full=True)
        assert values(table.scan()) == wanted
        assert values(table.scan(at=since)) == before
        table.verify()
        folder = str(tmp_path / "backups")
        table.backup(folder)
        with kc.restore(folder, str(tmp_path / "again")) as again:
            assert values(again.scan()) == wanted
            assert again.schema == table.schema


def test_what_was_planned_before_gives_the_new_type(tmp_path: Path, place: Place) -> None:
    with make(tmp_path, "decimal128(10,2)") as table:
        table.insert([{"k": k, "v": Decimal(k)} for k in range(5)])
        place(table)
        since = table.timestamp
        table.update([{"k": 1, "v": Decimal(10)}])
        shares = table.scan_tokens(["v"], where=[("v", ">=", Decimal(3))])
        changed = table.change_tokens(since, columns=["v"], where=[("v", ">", Decimal(9))])
        batches = iter(table.scan(order="key", batch_rows=2))
        first = next(batches)
        sent = pickle.dumps(table.scan(["v"]))
        arrived = pickle.loads(sent)
        assert arrived.count() == 5
        table.alter(change={"v": {"type": "decimal128(20,2)"}})
        rest = pa.Table.from_batches([first, *batches])
        assert rest["v"].to_pylist() == [0, 10, 2, 3, 4], "a scan that has begun goes on"
        with kc.open_table(table.path) as reader:
            for handle in (table, reader):
                found = pa.concat_tables(handle.scan_token(share).to_table() for share in shares)
                assert found.schema.field("v").type == pa.decimal128(20, 2)
                assert sorted(found["v"].to_pylist()) == [3, 4, 10]
                told = pa.concat_tables(handle.change_token(share).to_table() for share in changed)
                assert told["v"].to_pylist() == [10]
        assert sorted(arrived.to_table()["v"].to_pylist()) == [0, 2, 3, 4, 10]
        assert sorted(pickle.loads(sent).to_table()["v"].to_pylist()) == [0, 2, 3, 4, 10]


def test_in_a_store() -> None:
    store = MemoryObjectStore()
    columns = [kc.Column("k", "int64"), kc.Column("v", "decimal128(10,2)"), kc.Column("s", "string")]
    with kc.create_table(URL, columns, "k", options={"maintenance": "manual"}, _requests=store) as table:
        table.insert([{"k": 1, "v": Decimal(1), "s": "a"}])
        reader = kc.open_table(URL, _requests=store)
        scan = reader.scan()
        table.alter(
            rename={"k": "key"},
            change={"v": {"type": "decimal128(20,2)"}, "s": {"nullable": False, "default": "-"}},
            order=["s"],
        )
        table.insert([{"key": 2, "v": Decimal(10**15)}])
        assert scan.to_pylist() == [{"k": 1, "v": Decimal(1), "s": "a"}]
        wanted = [{"s": "a", "key": 1, "v": 1}, {"s": "-", "key": 2, "v": 10**15}]
        reader.refresh()
        for handle in (table, reader):
            assert handle.scan(order="key").to_pylist() == wanted
        table.flush()
        reader.close()
    for mode in ("r", "rw"):
        with kc.open_table(URL, mode, _requests=store) as again:
            assert again.scan(order="key").to_pylist() == wanted
            assert again.schema.field("s").nullable is False
