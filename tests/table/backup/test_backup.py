"""``table.backup`` and ``restore``: the states of the model at the backups' moments, and nothing half."""

from __future__ import annotations

import datetime as dt
import pickle
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import kudu_core as kc
from kudu_core.fs.posix import PosixFileSystem
from kudu_core.table.backup import backup as module
from tests.support.inside import applied_writes_of, engine_of, schema_of, table_file_of
from tests.support.models.history import SCHEMA as RANDOM
from tests.support.models.history import History, random_batch
from tests.support.models.model import state_of
from tests.support.tables import Make
from tests.table.backup.test_damaged import files_of
from tests.table.read.test_dataset import ROWS, SCHEMA, TYPES, cells


@pytest.mark.parametrize("run_bytes", [64 << 20, 500])
@pytest.mark.parametrize("ingest_rows", [10**6, 40])
def test_every_backup_restores_the_state_of_its_moment(
    tmp_path: Path,
    dst: Path,
    seed: int,
    long: bool,
    run_bytes: int,
    ingest_rows: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Full ones and increments, on the last or on an earlier one, with flushes, compactions and reopens
    between them; history that nothing needs any more goes meanwhile."""
    monkeypatch.setattr(module, "RUN_BYTES", run_bytes)
    for run in range(12 if long else 1):
        rng = random.Random(f"{seed}-{run}")
        history, path, folder = History(), tmp_path / f"t{run}", dst.with_name(f"backups{run}")
        options = {"maintenance": "manual", "ingest_threshold_rows": ingest_rows}
        table = kc.create_table(
            path, RANDOM, "k", partition_by=kc.HashPartition("k", 3, seed=7), options=options
        )
        made: list[tuple[kc.BackupResult, Any]] = []
        for step in range(30):
            rows = rng.choice((1, 4, 50))
            history.write(table, random_batch(rng, history.model, range(80), rows, whole=rng.random() < 0.5))
            draw = rng.random()
            if draw < 0.2:
                table.flush()
            elif draw < 0.3:
                table.compact(full=True)
            elif draw < 0.35:
                table.close()
                table = kc.open_table(path, "rw")
            if step % 3 == 2:
                since: Any = None
                if made and rng.random() < 0.8:
                    base = made[-1][0] if rng.random() < 0.7 else rng.choice(made)[0]
                    since = rng.choice((base, base.timestamp))
                done = table.backup(folder, since)
                wanted = history.model.state()
                assert done.total == len(wanted) and done.number == len(made) + 1
                assert done.timestamp >= history.writes[-1]
                made.append((done, wanted))
        table.close()
        for number, (done, wanted) in enumerate(made):
            at = rng.choice((done, done.timestamp))
            with kc.restore(folder, tmp_path / f"r{run}-{number}", at=at) as again:
                assert state_of(history.model, again.scan().to_pylist()) == wanted
                assert again.count() == len(wanted)
                kinds = [r["_op"] for r in again.changes().to_pylist()]
                assert kinds == ["insert"] * len(wanted), "rows have the time of the restore, once"
        with kc.restore(folder, tmp_path / f"r{run}") as again:
            assert state_of(history.model, again.scan().to_pylist()) == made[-1][1]


def test_everything_of_a_table_comes_back(tmp_path: Path, dst: Path) -> None:
    """Types, defaults, encodings, comments, partitions, options; the tokens of writers do not."""
    columns = [kc.Column("k", pa.int64()), kc.Column("place", pa.string())]
    for name, (type_, make) in TYPES.items():
        columns.append(kc.Column(name, type_, default=make(5) if name != "f32" else None))
    columns.append(kc.Column("must", pa.int32(), nullable=False, default=7, comment="a comment"))
    columns.append(kc.Column("coded", pa.int64(), encoding="rle", compression="zstd"))
    parts: Any = [
        kc.HashPartition("k", 3, seed=11),
        kc.RangePartition("place", bounds=[("a", "m"), ("m", "t"), ("x", None)]),
    ]
    options = kc.Options(maintenance="manual", durability="group", flush_age_s=7, scan_threads=2)
    path, key = tmp_path / "t", ["place", "k"]
    with kc.create_table(path, columns, key, partition_by=parts, options=options) as table:
        data = {name: cells(name) for name in TYPES}
        places = ["alpha", "maria", "xenia"]
        rows = {"k": range(ROWS), "place": [places[i % 3] for i in range(ROWS)], **data}
        schema = pa.schema([SCHEMA.field("k"), ("place", pa.string()), *list(SCHEMA)[1:]])
        table.insert(pa.table(rows, schema=schema), txn=("app", 3))
        first = table.backup(dst)
        table.update(where=[("i8", ">", 0)], set={"f64": float("nan"), "s": "changed", "raw": None})
        table.delete(where=[("k", "<", 100)])
        table.insert({"k": [1], "place": ["maria"]})
        second = table.backup(dst, first)
        assert (second.inserted, second.deleted, second.total) == (0, 99, ROWS - 99)
        assert second.bytes < first.bytes and second.since == first.timestamp
        wanted, engine = table.scan(order="key").to_table(), engine_of(table)
        with kc.restore(dst, tmp_path / "r") as again:
            # As text: NaN is not equal to itself.
            assert str(again.scan(order="key").to_pylist()) == str(wanted.to_pylist())
            assert again.schema.equals(table.schema, check_metadata=True)
            assert schema_of(again).columns == engine.schema.columns
            assert again.partitions == table.partitions and again.options == options
            assert table_file_of(again).uuid != engine.uuid and not applied_writes_of(again)
            assert again.insert({"k": [5000], "place": ["b"]}, txn=("app", 3)).inserted == 1
            assert again.get(("b", 5000), ["must", "i8"]) == {"must": 7, "i8": TYPES["i8"][1](5)}
            with pytest.raises(kc.RowErrors, match="no_partition"):
                again.insert({"k": [1], "place": ["u"]})


def test_a_backup_holds_one_moment(make: Make, dst: Path, tmp_path: Path) -> None:
    """Of a table that is written to while it is made, and of a reading handle."""
    table = make(partition_by=kc.HashPartition("k", 4), durability="sync")
    table.insert({"k": list(range(2_000)), "a": [1] * 2_000})
    written: list[int] = []

    class Slow(module.BackupFileWriter):
        def append(self, batch: pa.RecordBatch) -> None:
            written.append(table.update(where=[("k", "<", 2_000)], set={"a": 2}).timestamp)
            table.flush()
            table.compact(full=True)
            super().append(batch)

    module.BackupFileWriter, usual = Slow, module.BackupFileWriter  # type: ignore[misc]
    try:
        done = table.backup(dst)
    finally:
        module.BackupFileWriter = usual  # type: ignore[misc]
    assert written and done.timestamp < written[0]
    with kc.open_table(table.path) as reader:
        later = reader.backup(dst, done)
        assert (later.inserted, later.updated, later.deleted) == (0, 2_000, 0)
        assert reader.backup(dst, "last") == later, "nothing was written since"
    for result, value in ((done, 1), (later, 2)):
        with kc.restore(dst, tmp_path / f"r{value}", result) as again:
            assert again.scan(["a"]).to_table()["a"].to_pylist() == [value] * 2_000


def test_the_horizon(make: Make, dst: Path) -> None:
    table = make(history_retention_s=0, durability="sync")
    table.insert({"k": [1, 2]})
    with table.snapshot() as snapshot:
        first = table.backup(dst)
        assert snapshot.timestamp == first.timestamp
        table.update({"k": [1], "a": [1]})
        table.flush()
        table.compact(full=True)
        table.gc()
        second = table.backup(dst, snapshot)
    assert second.updated == 1
    table.update({"k": [1], "a": [2]})
    table.flush()
    table.compact(full=True)
    table.gc()
    with pytest.raises(kc.ChangesLost, match="history reaches back"):
        table.backup(dst, "last")
    assert sorted(p.name for p in dst.iterdir()) == ["00000001", "00000002", "LOCK"]
    assert table.backup(dst).since is None


def test_backups_across_changes_of_the_schema(make: Make, dst: Path, tmp_path: Path) -> None:
    """Columns are the same by id, ranges by their bounds: every state comes back with its own schema."""
    columns = [
        kc.Column("k", pa.int64()),
        kc.Column("a", pa.int64()),
        kc.Column("s", pa.string(), comment="text"),
    ]
    ranges = kc.RangePartition("k", bounds=[(0, 10), (10, 20), (20, 30)])
    table = make(columns, partition_by=[kc.HashPartition("k", 2), ranges], durability="sync")
    keys = list(range(30))
    table.insert({"k": keys, "a": keys, "s": [f"s{k}" for k in keys]})

    def alter(**changes: Any) -> Callable[[], object]:
        return lambda: table.alter(**changes)

    steps: list[Callable[[], object]] = [
        lambda: table.update({"k": [1], "a": [100]}),
        alter(add=[kc.Column("n", pa.int32(), nullable=False, default=7)]),
        lambda: table.update({"k": [2, 3], "n": [8, 9]}),
        alter(drop=["a"], rename={"s": "a"}),
        lambda: table.upsert({"k": [4, 5], "a": ["four", None]}),
        alter(drop_range=(10, 20), add_range=(40, 50)),
        lambda: table.insert({"k": [41], "a": ["new"]}),
        alter(add_range=(10, 15), add=[kc.Column("s", pa.float64(), default=1.5)]),
        lambda: table.insert({"k": [12], "s": [2.5]}),
        alter(drop_range=[(0, 10)], add_range=[(0, 10)], drop=["n"]),
    ]
    made = [(table.backup(dst), table.scan(order="key").to_table())]
    for number, step in enumerate(steps):
        step()
        if number % 3 == 1:
            table.flush()
            table.compact(full=True)
        made.append((table.backup(dst, "last"), table.scan(order="key").to_table()))
    assert [result.number for result, _ in made] == list(range(1, 12))
    for result, wanted in made:
        with kc.restore(dst, tmp_path / f"r{result.number}", result) as again:
            found = again.scan(order="key").to_table()
            assert found.schema.equals(wanted.schema, check_metadata=True)
            assert found.to_pylist() == wanted.to_pylist()
    assert again.partitions.is_cut_as(table.partitions)
    # From the first to the last, all at once.
    table.insert({"k": [3], "a": ["again"]})
    assert table.backup(dst, made[0][0]).since == made[0][0].timestamp
    with kc.restore(dst, tmp_path / "r") as again:
        assert again.scan(order="key").to_pylist() == table.scan(order="key").to_pylist()
        assert again.alter(add=[kc.Column("more", pa.string())]) > 0


def test_an_empty_table(make: Make, dst: Path, tmp_path: Path) -> None:
    table = make(durability="sync")
    done = table.backup(dst)
    assert (done.total, done.bytes, done.inserted) == (0, 0, 0)
    with kc.restore(dst, tmp_path / "r") as again:
        assert again.count() == 0 and again.schema == table.schema
    table.insert({"k": [1]})
    table.delete([1])
    assert table.backup(dst, done).total == 0
    with kc.restore(dst, tmp_path / "r2") as again:
        assert again.count() == 0


def test_rows_of_a_key_alone(make: Make, dst: Path, tmp_path: Path) -> None:
    table = make([kc.Column("k", pa.string()), kc.Column("l", pa.date32())], ["k", "l"], durability="sync")
    day = dt.date(2026, 1, 1)
    table.insert({"k": ["a", "b"], "l": [day, day]})
    table.backup(dst)
    table.delete({"k": ["a"], "l": [day]})
    table.insert({"k": [""], "l": [day]})
    table.backup(dst, "last")
    with kc.restore(dst, tmp_path / "r") as again:
        assert [r["k"] for r in again.scan(order="key").to_pylist()] == ["", "b"]


def test_wrong_calls_change_nothing(make: Make, dst: Path, tmp_path: Path) -> None:
    table = make(durability="sync")
    table.insert({"k": [1]})
    with pytest.raises(kc.InvalidArgument, match=r"no backup in .* to continue"):
        table.backup(dst, "last")
    first = table.backup(dst)
    table.insert({"k": [2]})
    wrong: list[tuple[Any, str]] = [(first.timestamp + 1, "gap; there are"), ("first", "since is")]
    for since, message in (*wrong, (True, "since is")):
        with pytest.raises(kc.InvalidArgument, match=message):
            table.backup(dst, since)
    for place in (table.path, Path(table.path) / "backups"):
        with pytest.raises(kc.InvalidArgument, match="own folder"):
            table.backup(place)
    (tmp_path / "file").write_text("x")
    with pytest.raises(kc.InvalidArgument, match="is a file"):
        table.backup(tmp_path / "file")
    with pytest.raises(kc.InvalidArgument, match="'backups' does not belong"):
        table.backup(tmp_path)
    other = kc.create_table(tmp_path / "other", pa.schema([("k", pa.int64())]), "k")
    with other, pytest.raises(kc.InvalidArgument, match="another table"):
        other.backup(dst)
    lease = PosixFileSystem().lease(f"{dst}/LOCK")
    lease.try_acquire()
    with pytest.raises(kc.Locked):
        table.backup(dst)
    lease.release()
    assert sorted(p.name for p in dst.iterdir()) == ["00000001", "LOCK"]

    with pytest.raises(kc.TableNotFound, match="no backup"):
        kc.restore(tmp_path / "none", tmp_path / "r")
    (tmp_path / "empty").mkdir()
    with pytest.raises(kc.TableNotFound, match="no backup"):
        kc.restore(tmp_path / "empty", tmp_path / "r")
    naive = dt.datetime(2026, 1, 1)
    wrong = [(5, f"there are {first.timestamp}"), (naive, "zone"), ("now", "at is"), (True, "at is")]
    for at, message in wrong:
        with pytest.raises(kc.InvalidArgument, match=message):
            kc.restore(dst, tmp_path / "r", at)
    for taken in (table.path, tmp_path / "file", tmp_path):
        with pytest.raises(kc.TableExists):
            kc.restore(dst, taken)
    assert not (tmp_path / "r").exists()
    moment = dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(microseconds=first.timestamp >> 12)
    (tmp_path / "free").mkdir()  # an empty folder is a place for a table
    with kc.restore(dst, tmp_path / "free", at=moment) as again:
        assert again.count() == 1
    assert pickle.loads(pickle.dumps(first)) == first


def test_a_larger_backup_is_read_run_by_run(
    make: Make, dst: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files of bounded size, one in memory at a time; a table larger than memory is spilled."""
    monkeypatch.setattr(module, "RUN_BYTES", 1 << 20)
    table = make(durability="sync", memory_limit_bytes=16 << 20)
    for part in range(4):
        keys = list(range(part * 50_000, part * 50_000 + 50_000))
        table.insert(pa.table({"k": keys, "s": [f"row {k:0100}" for k in keys]}))
    done = table.backup(dst)
    sizes = [path.stat().st_size for path in files_of(dst)]
    assert len(sizes) > 4 and done.bytes == sum(sizes) - (dst / "00000001" / "BACKUP").stat().st_size
    with kc.restore(dst, tmp_path / "r") as again:
        assert again.scan(["k"], order="key").to_table().equals(table.scan(["k"], order="key").to_table())
