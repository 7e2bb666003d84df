"""Rows of a merge that do not fit into memory wait in a file, and are decided a part at a time."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import kudu_core as kc
from kudu_core.table.merge.merge_source import MergeSource, SourcePart
from kudu_core.table.merge.spooled import SpooledRows

SCHEMA = pa.schema([("k", pa.int64()), ("n", pa.int64()), ("s", pa.string())])
ROWS = 60_000
MEMORY = 32 << 20
"""The limit; a quarter of it holds some 40,000 of the rows that are given."""


@pytest.fixture
def table(tmp_path: Path) -> Iterator[kc.Table]:
    with kc.create_table(tmp_path / "t", SCHEMA, "k", options={"memory_limit_bytes": MEMORY}) as table:
        table.insert(pa.table({"k": np.arange(0, ROWS, 2), "n": np.zeros(ROWS // 2, int)}))
        yield table


def given(*, twice: bool = False) -> pa.RecordBatchReader:
    def batches() -> Iterator[pa.RecordBatch]:
        for first in (*range(0, ROWS, 5000), *([0] if twice else [])):
            keys = np.arange(first, first + 5000)
            yield pa.record_batch({"k": keys, "x": keys * 10 + twice, "s": pa.array(["x" * 200] * 5000)})

    return pa.RecordBatchReader.from_batches(next(batches()).schema, batches())


def all_clauses(merge: kc.Merge) -> kc.Merge:
    merge = merge.when_matched_delete(where=kc.new("x") < 1000)
    merge = merge.when_matched({"n": kc.old("n") + kc.new("x")}, where=kc.new("x") < 500_000)
    return merge.when_not_matched_insert({"n": kc.new("x")}, where=kc.new("x") >= 100_000)


def expected() -> dict[int, int]:
    rows = dict.fromkeys(range(0, ROWS, 2), 0)
    for key in range(ROWS):
        if key not in rows:
            if key >= 10_000:
                rows[key] = key * 10
        elif key * 10 < 1000:
            del rows[key]
        elif key * 10 < 500_000:
            rows[key] = key * 10
    return rows


def rows_of(table: kc.Table) -> dict[int, int]:
    found = table.scan(["k", "n"]).to_table()
    return dict(zip(found["k"].to_pylist(), found["n"].to_pylist(), strict=True))


def test_they_wait_in_a_file_and_are_decided_in_parts(
    table: kc.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept: list[int] = []
    parts: list[int] = []
    add, made = SpooledRows.add, SourcePart.__init__

    def adding(spooled: SpooledRows, part: Any) -> None:
        kept.append(part.batch.num_rows)
        add(spooled, part)

    def making(part: SourcePart, schema: Any, conformed: Any, numbers: Any) -> None:
        parts.append(conformed.block.nbytes)
        made(part, schema, conformed, numbers)

    monkeypatch.setattr(SpooledRows, "add", adding)
    monkeypatch.setattr(SourcePart, "__init__", making)
    done = all_clauses(table.merge(given())).execute(txn=("app", 1))
    assert sum(kept) == ROWS and max(parts) < MEMORY // 2 and len(parts) > 1
    assert rows_of(table) == expected()
    assert sum(done.clauses) == done.inserted + done.updated + done.deleted
    assert done.ignored == ROWS - sum(done.clauses)
    staging = Path(table.path) / "staging"
    assert not staging.exists() or not list(staging.iterdir()), "nothing of the file is left"
    again = all_clauses(table.merge(given())).execute(txn=("app", 1))
    assert again.deduplicated and again.counts[:3] == done.counts[:3]


def test_a_table_in_memory_is_not_written_down(table: kc.Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever gives it holds it anyway."""
    monkeypatch.delattr(SpooledRows, "add")
    assert all_clauses(table.merge(given().read_all())).execute().ignored > 0
    assert rows_of(table) == expected()


def test_repeated_keys_far_apart_are_seen(table: kc.Table) -> None:
    with pytest.raises(kc.RowErrors, match="10000 duplicate_in_batch") as refused:
        table.merge(given(twice=True)).when_matched({"n": 1}).when_not_matched_insert({"n": 1}).execute()
    assert set(refused.value.errors["row"].to_pylist()) <= {*range(5000), *range(ROWS, ROWS + 5000)}
    assert rows_of(table) == dict.fromkeys(range(0, ROWS, 2), 0)


def test_the_last_of_rows_far_apart_counts(table: kc.Table) -> None:
    first = given().read_all()
    later = first.slice(0, 5000).set_column(1, "x", pa.array(np.arange(5000) * 10 + 7))
    both = pa.RecordBatchReader.from_batches(
        first.schema, iter([*first.to_batches(max_chunksize=5000), *later.to_batches()])
    )
    merge = table.merge(both, on_duplicate="last", sequence_by="x").when_matched({"n": kc.new("x")})
    assert merge.execute().updated == ROWS // 2
    assert rows_of(table) == {key: key * 10 + 7 * (key < 5000) for key in range(0, ROWS, 2)}


def test_what_fails_on_the_way_leaves_nothing(table: kc.Table) -> None:
    def broken() -> Iterator[pa.RecordBatch]:
        yield from given()
        raise ZeroDivisionError

    reader = pa.RecordBatchReader.from_batches(given().schema, broken())
    with pytest.raises(ZeroDivisionError):
        all_clauses(table.merge(reader)).execute()
    with pytest.raises(kc.InvalidArgument, match="when_matched"):
        table.merge(given()).when_matched({"n": kc.new("x") / (kc.new("x") - 555_560)}).execute()
    assert rows_of(table) == dict.fromkeys(range(0, ROWS, 2), 0)
    assert not MergeSource([], {}).is_large
