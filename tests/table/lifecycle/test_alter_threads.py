"""Writers and scanners beside a thread that alters: each state is one that the columns of a time allow."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import kudu_core as kc
from tests.support.threads import Run
from tests.table.lifecycle.test_alter_beside import SCHEMA


def name_of(schema: pa.Schema) -> str:
    return next(n for n in schema.names if n in ("v", "w"))


def alter(table: kc.Table, run: Run, seed: int) -> None:
    rng = random.Random(seed)
    extra: list[str] = []
    number = 0
    while run.goes_on():
        number += 1
        kind = rng.random()
        if kind < 0.3:
            old = name_of(table.schema)
            table.alter(rename={old: "w" if old == "v" else "v"})
        elif kind < 0.6 and extra:
            table.alter(drop=[extra.pop(rng.randrange(len(extra)))])
        elif kind < 0.8:
            extra.append(f"x{number}")
            table.alter(add=[kc.Column(extra[-1], "int64", False, default=number)])
        else:
            low = 2000 + number * 10
            table.alter(add_range=(low, low + 10))
            table.upsert({"k": [low, low + 1]})
            table.alter(drop_range=(low, low + 10))
        run.did("alter")


def write(table: kc.Table, run: Run, seed: int, first: int) -> None:
    rng = random.Random(seed + first)
    number = 0
    while run.goes_on():
        number += 1
        keys = list(range(100)) if number % 7 == 0 else rng.sample(range(50), 2)
        keys = sorted({k % 50 for k in keys} | {k % 50 + 50 for k in keys})
        try:
            table.upsert({"k": keys, name_of(table.schema): [number * 10 + first] * len(keys)})
            if number % 5 == 0:
                name = name_of(table.schema)
                table.update(where=pc.field("k").isin(keys), set={name: number * 10 + first})
            table.upsert([{"k": 500 + first, name_of(table.schema): number}])
            run.did("write")
        except kc.InvalidArgument as error:  # renamed between the question and the call
            assert "'v'" in str(error) or "'w'" in str(error), error


def scan(table: kc.Table, run: Run, seed: int) -> None:
    rng = random.Random(seed)
    while run.goes_on():
        with table.snapshot() as snapshot:
            for order in ("any", "key"):
                kept = snapshot.scan(where=pc.field("k") < 100, order=order, batch_rows=30)
                name = name_of(kept.schema)
                for _ in range(2):
                    found = {r["k"]: r[name] for r in kept.to_pylist()}
                    assert len(found) == 100
                    for k in range(50):
                        assert found[k] == found[k + 50], (k, found[k], found[k + 50])
                    time.sleep(rng.random() / 50)
            assert table.count(pc.field("k") >= 2000, at=snapshot) in (0, 2)
        run.did("scan")


@pytest.mark.timeout(600)
def test_writers_and_scanners_beside_a_thread_that_alters(tmp_path: Path, seed: int, long: bool) -> None:
    """Rows of a pair are written together and hold one number, whatever the columns are called by then."""
    options = {
        "flush_threshold_bytes": 1 << 16,
        "flush_age_s": 0.05,
        "ingest_threshold_rows": 50,
        "file_grace_s": 0,
        "history_retention_s": 5.0,
    }
    cut = [kc.HashPartition("k", 3), kc.RangePartition("k", [(0, 1000)])]
    table = kc.create_table(str(tmp_path / "t"), SCHEMA, "k", partition_by=cut, options=options)
    table.insert({"k": list(range(100)), "v": [0] * 100})
    run = Run(60 if long else 4, {"alter": 2, "write": 2, "scan": 1})

    run.all(
        lambda: alter(table, run, seed),
        lambda: write(table, run, seed, 1),
        lambda: write(table, run, seed, 2),
        lambda: scan(table, run, seed),
        lambda: scan(table, run, seed),
    )
    newest = {r["k"]: r for r in table.scan().to_pylist()}
    table.close()
    with kc.open_table(table.path, "rw") as again:
        assert {r["k"]: r for r in again.scan().to_pylist()} == newest
