"""Every metric has a fixed name, kind and unit, is there from the beginning, and moves."""

from __future__ import annotations

import pickle
import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import kudu_core as kc
from kudu_core import events
from kudu_core.common.run.measure.call_times import SAMPLED
from kudu_core.table.report.metric_names import COUNTER, GAUGE, HISTOGRAM, METRIC_NAMES
from tests.support.inside import engine_of

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64()), ("s", pa.string())])
UNITS = {"bytes", "seconds", "ratio"}
GOLDEN = Path(__file__).with_name("metric_names.txt")


def told() -> list[str]:
    return [
        f"{m.key} {m.name} {m.kind} {m.unit}{''.join(f' {k}={v}' for k, v in m.labels)}" for m in METRIC_NAMES
    ]


def test_the_names_stay() -> None:
    """Monitoring knows them: a name that goes, or means something else, breaks somebody's dashboard."""
    assert told() == GOLDEN.read_text().splitlines()


def test_names_follow_the_rules_of_prometheus() -> None:
    kinds: dict[str, tuple[str, str]] = {}
    for metric in METRIC_NAMES:
        assert re.fullmatch(r"kudu_core_[a-z_]+", metric.name), metric
        assert metric.kind in (COUNTER, GAUGE, HISTOGRAM)
        assert metric.name.endswith("_total") == (metric.kind == COUNTER), metric
        if metric.unit in UNITS:
            assert metric.name.removesuffix("_total").endswith(metric.unit), metric
        assert metric.help.endswith(".") and metric.help[0].isupper(), metric
        assert kinds.setdefault(metric.name, (metric.kind, metric.help)) == (metric.kind, metric.help)
    assert len({metric.key for metric in METRIC_NAMES if metric.kind != HISTOGRAM}) == sum(
        metric.kind != HISTOGRAM for metric in METRIC_NAMES
    )
    assert len({(metric.name, metric.labels) for metric in METRIC_NAMES}) == len(METRIC_NAMES)


def work(table: kc.Table) -> None:
    """Everything that a metric counts."""
    keys = np.arange(20_000) * 2
    table.insert(pa.table({"k": keys, "v": keys, "s": [f"{key:020}" for key in keys]}), txn=("loader", 1))
    table.upsert([{"k": 1, "v": 2}])
    table.flush()
    for value in range(13):
        table.update({"k": [1, 2], "v": [value, value]})
        table.flush()
    table.maintain()
    table.insert({"k": np.arange(50) * 200 + 3})  # between the others
    table.flush()
    table.update({"k": keys[::2], "v": keys[::2]})
    table.flush()
    table.compact(full=True)
    table.update({"k": keys[::3], "v": keys[::3]})
    table.flush()
    table.gc()
    table.compact(full=True)
    table.get(1)
    for _ in range(2):
        assert table.scan().to_table().num_rows == table.count()


def test_all_are_there_from_the_beginning_and_move(path: Path, small_segments: None) -> None:
    options = {
        "maintenance": "manual", "file_grace_s": 0, "history_retention_s": 0, "ingest_threshold_rows": 5000,
        "page_cache_bytes": 1 << 18, "memory_limit_bytes": 16 << 20,
    }  # fmt: skip
    cut = kc.RangePartition("k", [(0, 10**6), (10**6, 10**7)])
    seen: dict[str, set[float]] = {}

    def look(table: kc.Table) -> None:
        for key, value in table.metrics().items():
            seen.setdefault(key, set()).add(value)

    with kc.create_table(path, SCHEMA, "k", partition_by=cut, options=options) as table:
        first = table.metrics()
        assert list(first) == list(table.metrics()), "none comes or goes"
        engine = engine_of(table)
        engine.options = engine.options.replace()
        told: list[events.Event] = []
        engine.listener = lambda event: (told.append(event), look(table))[1]
        look(table)
        work(table)
        look(table)
        with table.snapshot():
            look(table)
        table.alter(drop_range=(10**6, 10**7))
        look(table)
        table.gc()
        table.gc()
        look(table)
        # What needs an accident, a full machine or 90 days.
        engine.memory.throttle.note(0.5)
        engine.journal.note(events.MaintenanceError(error="x", tablet_id="1", operation="flush"))
        engine.writers.dropped += 1
        (path / "lost").mkdir(exist_ok=True)
        (path / "lost" / "1_00000001_000001-00000001.rows").write_bytes(b"1234")
        with engine.tablet_context.work.hold(100):
            look(table)
        table.truncate()
        look(table)
    still = {key for key, values in seen.items() if len(values) == 1}
    assert still == {"memory_limit_bytes", "page_cache_limit_bytes"}, "which say what the options are"
    assert seen["memory_limit_bytes"] == {16 << 20}


def test_metrics_are_numbers_by_key_and_described(path: Path) -> None:
    with kc.create_table(path, SCHEMA, "k") as table:
        table.insert([{"k": 1}])
        table.get(1)
        found = table.metrics()
        again = pickle.loads(pickle.dumps(found))
    assert again == found and again.described == found.described
    by_key = {metric.key: metric for metric in found.described}
    assert found["get_count"] == 1 == by_key["get"].value.count
    assert found["get_elapsed_s"] == by_key["get"].value.total_s > 0
    assert found["write_count"] == 1
    assert found["fsync_count"] >= 1
    assert by_key["rowsets"].value == found["rowsets"] == 0
    assert all(isinstance(value, int | float) for value in found.values())


def test_a_refresh_forgets_no_calls(path: Path) -> None:
    with kc.create_table(path, SCHEMA, "k") as table, kc.open_table(path) as reader:
        reader.count()
        reader.get(1)
        table.insert([{"k": 1}])
        reader.refresh()
        reader.get(1)
        assert reader.metrics()["get_count"] == 2
        assert reader.metrics()["scan_count"] == 1


def test_many_reads_are_counted_by_samples(path: Path) -> None:
    with kc.create_table(path, SCHEMA, "k", options={"durability": "none"}) as table:
        for number in range(1000):
            table.upsert([{"k": number}])
            table.get(number)
        found = table.metrics()
        for call in ("get", "write"):
            assert 1000 - SAMPLED < found[f"{call}_count"] <= 1000, found


@pytest.mark.parametrize("call", ["scan", "batches", "count", "few"])
def test_a_scan_is_one(path: Path, call: str) -> None:
    with kc.create_table(path, SCHEMA, "k") as table:
        table.insert({"k": np.arange(1000)})
        {
            "scan": lambda: table.scan().to_table(),
            "batches": lambda: list(table.scan(batch_rows=10)),
            "count": table.count,
            "few": lambda: table.scan(key_range=(1, 3)).to_table(),
        }[call]()
        assert table.metrics()["scan_count"] == 1
