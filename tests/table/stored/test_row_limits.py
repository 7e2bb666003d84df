"""Keys of up to 16 KiB and rows of up to 64 MiB, by every door: taken and read back, or refused by a code."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import kudu_core as kc
from kudu_core.common.types.keycodec import MAX_KEY_BYTES
from kudu_core.table.calls import call
from kudu_core.table.jobs import commit
from tests.support.bulk import small_runs
from tests.support.inside import handle_of
from tests.support.models.overwriting import staged

SCHEMA = pa.schema([("k", pa.binary()), ("s", pa.string())])
LOG = {"maintenance": "manual", "file_grace_s": 0, "durability": "none"}
FILES = LOG | {"ingest_threshold_rows": 1}
LOWERED_ROW_BYTES = 2 << 20
"""Above what the path of one row takes, which is below the real limit."""

Rows = dict[str, list[Any]]


def dicts(rows: Rows) -> list[dict[str, Any]]:
    return [dict(zip(rows, cells, strict=True)) for cells in zip(*rows.values(), strict=True)]


def arrow(rows: Rows) -> pa.Table:
    return pa.table({name: pa.array(cells, SCHEMA.field(name).type) for name, cells in rows.items()})


def mixed(rows: Rows) -> pa.Table:
    return arrow(rows).append_column("_op", pa.array(["upsert"] * len(rows["k"])))


def in_a_batch(table: kc.Table, rows: Rows) -> kc.WriteResult:
    with table.batch() as batch:
        for row in dicts(rows):
            batch.upsert([row])
    assert batch.result is not None
    return batch.result


def in_pieces(table: kc.Table, rows: Rows) -> kc.WriteResult:
    data = arrow(rows)
    return table.insert(data.slice(i, 1).to_batches()[0] for i in range(data.num_rows))


def by_a_job(table: kc.Table, rows: Rows, resolved: bool, overwrite: bool = False) -> kc.WriteResult:
    job, runs = staged(table, arrow(rows), overwrite=overwrite)
    from kudu_core.table.jobs.resolve import resolve

    found = resolve(handle_of(table), job, commit.form_of(job), runs) if resolved else []
    return commit.commit_job(job, runs, handle_of(table), found)


DOORS: dict[str, tuple[dict[str, Any], Callable[[kc.Table, Rows], object]]] = {
    "one row": (LOG, lambda table, rows: [table.upsert([row]) for row in dicts(rows)]),
    "dicts": (LOG, lambda table, rows: table.insert(dicts(rows))),
    "columns": (LOG, lambda table, rows: table.upsert(rows)),
    "arrow": (LOG, lambda table, rows: table.insert(arrow(rows))),
    "apply": (LOG, lambda table, rows: table.apply(mixed(rows))),
    "batch": (LOG, in_a_batch),
    "ingest": (FILES, lambda table, rows: table.insert(arrow(rows))),
    "pieces": (LOG, in_pieces),
    "spilled": (FILES, in_pieces),
    "job": (FILES, lambda table, rows: by_a_job(table, rows, resolved=False)),
    "job, resolved": (FILES, lambda table, rows: by_a_job(table, rows, resolved=True)),
    "job, through the log": (LOG, lambda table, rows: by_a_job(table, rows, resolved=False)),
    "overwrite": (FILES, lambda table, rows: by_a_job(table, rows, resolved=False, overwrite=True)),
}


@pytest.fixture(params=DOORS)
def door(request: pytest.FixtureRequest) -> Iterator[str]:
    with small_runs(spill=True, run_rows=1) if request.param == "spilled" else nullcontext():
        yield request.param


def check(path: Path, wanted: Rows) -> None:
    with kc.open_table(path) as reader:
        reader.verify()
        rows = dict(zip(wanted["k"], wanted["s"], strict=True))
        assert {row["k"]: row["s"] for row in reader.scan().to_pylist()} == rows
        for key, cell in rows.items():
            assert reader.get((key,), ["s"]) == {"s": cell}


def through(door: str, path: Path, good: Rows, bad: Rows) -> None:
    options, write = DOORS[door]
    with kc.create_table(path, SCHEMA, "k", options=options) as table:
        with pytest.raises(kc.RowErrors) as refused:
            write(table, bad)
        assert set(refused.value.errors["code"].to_pylist()) == {"too_large"}
        assert table.count() == 0
        write(table, good)
    check(path, good)
    with kc.open_table(path, "rw") as table:
        table.flush()
        table.upsert({"k": good["k"], "s": [cell[:-1] + "y" for cell in good["s"]]})
        table.flush()
        table.compact(full=True)
    check(path, good | {"s": [cell[:-1] + "y" for cell in good["s"]]})


def test_a_key_through_every_door(tmp_path: Path, door: str) -> None:
    """Of one column as it is; of several with what the encoding adds."""
    good = {"k": [b"a" * MAX_KEY_BYTES, b"b"], "s": ["x", "yy"]}
    bad = {"k": [b"b", b"a" * (MAX_KEY_BYTES + 1)], "s": ["x", "yy"]}
    if door in ("one row",):
        bad = {"k": bad["k"][1:], "s": bad["s"][1:]}
    through(door, tmp_path / "t", good, bad)


def test_a_row_through_every_door(
    tmp_path: Path, door: str, long: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    most = call.MAX_ROW_BYTES if long else LOWERED_ROW_BYTES
    monkeypatch.setattr(call, "MAX_ROW_BYTES", most)
    good = {"k": [b"a", b"b"], "s": ["x" * (most - 1), "yy"]}
    bad = {"k": [b"b", b"a"], "s": ["x", "x" * most]}
    if door == "one row":
        bad = {"k": bad["k"][1:], "s": bad["s"][1:]}
    through(door, tmp_path / "t", good, bad)


def test_a_key_of_several_columns(tmp_path: Path) -> None:
    """Each byte 0 of a string that is not the last takes two, and its end two more."""
    schema = pa.schema([("a", pa.binary()), ("b", pa.int64()), ("v", pa.int8())])
    fits = (MAX_KEY_BYTES - 8 - 2) // 2
    with kc.create_table(tmp_path / "t", schema, ["a", "b"], options=LOG) as table:
        for way in (
            lambda row: table.insert([row]),
            lambda row: table.insert({n: [c] for n, c in row.items()}),
        ):
            way({"a": bytes(fits), "b": len(table.scan().to_pylist()), "v": 1})
            with pytest.raises(kc.RowErrors, match="too_large"):
                way({"a": bytes(fits + 1), "b": 7, "v": 1})
        table.flush()
        assert table.count() == 2 and table.get((bytes(fits), 1))["v"] == 1
    with kc.open_table(tmp_path / "t") as reader:
        reader.verify()
        assert reader.count() == 2


def test_rows_that_a_condition_makes_too_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(call, "MAX_ROW_BYTES", 1000)
    with kc.create_table(tmp_path / "t", SCHEMA, "k", options=LOG) as table:
        table.insert({"k": [b"a", b"b"], "s": ["x", "y"]})
        table.update(where=pc.field("s") == "x", set={"s": "z" * 999})
        rows = table.scan(order="key").to_pylist()
        assert rows[0]["s"] == "z" * 999
        with pytest.raises(kc.RowErrors, match="too_large"):
            table.update(where=pc.field("s") == "y", set={"s": "z" * 1000})
        assert table.scan(order="key").to_pylist() == rows
    with kc.open_table(tmp_path / "t") as reader:
        assert reader.scan(order="key").to_pylist() == rows
