"""The example of a pipeline: run twice, and killed and run again, it gives what plain Python computes."""

from __future__ import annotations

import csv
import importlib.util
import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from pyspark.sql import SparkSession

import kudu_core as kc
from tests.support.staged import waiting

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "examples" / "pipeline.py"
ROWS = 200
HOURS = (12, 14)
STEPS = 6
"""Lines that a run prints before it is checked: raw files, tables, then loaded and counted twice."""

Row = tuple[Any, ...]


@pytest.fixture(scope="module")
def pipeline() -> ModuleType:
    spec = importlib.util.spec_from_file_location("pipeline", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["pipeline"] = module  # its dataclass looks itself up
    spec.loader.exec_module(module)
    return module


def good(fields: list[str]) -> bool:
    if len(fields) != 7:
        return False
    customer, number, _, _, amount, state, changed_at = fields
    try:
        datetime.fromisoformat(changed_at)
    except ValueError:
        return False
    return (
        customer.strip() != ""
        and re.fullmatch(r"[0-9]+", number) is not None
        and re.fullmatch(r"[0-9]+(\.[0-9]{1,2})?", amount) is not None
        and state in ("open", "paid", "sent", "cancelled")
    )


def model(files: list[Path]) -> tuple[list[Row], list[Row], list[str]]:
    """Orders, customers with their totals, and rejected lines after these files, by plain Python."""
    orders: dict[tuple[str, int], Row] = {}
    known: dict[str, Row] = {}
    rejected = []
    for file in files:
        lines = file.read_text().splitlines()
        parsed = [next(csv.reader([line])) for line in lines]
        rejected += [line for line, fields in zip(lines, parsed, strict=True) if not good(fields)]
        for fields in sorted(filter(good, parsed), key=lambda fields: datetime.fromisoformat(fields[6])):
            customer, number, name, city, amount, state, changed_at = fields
            changed = Decimal(amount), state, datetime.fromisoformat(changed_at)
            orders[customer, int(number)] = changed
            known[customer] = (name, city)
    count: Counter[str] = Counter()
    spent: Counter[str] = Counter()
    for (customer, _), (amount, state, _) in orders.items():
        if state != "cancelled":
            count[customer] += 1
            spent[customer] += amount
    return (
        sorted((*key, *row) for key, row in orders.items()),
        sorted((key, *row, count[key], Decimal(spent[key])) for key, row in known.items()),
        sorted(rejected),
    )


def rows(path: str, at: datetime | None = None) -> list[Row]:
    with kc.open_table(path) as table:
        return [tuple(row.values()) for row in table.scan(order="key", at=at).to_pylist()]


def newest(path: str) -> int:
    with kc.open_table(path) as table:
        return table.timestamp


def check(places: Any, noon: datetime) -> None:
    files = [places.raw(delivery) for delivery in places.deliveries()]
    assert len(files) == len(HOURS)
    for at, seen in ((noon, files[:1]), (None, files)):
        orders, customers, _ = model(seen)
        assert rows(places.orders, at) == orders
        assert rows(places.customers, at) == customers
    parts = (places.folder / "rejected").glob("*/*.json")
    told = [json.loads(line) for part in parts for line in part.read_text().splitlines()]
    assert sorted(line["line"] for line in told) == model(files)[2] != []
    assert all(line["reason"] for line in told)
    for path in (places.orders, places.customers):
        with kc.open_table(path) as table:
            table.verify()


def test_a_day_twice_in_one_process(
    spark: SparkSession, pipeline: ModuleType, tmp_path: Path, seed: int
) -> None:
    places = pipeline.Places(tmp_path)
    pipeline.make_raw(places, HOURS, ROWS, seed)
    told: list[str] = []
    noon = pipeline.run(spark, places, told.append)
    assert len(told) == STEPS - 1
    check(places, noon)
    pipeline.check(spark, places)
    tables = (places.orders, places.customers)
    before = [newest(path) for path in tables]
    assert pipeline.run(spark, places, told.append) == noon
    assert [newest(path) for path in tables] == before, "written again"
    assert [waiting(path) for path in tables] == [[], []]
    check(places, noon)
    # A check that finds nothing wrong would find something.
    with kc.open_table(places.customers, "rw") as table:
        table.update({"customer": [rows(places.customers)[0][0]], "orders": [99]})
    with pytest.raises(SystemExit, match="differ"):
        pipeline.check(spark, places)


def killed(folder: Path, seed: int, after: int, delay_s: float) -> int:
    """A run of its own, which is killed some time after so many of its steps."""
    command = [sys.executable, str(SCRIPT), "--folder", str(folder), "--rows", str(ROWS), "--seed", str(seed)]
    with (folder / "stderr").open("wb") as errors:
        process = subprocess.Popen(
            [*command, "--hours", *map(str, HOURS)],
            stdout=subprocess.PIPE,
            stderr=errors,
            env=os.environ | {"PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": sys.executable},
            start_new_session=True,  # the driver is two processes, Python and Java
        )
        assert process.stdout is not None
        try:
            for _ in range(after):
                assert process.stdout.readline(), (folder / "stderr").read_text()
            time.sleep(delay_s)
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.stdout.close()
        return process.wait()


def test_a_day_that_is_killed_is_gone_on_with(
    spark: SparkSession, pipeline: ModuleType, tmp_path: Path, seed: int, long: bool
) -> None:
    if not long:
        pytest.skip("--long: each turn starts a Spark of its own, 30 s")
    for turn in range(10):
        chance = random.Random(seed + turn)
        places = pipeline.Places(tmp_path / str(turn))
        places.folder.mkdir()
        after, delay_s = chance.randrange(2, STEPS), chance.random()
        assert killed(places.folder, seed, after, delay_s) == -signal.SIGKILL
        noon = pipeline.run(spark, places, lambda step: None)
        check(places, noon)
