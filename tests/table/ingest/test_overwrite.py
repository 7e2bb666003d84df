"""All rows replaced at once (protocol G7): what is there after it and before it, and what is refused."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import kudu_core as kc
from kudu_core.table.ingest import overwrite as walk
from kudu_core.table.jobs import commit
from kudu_core.table.jobs.resolve import resolve
from tests.support.faults import checking
from tests.support.inside import engine_of, handle_of
from tests.support.models.altering import Altering
from tests.support.models.overwriting import (
    MANUAL,
    NEW,
    OLD,
    SCHEMA,
    data,
    directories,
    found,
    overwrite,
    reads,
    staged,
)
from tests.support.staged import waiting

# ------------------------------------------------------------------------------------- what is there


@pytest.mark.parametrize("flushed", [True, False])
def test_new_rows_are_in_the_place_of_all(table: kc.Table, flushed: bool) -> None:
    if flushed:
        table.flush()
    before = table.timestamp
    pinned, scan, tokens = table.snapshot(), table.scan(), table.scan_tokens()
    result = overwrite(table, data(NEW), attempts=2)
    assert result.counts == (len(NEW), 0, 0, 0) and result.timestamp > before
    table.upsert({"k": [4, 20], "v": ["later", "later"]})
    later = NEW | {4: "later", 20: "later"}
    for mode in ("as it is", "rw", "r"):
        if mode != "as it is":
            table.close()
            table = kc.open_table(table.path, mode)
        reads(table, before, OLD)
        reads(table, result.timestamp, NEW)
        reads(table, result.timestamp - 1, OLD)
        assert found(table.scan()) == later
        table.verify()
        if mode == "as it is":
            assert found(scan) == found(pinned.scan()) == OLD
            assert {k: v for t in tokens for k, v in found(table.scan_token(t)).items()} == OLD
            pinned.close()
    table.close()


def test_changes_tell_what_went_what_came_and_what_is_another(table: kc.Table) -> None:
    """One change for each key at the time of the overwrite, also of a row that is what it was."""
    start = table.timestamp
    table.update({"k": [3], "v": ["new"]})
    ts = overwrite(table, data(NEW)).timestamp
    end = table.upsert({"k": [3], "v": ["end"]}).timestamp
    for _ in range(2):
        wanted = {
            **dict.fromkeys(range(3), ("delete", None)),
            **dict.fromkeys(range(3, 6), ("update", "new")),
            **dict.fromkeys(range(6, 9), ("insert", "new")),
        }
        told = [r for r in table.changes(start, images="both").to_pylist() if r["_timestamp"] == ts]
        assert len(told) == 9 and {r["k"]: (r["_op"], r["v"]) for r in told} == wanted
        before = {r["k"]: r["_before"] and r["_before"]["v"] for r in told}
        assert before == OLD | {3: "new"} | dict.fromkeys(range(6, 9))
        keys = table.changes(ts - 1, ts, columns=["k"]).to_pylist()
        assert {r["k"]: r["_op"] for r in keys} == {k: op for k, (op, _) in wanted.items()}
        some = table.changes(ts - 1, where=pc.field("v") == "old").to_pylist()
        assert {r["k"] for r in some} == {*range(3)}
        net = {r["k"]: (r["_op"], r["v"]) for r in table.changes(start, ts, net=True).to_pylist()}
        assert net == wanted
        # Net, a row that is what it was has not changed; a window ends before it, or begins at it.
        assert {r["k"] for r in table.changes(ts - 1, ts, net=True).to_pylist()} == {*range(3), *range(4, 9)}
        assert [r["k"] for r in table.changes(start, ts - 1).to_pylist()] == [3]
        assert [(r["_op"], r["v"]) for r in table.changes(ts).to_pylist()] == [("update", "end")]
        first = table.changes(None, ts, net=True).to_pylist()
        assert {r["k"]: r["v"] for r in first} == NEW
        assert table.changes(since=end).to_table().num_rows == 0
        path = table.path
        table.close()
        table = kc.open_table(path, "rw")
    table.close()


def test_a_backup_goes_on_over_an_overwrite(hashed: kc.Table, tmp_path: Path) -> None:
    folder = str(tmp_path / "backup")
    full = hashed.backup(folder)
    overwrite(hashed, data(NEW))
    hashed.backup(folder, since=full)
    with kc.restore(folder, str(tmp_path / "restored")) as again:
        assert found(again.scan()) == NEW


def test_nothing_in_the_place_of_all(table: kc.Table) -> None:
    before = table.timestamp
    assert overwrite(table, data({})).counts == (0, 0, 0, 0)
    assert table.count() == 0 and found(table.scan(at=before)) == OLD
    assert overwrite(table, data({})).timestamp > before
    table.insert(data(NEW))
    path = table.path
    table.close()
    with kc.open_table(path) as reader:
        reads(reader, None, NEW)


@pytest.mark.parametrize("number", range(3))
def test_a_table_that_is_overwritten_and_altered(number: int, tmp_path: Path, seed: int, long: bool) -> None:
    case = seed * 1000 + number
    print(f"case {case}; run again with --seed={seed}")
    rng = random.Random(case)
    options = MANUAL | {"scan_threads": 1, "history_retention_s": None, "ingest_threshold_rows": 5}
    with checking(number == 0):
        path = str(tmp_path / "t")
        model, table = Altering.begin(path, hashed=rng.random() < 0.5, options=options)
        for step in range(400 if long else 24):
            kind = rng.random()
            if kind < 0.4:
                model.write(rng, table, rng.choice((1, 3, 12)))
            elif kind < 0.6:
                model.overwrite(rng, table, rng.choice((1, 12)))
            elif kind < 0.75:
                model.alter(rng, table, most=3)
            elif kind < 0.85:
                table.flush()
            elif kind < 0.9:
                table.compact(full=rng.random() < 0.5)
            elif kind < 0.95:
                with kc.open_table(path) as reader:
                    model.check(rng, reader)
                    model.check_tokens(rng, reader)
            else:
                table.close()
                table = kc.open_table(path, "rw")
            if step % 6 == 0:
                model.check(rng, table)
                model.check_tokens(rng, table)
        table.close()
        with kc.open_table(path, "rw") as table:
            model.check(rng, table, looks=10)
            table.verify()


# ------------------------------------------------------------------------------------- refused, repeated


def test_rows_that_are_refused_leave_everything_as_it_was(table: kc.Table) -> None:
    before, there = table.timestamp, directories(table)
    twice = pa.concat_tables([data(NEW), data({4: "twice"})])
    with pytest.raises(kc.RowErrors) as caught:
        overwrite(table, twice, attempts=2)
    assert 'on_duplicate="last"' in str(caught.value) and "_ignore" not in str(caught.value)
    assert [error["key"] for error in caught.value.errors.to_pylist()] == [{"k": 4}]
    if engine_of(table).partitions.range_ids:
        with pytest.raises(kc.RowErrors, match="no_partition"):
            overwrite(table, data({-1: "nowhere"}))
    assert (table.timestamp, directories(table)) == (before, there)
    assert waiting(table.path) == []
    result = overwrite(table, twice, attempts=2, on_duplicate="last", sequence_by="v")
    assert result.inserted == len(NEW) and found(table.scan()) == NEW | {4: "twice"}
    for operation in ("insert_ignore", "update", "delete", "apply"):
        with pytest.raises(kc.InvalidArgument, match='"insert" or "upsert", not'):
            staged(table, data(NEW), operation=operation)


def test_a_token_makes_it_once(hashed: kc.Table) -> None:
    first = overwrite(hashed, data(NEW), txn=("nightly", 7))
    assert overwrite(hashed, data(NEW), txn=("nightly", 7)).deduplicated
    hashed.insert({"k": [50], "v": ["x"]})
    hashed.close()
    with kc.open_table(hashed.path, "rw") as table:
        again = overwrite(table, data(NEW), txn=("nightly", 7))
        assert again.deduplicated and (again.timestamp, again.counts) == (first.timestamp, first.counts)
        assert found(table.scan()) == NEW | {50: "x"}
        assert overwrite(table, data({1: "next"}), txn=("nightly", 8)).inserted == 1
        assert found(table.scan()) == {1: "next"}


def test_one_that_found_the_table_locked_is_made_later(hashed: kc.Table) -> None:
    job, runs = staged(hashed, data(NEW), lock_timeout_s=0.0)
    with pytest.raises(kc.Locked):
        commit.commit_job(job, runs)
    hashed.insert({"k": [50], "v": ["x"]})
    assert commit.resume(hashed.path, job.id, handle_of(hashed)).inserted == len(NEW)
    assert found(hashed.scan()) == NEW


@pytest.mark.parametrize("change", [None, "range", "columns", "overwritten"])
def test_what_tasks_have_resolved_is_taken_in_where_it_still_fits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str | None
) -> None:
    """Two tablets by one task; runs that overlap, so that they are merged, and such that are adopted."""
    cut = [kc.HashPartition("k", 2), kc.RangePartition("k", [(0, 1000)])]
    with kc.create_table(str(tmp_path / "t"), SCHEMA, "k", partition_by=cut, options=MANUAL) as table:
        table.insert(data(OLD))
        job, runs = staged(table, data(dict.fromkeys(range(200), "new")), attempts=2)
        with kc.open_table(table.path) as reader:
            resolutions = resolve(handle_of(reader), job, commit.form_of(job), runs)
        assert [(r.tablet_id, r.ordinal) for r in resolutions] == [(0, 0), (0, 1)]
        assert [r.counts[0] > 80 and r.counts[1:] == (0, 0, 0) for r in resolutions] == [True, True]
        if change == "range":
            table.alter(add_range=(2000, 3000))
        elif change == "columns":
            table.alter(add=[kc.Column("n", "int32", False, default=7)])
        elif change == "overwritten":
            overwrite(table, data({1: "between"}))
        built: list[int] = []
        real = walk.build_parts

        def build(engine: Any, rows: Any, parts: Any, *args: Any, **more: Any) -> Any:
            built.append(sum(part.tablet.partition.ordinal < 2 for part in parts))
            return real(engine, rows, parts, *args, **more)

        monkeypatch.setattr(walk, "build_parts", build)
        assert commit.commit_job(job, runs, handle_of(table), resolutions).counts == (200, 0, 0, 0)
        assert built == [2 if change in ("range", "columns") else 0]
        assert {(r["k"], r["v"], r.get("n", 7)) for r in table.scan().to_pylist()} == {
            (k, "new", 7) for k in range(200)
        }
        table.verify()


@pytest.mark.parametrize("over", [{5: "over", 7: "over", 500: "over"}, {500: "over"}])
def test_a_job_resolved_for_tablets_that_were_overwritten_is_decided_anew(
    hashed: kc.Table, over: dict[int, str]
) -> None:
    job, runs = staged(hashed, data(NEW | dict.fromkeys(range(100, 150), "new")), overwrite=False)
    with kc.open_table(hashed.path) as reader:
        resolutions = resolve(handle_of(reader), job, commit.form_of(job), runs)
    overwrite(hashed, data(over))
    updated = len(over) - 1
    result = commit.commit_job(job, runs, handle_of(hashed), resolutions)
    assert result.counts == (56 - updated, updated, 0, 0)
    assert found(hashed.scan()) == NEW | dict.fromkeys(range(100, 150), "new") | {500: "over"}
