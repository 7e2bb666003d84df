"""The row path (one key or one row, no Arrow) and the general path are one: same rows, records and errors."""

from __future__ import annotations

import datetime as dt
import gc
import os
import random
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import kudu_core as kc
from kudu_core._ext.base.status import NeedsGeneralPath
from kudu_core._ext.row.holder import PageHolder
from kudu_core.rowset.disk.deltastore import DeltaStore
from kudu_core.table import table as table_module
from kudu_core.table.read import points
from kudu_core.table.write import one_row
from tests.support.clock import ManualClock
from tests.support.inside import all_rowsets_of, engine_of, log_of, rowsets_of, tablet_of, tablets_of

UTC = dt.UTC
WORDS = ["", "a", "b", "host-1", "host-2", "ä\u20ac", "nul\0in", "\0", "z" * 40, "long" * 300]
TYPES: dict[str, Any] = {
    "int8": lambda r: r.choice([-128, -1, 0, 1, 127]),
    "int16": lambda r: r.randint(-300, 300),
    "int32": lambda r: r.choice([-(2**31), 2**31 - 1, r.randint(0, 50)]),
    "int64": lambda r: r.choice([-(2**63), 2**63 - 1, r.randint(0, 50)]),
    "uint8": lambda r: r.randint(0, 255),
    "uint16": lambda r: r.randint(0, 2**16 - 1),
    "uint32": lambda r: r.choice([0, 2**32 - 1, r.randint(0, 50)]),
    "uint64": lambda r: r.choice([0, 2**63, 2**64 - 1, r.randint(0, 50)]),
    "float32": lambda r: r.choice([0.0, -0.0, 0.5, 0.1, float("inf"), 1e-45, float(r.randint(0, 99))]),
    "float64": lambda r: r.choice([0.0, -0.0, 0.1, float("-inf"), 1e300, round(r.random() * 100, 2)]),
    "bool": lambda r: r.random() < 0.5,
    "string": lambda r: r.choice(WORDS),
    "binary": lambda r: r.choice(WORDS).encode("utf-16"),
    "date32": lambda r: r.choice(
        [dt.date(1, 1, 1), dt.date(9999, 12, 31), dt.date(2024, 2, r.randint(1, 29))]
    ),
    "timestamp[us]": lambda r: r.choice(
        [
            dt.datetime(1, 1, 1),
            dt.datetime(1969, 12, 31, 23, 59, 59, 999999),
            dt.datetime(2024, 2, 29, 1, 2, r.randint(0, 59)),
        ]
    ),
    "timestamp[us,UTC]": lambda r: (
        dt.datetime(1970, 1, 1, tzinfo=UTC) + dt.timedelta(microseconds=r.randint(-(10**15), 10**15))
    ),
    "decimal128(9,2)": lambda r: Decimal(r.randint(-999, 999)).scaleb(-2),
}
KEYS = [
    ("string", "int64"),
    ("int32", "string"),
    ("string", "binary", "uint8"),
    ("string",),
    ("binary",),
    ("int64",),
    ("uint64",),
    ("date32", "timestamp[us]"),
    ("timestamp[us,UTC]", "int8"),
    ("decimal128(9,2)", "uint16"),
    ("uint32", "int16", "string"),
]
ODD = [
    True,
    1,
    -1,
    2**70,
    1.5,
    float("nan"),
    "text",
    b"bytes",
    "\udc80",
    dt.datetime(2020, 1, 1),
    dt.date(2020, 1, 1),
    Decimal("1.5"),
    [1],
    object,
]


@pytest.fixture(params=range(len(KEYS)), ids=["+".join(k) for k in KEYS])
def key_types(request: pytest.FixtureRequest) -> tuple[str, ...]:
    types: tuple[str, ...] = KEYS[request.param]
    return types


def columns_of(key_types: tuple[str, ...]) -> list[kc.Column]:
    values = [kc.Column(f"v{i}", name) for i, name in enumerate(TYPES)]
    must = [kc.Column("must", "int32", nullable=False, default=7), kc.Column("need", "int64", nullable=False)]
    return [kc.Column(f"k{i}", name) for i, name in enumerate(key_types)] + values + must


LAYOUTS = ("one", "hash", "range", "both")


def partitions_of(layout: str, key_types: tuple[str, ...]) -> list[kc.HashPartition | kc.RangePartition]:
    """Hash on all key columns, ranges of the last one; the layout "range" leaves keys without a tablet."""
    names = [f"k{i}" for i in range(len(key_types))]
    r = random.Random(layout)
    values = sorted({TYPES[key_types[-1]](r) for _ in range(50)})
    middle = values[len(values) // 2]
    out: list[kc.HashPartition | kc.RangePartition] = []
    if layout in ("hash", "both"):
        out.append(kc.HashPartition(names, 3))
    if layout in ("range", "both"):
        ranges = [(None, middle)] if layout == "range" else [(None, middle), (middle, None)]
        out.append(kc.RangePartition(names[-1], ranges))
    return out


def make(
    path: Path, key_types: tuple[str, ...], clock: ManualClock, layout: str = "one", **options: Any
) -> kc.Table:
    keys = [f"k{i}" for i in range(len(key_types))]
    settings = {"maintenance": "manual", "durability": "none", **options}
    partitions = partitions_of(layout, key_types)
    return kc.create_table(
        path, columns_of(key_types), keys, partition_by=partitions, options=settings, _clock=clock
    )


def random_row(r: random.Random, keys: list[dict[str, Any]]) -> dict[str, Any]:
    row = dict(r.choice(keys))
    for i, (_, value) in enumerate(TYPES.items()):
        if r.random() < 0.4:
            row[f"v{i}"] = None if r.random() < 0.3 else value(r)
    if r.random() < 0.8:
        row["need"] = r.randint(0, 9)
    if r.random() < 0.3:
        row["must"] = r.randint(0, 9)
    return row


def random_keys(r: random.Random, key_types: tuple[str, ...], count: int) -> list[dict[str, Any]]:
    return [{f"k{i}": TYPES[name](r) for i, name in enumerate(key_types)} for _ in range(count)]


def write(table: kc.Table, operation: str, data: Any) -> Any:
    """What a call answers, in a form that compares."""
    name, _, ignore = operation.partition("_")
    more = {("on_conflict" if name == "insert" else "on_missing"): "ignore"} if ignore else {}
    try:
        result = getattr(table, name)(data, **more)
    except (kc.KuduError, TypeError, ValueError) as error:
        return type(error), str(error)
    return result.timestamp, result.counts, result.errors


def recorded(table: kc.Table, into: list[tuple[int, bytes]]) -> None:
    """Note the payload of every record that the table logs."""
    log = log_of(table)
    usual = log.append

    def append(kind: int, version: int, parts: Any) -> int:
        ts = usual(kind, version, parts)
        into.append((ts, b"".join(bytes(part) for part in parts)))
        return ts

    log.append = append  # type: ignore[method-assign, assignment]


OPERATIONS = (
    "insert",
    "insert_ignore",
    "upsert",
    "upsert",
    "update",
    "update_ignore",
    "delete",
    "delete_ignore",
)


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether each one-row write took the row path."""
    out: list[bool] = []

    def write_row(engine: Any, operation: str, row: dict[str, Any]) -> Any:
        done = one_row.write_row(engine, operation, row)
        out.append(done is not None)
        return done

    monkeypatch.setattr(table_module, "write_row", write_row)
    return out


@pytest.mark.parametrize("layout", LAYOUTS)
def test_rows_are_written_alike(
    tmp_path: Path, key_types: tuple[str, ...], seed: int, long: bool, taken: list[bool], layout: str
) -> None:
    print(f"seed {seed}")
    r = random.Random(f"{seed} {key_types}")
    fast, slow = (
        make(tmp_path / "fast", key_types, ManualClock(), layout),
        make(tmp_path / "slow", key_types, ManualClock(), layout),
    )
    fast_log: list[tuple[int, bytes]] = []
    slow_log: list[tuple[int, bytes]] = []
    recorded(fast, fast_log)
    recorded(slow, slow_log)
    keys = random_keys(r, key_types, 6)
    with fast, slow:
        for step in range(5000 if long else 100 if layout == "one" else 50):
            operation = r.choice(OPERATIONS)
            row = random_row(r, keys)
            if operation.startswith("delete") and r.random() < 0.9:
                row = {name: value for name, value in row.items() if name.startswith("k")}
            if r.random() < 0.1:
                row[r.choice([*row, "v3", "unknown"])] = r.choice([None, *ODD])
            if r.random() < 0.02:
                row.popitem()
            if r.random() < 0.03:
                row.pop("k0")
            items = list(row.items())
            r.shuffle(items)
            row = dict(items)
            # A tuple of dicts means the same, and is not looked at by the row path.
            answers = write(fast, operation, [row]), write(slow, operation, (row,))
            assert answers[0] == answers[1], (step, operation, row)
            assert fast_log[-1:] == slow_log[-1:], (step, operation, row)
            if r.random() < 0.05:
                fast.flush()
                slow.flush()
        assert fast_log == slow_log
        assert fast.scan(order="key").to_table().equals(slow.scan(order="key").to_table())
        # Decimal keys, and keys that no range takes, are the general path's.
        assert sum(taken) > len(taken) // 10 or "decimal128(9,2)" in key_types or layout == "range"
    # What was logged is what was done: replay gives the same table.
    with kc.open_table(tmp_path / "fast") as again, kc.open_table(tmp_path / "slow") as other:
        assert again.scan(order="key").to_table().equals(other.scan(order="key").to_table())


def same(a: Any, b: Any) -> bool:
    """Equal, of the same types, with equal signs of zeros."""
    return repr(a) == repr(b)


@pytest.fixture
def general(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The keys that the general path was asked for."""
    out: list[Any] = []
    usual = points._get_general

    def get_general(engine: Any, key: Any, *more: Any) -> Any:
        out.append(key)
        return usual(engine, key, *more)

    monkeypatch.setattr(points, "_get_general", get_general)
    return out


@pytest.mark.parametrize(
    ("page_cache_bytes", "layout"),
    [(64 << 20, "one"), (1 << 20, "one"), (64 << 20, "hash"), (64 << 20, "range"), (64 << 20, "both")],
)
def test_rows_are_read_alike(
    tmp_path: Path,
    key_types: tuple[str, ...],
    seed: int,
    long: bool,
    page_cache_bytes: int,
    layout: str,
    general: list[Any],
) -> None:
    print(f"seed {seed}")
    r = random.Random(f"{seed} {key_types}")
    keys = random_keys(r, key_types, 60 if long else 20)
    snapshots: list[int] = []
    with make(tmp_path / "t", key_types, ManualClock(), layout, page_cache_bytes=page_cache_bytes) as table:
        for _ in range(40 if long else 6):
            for _ in range(r.randint(1, 15)):
                operation = r.choice(OPERATIONS)
                row = random_row(r, keys)
                if operation.startswith("delete"):
                    row = {name: value for name, value in row.items() if name.startswith("k")}
                write(table, operation, [row])
            snapshots.append(table.timestamp)
            if r.random() < 0.4:
                table.flush()
        asked = 0
        for at in r.sample(snapshots, min(3, len(snapshots))):
            asked += check_reads(r, table, keys, at, general)
        # Decimal keys, and strings stored by their differences, are the general path's.
        assert len(general) < asked // 2 or "decimal128(9,2)" in key_types


def check_reads(
    r: random.Random, table: kc.Table, keys: list[dict[str, Any]], at: int, general: list[Any]
) -> int:
    engine = engine_of(table)
    names = [c.name for c in engine.schema.columns]
    wanted = r.sample(names, r.randint(1, len(names)))
    present = {
        repr([row[n] for n in table.primary_key]): row
        for row in (_as_python(row) for row in table.scan(at=at).to_table().to_pylist())
    }
    for key in keys:
        whole = table.get(key, at=at)
        columns = engine.schema.columns
        assert same(whole, points._get_general(engine, key, columns, at)), (key, at)
        general.pop()
        assert same(whole, present.get(repr(list(key.values()))))
        assert same(
            table.get(tuple(key.values()), wanted, at),
            None if whole is None else {n: whole[n] for n in wanted},
        )
    picked = [r.choice(keys) for _ in range(40)]
    many = table.get_many(picked, at=at)
    for index, key in enumerate(picked):
        whole = table.get(key, at=at)
        assert many["_found"][index].as_py() == (whole is not None)
        if whole is not None:
            assert same(_as_python(many.slice(index, 1).drop_columns(["_found"]).to_pylist()[0]), whole)
    return 2 * len(keys) + len(picked)


def _as_python(row: dict[str, Any]) -> dict[str, Any]:
    """Arrow names UTC in another way."""
    return {
        n: v.astimezone(UTC) if isinstance(v, dt.datetime) and v.tzinfo is not None else v
        for n, v in row.items()
    }


def test_plain_keys_take_the_row_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In memory, flushed, updated and absent: none of them needs the general path."""
    with make(tmp_path / "t", ("string", "int64"), ManualClock()) as table:
        table.insert([{"k0": f"host-{i % 50}", "k1": i, "need": i} for i in range(3000)])
        table.flush()
        table.update([{"k0": "host-7", "k1": 7, "need": 70}])
        table.insert([{"k0": "new", "k1": 1, "need": 1}])

        def refuse(*_: Any) -> None:
            raise AssertionError("the general path")

        monkeypatch.setattr(points, "_get_general", refuse)
        for i in range(0, 3000, 7):
            row = table.get((f"host-{i % 50}", i))
            assert row is not None and row["need"] == (70 if i == 7 else i)
        assert table.get(("host-7", 7)) == {**table.get({"k0": "host-7", "k1": 7}), "need": 70}  # type: ignore[dict-item]
        assert table.get(("new", 1), ["need"]) == {"need": 1}
        for absent in [("host-1", 0), ("host", 1), ("zzz", 1), ("", 0), ("host-1", -(2**63))]:
            assert table.get(absent) is None


@pytest.mark.parametrize(
    "key",
    [
        None,
        (),
        ("a",),
        ("a", 1, 2),
        ("a", None),
        ("a", "b"),
        ("a", 1.0),
        {"k0": "a"},
        {"k0": "a", "x": 1},
        ["a", 1],
        "a",
        (b"a", 1),
        ("a", 2**63),
    ],
)
def test_a_bad_key_is_the_general_paths_to_refuse(tmp_path: Path, key: Any) -> None:
    with make(tmp_path / "t", ("string", "int64"), ManualClock()) as table:
        table.insert([{"k0": "a", "k1": 1, "need": 1}])
        outcomes: list[Any] = []

        def general(k: Any) -> Any:
            engine = engine_of(table)
            return points._get_general(engine, k, engine.schema.columns, table.timestamp)

        for read in (
            table.get,
            general,
        ):
            try:
                outcomes.append((None, read(key)))
            except kc.KuduError as error:
                outcomes.append((type(error), str(error)))
        assert outcomes[0] == outcomes[1]


def test_pages_leave_with_the_cache(tmp_path: Path) -> None:
    """What point reads hold is what the cache holds, whoever looked last."""
    with make(tmp_path / "t", ("int64",), ManualClock(), page_cache_bytes=1 << 20) as table:
        r = random.Random(1)
        table.insert(
            {
                "k0": list(range(60_000)),
                "need": [r.getrandbits(60) for _ in range(60_000)],
                "v11": [f"{r.random()}" for _ in range(60_000)],
            }
        )
        table.flush()
        rowset = rowsets_of(table)[0]
        points_ = rowset.base.open().points
        cache = rowset.base.cache
        assert cache is not None
        for _ in range(2000):
            k = r.randrange(60_000)
            row = table.get(k)
            assert row is not None and row["k0"] == k
            assert points_.pages <= cache.statistics().pages
        assert points_.pages > 0
    with pytest.raises(NeedsGeneralPath):
        points_.find(b"12345678", 0)


REFUSED = "the general path"


def refuse(*_: Any) -> None:
    raise AssertionError(REFUSED)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_store_is_read_by_the_row_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, layout: str
) -> None:
    """Overlapping rowsets, REDO and UNDO files, DeltaMemStores, deleted and reinserted rows, at any time."""
    r = random.Random(layout)
    key_types = ("string", "int64")
    states: list[tuple[int, dict[tuple[str, int], dict[str, Any]]]] = []
    model: dict[tuple[str, int], dict[str, Any]] = {}
    keys = [(f"host-{i % 9}", i % 40) for i in range(200)]
    with make(tmp_path / "t", key_types, ManualClock(), layout) as table:
        defaults = dict.fromkeys(table.schema.names) | {"must": 7}
        takes = [key for key in keys if has_tablet(table, key)]
        for step in range(930):
            key = r.choice(takes)
            row: dict[str, Any] = {"k0": key[0], "k1": key[1]}
            if key in model and r.random() < 0.3:
                table.delete([row])
                del model[key]
            else:
                row |= {"need": step, r.choice(["v3", "v11", "v16"]): None}
                row |= {"v9": r.random(), "v11": f"text {step}"} if r.random() < 0.5 else {}
                table.upsert([row])
                model[key] = {**model.get(key, defaults), **row}
            if step % 60 == 59:
                table.flush()
            if step % 45 == 44:
                states.append((table.timestamp, {k: dict(v) for k, v in model.items()}))
        rowsets = all_rowsets_of(table)
        assert any(rowset.undo for rowset in rowsets), "no UNDO file"
        assert any(isinstance(s, DeltaStore) for rowset in rowsets for s in rowset.redo), "no REDO file"
        assert any(rowset.memory_stores for rowset in rowsets), "no DeltaMemStore"
        assert max(len(t.view.rowsets) for t in tablets_of(table)) > 3
        monkeypatch.setattr(points, "_get_general", refuse)
        for at, state in [*states, (table.timestamp, model)]:
            for key in keys:
                assert same(table.get(key, at=at), state.get(key)), (key, at)
        assert table.get(keys[0]) == model.get(keys[0])
        with table.snapshot(states[3][0]) as snapshot:
            assert [snapshot.get(key) for key in keys] == [states[3][1].get(key) for key in keys]
    monkeypatch.undo()
    with kc.open_table(tmp_path / "t") as reader:
        monkeypatch.setattr(points, "_get_general", refuse)
        assert [reader.get(key) for key in keys] == [model.get(key) for key in keys]


def has_tablet(table: kc.Table, key: tuple[str, int]) -> bool:
    engine = engine_of(table)
    encoded = engine.schema.row_codec.keys.encode(key)
    assert encoded is not None
    return points.tablet_of_key(engine, encoded) is not None


@pytest.mark.parametrize("layout", LAYOUTS)
def test_writes_of_flushed_rows_take_the_row_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, layout: str
) -> None:
    with make(tmp_path / "t", ("string", "int64"), ManualClock(), layout) as table:
        keys = [k for i in range(300) if has_tablet(table, k := (f"host-{i % 7}", i % 41))]
        rows_ = {k: {"k0": k[0], "k1": k[1], "need": i} for i, k in enumerate(keys)}
        table.insert(list(rows_.values()))
        table.flush()
        monkeypatch.setattr(table_module, "write_calls", refuse)
        for n, (h, t) in enumerate(rows_):
            key = {"k0": h, "k1": t}
            assert table.update([{**key, "need": -n}]).counts == (0, 1, 0, 0)
            assert table.upsert([{**key, "v3": n}]).counts == (0, 1, 0, 0)
            assert table.insert([{**key, "need": 5}], on_conflict="ignore").counts == (0, 0, 0, 1)
            row = table.get((h, t))
            assert row is not None and (row["need"], row["v3"]) == (-n, n)
            assert table.delete([key]).counts == (0, 0, 1, 0)
            assert table.get((h, t)) is None
            assert table.delete([key], on_missing="ignore").counts == (0, 0, 0, 1)
            assert table.update([{**key, "need": 1}], on_missing="ignore").counts == (0, 0, 0, 1)
            assert table.insert([{**key, "need": n}]).counts == (1, 0, 0, 0)
            assert table.update([{**key, "need": n + 1}]).counts == (0, 1, 0, 0)
            assert table.get((h, t), ["need"]) == {"need": n + 1}
        assert table.count() == len(rows_)


def test_a_reader_refuses_writes_and_a_closed_table_everything(tmp_path: Path) -> None:
    row = {"k0": "a", "k1": 1, "need": 1}
    table = make(tmp_path / "t", ("string", "int64"), ManualClock())
    table.insert([row])
    table.close()
    for call in (
        lambda: table.get(("a", 1)),
        lambda: table.get_many([("a", 1)]),
        lambda: table.insert([row]),
        lambda: table.delete([{"k0": "a", "k1": 1}]),
    ):
        with pytest.raises(kc.Closed):
            call()
    with kc.open_table(tmp_path / "t") as reader:
        assert reader.get(("a", 1), ["need"]) == {"need": 1}
        with pytest.raises(kc.ReadOnly):
            reader.insert([row])


def test_after_a_fork_the_row_path_raises(tmp_path: Path) -> None:
    row = {"k0": "a", "k1": 1, "need": 1}
    with make(tmp_path / "t", ("string", "int64"), ManualClock()) as table:
        table.insert([row])
        table.flush()
        assert table.get(("a", 1)) is not None
        with tablet_of(table).mutex:  # held in the child by nobody
            child = os.fork()
            if child == 0:
                outcome = 1
                try:
                    for call in (lambda: table.get(("a", 1)), lambda: table.update([{**row, "need": 2}])):
                        with pytest.raises(kc.Closed):
                            call()
                    outcome = 0
                finally:
                    os._exit(outcome)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert table.get(("a", 1), ["need"]) == {"need": 1}


def test_a_get_whose_snapshot_falls_behind_the_horizon_reads_again(tmp_path: Path) -> None:
    """An operation that drops history raises the floor between the choice of a snapshot and the view."""
    with make(tmp_path / "t", ("string", "int64"), ManualClock()) as table:
        first = table.insert([{"k0": "a", "k1": 1, "need": 1}]).timestamp
        engine = engine_of(table)
        usual = engine.tablets
        steps: list[int] = []

        class Tablets(list[Any]):
            """The moment after the snapshot was chosen."""

            def __getitem__(self, index: Any) -> Any:
                if not steps:
                    steps.append(1)
                    engine.tablets = usual
                    table.update([{"k0": "a", "k1": 1, "need": 2}])
                    engine.pins.floor = table.timestamp
                return usual[index]

        engine.tablets = Tablets(usual)
        assert table.get(("a", 1), ["need"]) == {"need": 2}
        assert steps
        for call in (table.get, table.get_many):
            key: Any = ("a", 1) if call == table.get else [("a", 1)]
            with pytest.raises(kc.SnapshotTooOld):
                call(key, at=first)


def test_a_damaged_page_is_the_same_corruption_on_both_paths(tmp_path: Path) -> None:
    with make(tmp_path / "t", ("string", "int64"), ManualClock()) as table:
        table.insert([{"k0": f"host-{i % 5}", "k1": i, "need": i} for i in range(500)])
        table.flush()
        table.update([{"k0": "host-1", "k1": 1, "need": 9}])
        table.flush()
    for kind in ("rows", "delta"):
        path = next((tmp_path / "t" / "tablets").rglob(f"*.{kind}"))
        whole = path.read_bytes()
        answers = {"right": 0, "corrupt": 0}
        for at in range(40, len(whole) - 24, max(1, len(whole) // 40)):
            path.write_bytes(whole[:at] + bytes([whole[at] ^ 0x10]) + whole[at + 1 :])
            outcomes: list[Any] = []
            for fast in (True, False):
                try:
                    with kc.open_table(tmp_path / "t") as table:
                        engine = engine_of(table)
                        if fast:
                            outcomes.append(table.get(("host-1", 1)))
                        else:
                            outcomes.append(
                                points._get_general(
                                    engine, ("host-1", 1), engine.schema.columns, table.timestamp
                                )
                            )
                except kc.Corruption as error:
                    outcomes.append((error.path, "corrupt"))
            if all(isinstance(o, dict) for o in outcomes):
                assert outcomes[0] == outcomes[1] and outcomes[0]["need"] == 9
                answers["right"] += 1
            else:
                # One of the two may need a piece of the file that the other does not read.
                assert all(isinstance(o, tuple) or o["need"] == 9 for o in outcomes)
                assert {o[0] for o in outcomes if isinstance(o, tuple)} == {str(path)}
                answers["corrupt"] += 1
        path.write_bytes(whole)
        assert answers["corrupt"], answers


def test_columns_that_a_compaction_rewrote_take_the_row_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They lie in files of their own, which the cache tells about their pages."""
    with make(tmp_path / "t", ("string", "int64"), ManualClock(), page_cache_bytes=1 << 20) as table:
        table.insert([{"k0": f"host-{i % 5}", "k1": i, "need": i, "v3": i} for i in range(2000)])
        before = table.timestamp
        table.flush()
        table.update([{"k0": f"host-{i % 5}", "k1": i, "need": -i} for i in range(0, 2000, 3)])
        table.flush()
        table.compact(full=True)
        rowset = rowsets_of(table)[0]
        assert rowset.meta.replaced
        monkeypatch.setattr(points, "_get_general", refuse)
        for at, sign in ((None, -1), (before, 1)):
            for i in range(2000):
                row = table.get((f"host-{i % 5}", i), ["need", "v3"], at=at)
                assert row == {"need": i if i % 3 else sign * i, "v3": i}
        file = rowset.base.open().points
        table.close()
        others = held_by(file)
        assert others and all(holder.closed for holder in others) and file.closed


def held_by(file: Any) -> list[Any]:
    """Who else holds pages for the file."""
    return [other for other in gc.get_referents(file) if isinstance(other, PageHolder)] + [
        other
        for part in gc.get_referents(file)
        if isinstance(part, list)
        for other in part
        if isinstance(other, PageHolder)
    ]


def test_many_keys_in_any_mixture(tmp_path: Path) -> None:
    """None, absent, repeated, of several stores, and all of one store in order."""
    with make(tmp_path / "t", ("string", "int64"), ManualClock(), "both") as table:
        for first in (0, 100):
            table.insert([{"k0": f"host-{i % 5}", "k1": i, "need": i} for i in range(first, first + 100)])
            table.flush()
        table.update([{"k0": "host-0", "k1": 0, "need": 1000}])
        table.insert([{"k0": "new", "k1": 1, "need": 2000}])
        known = {(f"host-{i % 5}", i): i for i in range(200)} | {("host-0", 0): 1000, ("new", 1): 2000}
        absent = [("host-1", 0), ("", 7)]
        for keys in (
            [],
            absent,
            [("host-0", 0)],
            [("host-0", 0)] * 3,
            [("host-0", 0), *absent, ("host-0", 0), ("new", 1), ("host-4", 199)],
            list(known),
            list(reversed(known)),
        ):
            many = table.get_many(keys, ["need", "k1"])
            assert many["need"].to_pylist() == [known.get(key) for key in keys]
            assert many["k1"].to_pylist() == [key[1] for key in keys]
            assert many["_found"].to_pylist() == [key in known for key in keys]
