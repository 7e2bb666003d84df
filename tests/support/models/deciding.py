"""Random writes that look at the rows that are there: merges, conditional writes and batches that read.

Each is sent, and what it must come to is in the history beforehand, as plain operations.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

import kudu_core as kc
from tests.support.models.history import SCHEMA, Batch, History, random_rows

Decide = Callable[[kc.Table, History, random.Random, Sequence[int], int], None]


def _rows_of(history: History, keys: Sequence[int]) -> dict[int, Any]:
    """``a`` of the rows that are there."""
    model = history.model
    return {key: model[(key,)][0] for key in keys if (key,) in model}


def _sent(history: History, batch: Batch, send: Callable[[], Any]) -> None:
    history.begin([(op, rows) for op, rows in batch if rows])
    history.acknowledge(send().timestamp)


def merge(table: kc.Table, history: History, rng: random.Random, keys: Sequence[int], rows: int) -> None:
    """Rows with a larger ``a`` are deleted, others get the new columns, new ones are inserted; rows that are
    not given, of the first keys, get a value or go."""
    given = random_rows(rng, keys, min(rows, len(keys)))
    there = _rows_of(history, keys)
    first = sorted(keys)[: len(keys) // 4]
    mine = {row["k"] for row in given}
    larger = [r for r in given if r["k"] in there and _less(r["a"], there[r["k"]])]
    others = [r for r in given if r["k"] in there and r not in larger]
    left = [key for key in there if key not in mine and key in first]
    gone = [key for key in left if there[key] is None]

    def send() -> kc.MergeResult:
        merge = table.merge(pa.Table.from_pylist(given, schema=SCHEMA))
        merge.when_matched_delete(where=kc.old("a") > kc.new("a")).when_matched()
        merge.when_not_matched_insert()
        among = kc.old("k").isin(pa.array(first, pa.int64()))
        merge.when_not_matched_by_source_delete(where=among & kc.old("a").is_null())
        return merge.when_not_matched_by_source_update({"a": kc.old("a") + 1}, where=among).execute()

    batch: Batch = [
        ("delete", [{"k": row["k"]} for row in larger]),
        ("update", others),
        ("insert", [row for row in given if row["k"] not in there]),
        ("delete", [{"k": key} for key in gone]),
        ("update", [{"k": key, "a": there[key] + 1} for key in left if key not in gone]),
    ]
    _sent(history, batch, send)


def _less(one: Any, other: Any) -> bool:
    return one is not None and other is not None and bool(one < other)


def write_if(table: kc.Table, history: History, rng: random.Random, keys: Sequence[int], rows: int) -> None:
    """An upsert of what is larger; the other rows are refused."""
    given = random_rows(rng, keys, min(rows, len(keys)))
    there = _rows_of(history, keys)
    applied = [r for r in given if r["k"] not in there or _less(there[r["k"]], r["a"])]
    data = pa.Table.from_pylist(given, schema=SCHEMA)
    send = lambda: table.upsert(data, if_=kc.new("a") > kc.old("a"), on_error="return")  # noqa: E731
    _sent(history, [("upsert", applied)], send)


def read_and_write(
    table: kc.Table, history: History, rng: random.Random, keys: Sequence[int], rows: int
) -> None:
    """Each row gets the ``a`` of the one before; the last goes."""
    chosen = rng.sample(keys, min(rows, len(keys)))
    there = _rows_of(history, keys)
    made, before = [], None
    for key in chosen:
        if key in there:
            made.append({"k": key, "a": before})
            before = there[key]
    last = [{"k": made[-1]["k"]}] if made else []

    def send() -> kc.WriteResult:
        with table.batch() as batch:
            found = batch.get_many(chosen, ["k", "a"]).to_pylist()
            value = None
            for row in found:
                if row["_found"]:
                    batch.update([{"k": row["k"], "a": value}])
                    value = row["a"]
            if last:
                assert batch.get(last[0]["k"]) is not None
                batch.delete([last[0]["k"]])
        return batch.result

    _sent(history, [("update", made), ("delete", last)], send)


def random_decision(
    table: kc.Table, history: History, rng: random.Random, keys: Sequence[int], rows: int
) -> None:
    decide: Decide = rng.choice((merge, merge, write_if, read_and_write))
    decide(table, history, rng, keys, rows)


__all__ = ["Decide", "merge", "random_decision", "read_and_write", "write_if"]
