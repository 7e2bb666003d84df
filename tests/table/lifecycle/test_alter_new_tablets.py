"""The tablets that an ALTER or an overwrite makes are nobody's to write to until all is as its record says.

A view is replaced only under its tablet's mutex, or before anybody else can find the tablet.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import kudu_core as kc
from kudu_core.table.lifecycle import alter as walk
from kudu_core.table.opened.engine import Engine
from kudu_core.tablet.store.tablet import Tablet
from tests.support.inside import log_of, owned
from tests.support.models.overwriting import overwrite

SCHEMA = pa.schema([pa.field("k", pa.int64(), nullable=False), ("v", pa.int64())])
ADDED = kc.Column("w", pa.int64(), default=5)
WRITES: dict[str, Callable[[kc.Table], kc.WriteResult]] = {
    "one row": lambda t: t.insert([{"k": 15, "v": 7}]),
    "rows": lambda t: t.insert([{"k": 15, "v": 7}, {"k": 16, "v": 8}]),
    "rows of the new columns": lambda t: t.insert([{"k": 15, "v": 7, "w": 1}, {"k": 16, "v": 8, "w": 2}]),
    "bulk": lambda t: t.insert({"k": list(range(10, 20)), "v": [0] * 10}),
}
STEPS = {"tablets replaced": (Engine, "replace_tablets"), "stores frozen": (walk, "freeze_memrowset")}


@pytest.fixture
def table(tmp_path: Path) -> kc.Table:
    options = {"maintenance": "manual", "ingest_threshold_rows": 10}
    cut = [kc.RangePartition(["k"], bounds=[(0, 10)])]
    made = kc.create_table(tmp_path / "t", SCHEMA, ["k"], partition_by=cut, options=options)
    made.insert([{"k": 1, "v": 1}])
    return made


@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("step", STEPS)
def test_a_write_beside_an_alter_is_kept_or_refused(
    table: kc.Table, monkeypatch: pytest.MonkeyPatch, step: str, write: str
) -> None:
    outcome: list[Any] = []

    def beside() -> None:
        try:
            outcome.append(WRITES[write](table))
        except kc.KuduError as exc:
            outcome.append(exc)

    threads: list[threading.Thread] = []
    owner, name = STEPS[step]
    real = getattr(owner, name)

    def gap(*args: Any) -> Any:
        answer = real(*args)
        if answer:
            return answer  # a store with rows was frozen: an old tablet's
        threads.append(threading.Thread(target=beside))
        threads[-1].start()
        threads[-1].join(0.3)  # it waits for a mutex, or it has ended: neither loses what it wrote
        return answer

    with monkeypatch.context() as patched:
        patched.setattr(owner, name, gap)
        table.alter(add=[ADDED], add_range=(10, 20))
        for thread in threads:
            thread.join()
    if isinstance(outcome[0], kc.SchemaMismatch):  # the tablets came before the columns
        beside()
    assert isinstance(outcome[-1], kc.WriteResult), outcome
    kept = {row["k"] for row in table.scan().to_pylist()}
    assert len(kept) == 1 + outcome[-1].inserted
    assert table.get(15) is not None
    with pytest.raises(kc.RowErrors):
        WRITES[write](table)
    log_of(table).roll()
    table.insert([{"k": 2, "v": 2}])
    table.flush()
    table.close()
    with kc.open_table(table.path, "rw") as again:
        assert {row["k"] for row in again.scan().to_pylist()} == kept | {2}
        again.verify()


def test_views_are_replaced_under_the_mutex(table: kc.Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """By every operation of a table that is open."""
    wrong: list[str] = []
    seen: set[int] = set()

    def replaced(tablet: Tablet, name: str, value: Any) -> None:
        if name == "view" and "view" in vars(tablet):
            seen.add(tablet.id)
            if not owned(tablet.mutex):
                wrong.append(f"tablet {tablet.id}")
        object.__setattr__(tablet, name, value)

    monkeypatch.setattr(Tablet, "__setattr__", replaced, raising=False)
    table.alter(add=[ADDED], add_range=(10, 20))
    table.insert([{"k": k, "v": k} for k in (3, 4, 11)])
    table.flush()
    table.update({"k": [3, 4, 11], "v": [30, 40, 110]})
    table.insert([{"k": 5}])
    table.flush()
    table.compact()
    table.upsert({"k": list(range(9)), "v": [1] * 9})
    table.upsert({"k": list(range(10, 20)), "v": [1] * 10})  # a bulk load
    table.delete({"k": [12]})
    table.alter(add_range=(20, 30), drop_range=(0, 10))
    overwrite(table, pa.table({"k": [10, 20], "v": [1, 2], "w": [1, 2]}))
    table.alter(drop=["w"])
    table.maintain()
    table.close()
    assert not wrong
    assert len(seen) >= 4
