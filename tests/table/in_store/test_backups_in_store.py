"""Backups in an object store, of tables in folders and in stores."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import kudu_core as kc
from kudu_core.table.backup import backup as module
from tests.support.clock import ManualClock
from tests.support.fs.faulty import SimulatedCrash
from tests.support.objects.fates import Rule
from tests.support.objects.faulty import FaultyStore
from tests.support.objects.memory import MemoryObjectStore
from tests.support.objects.tables import SCHEMA, created, rows_of

PLACE = "s3://bucket/backups"


def table_in(kind: str, tmp_path: Path) -> kc.Table:
    if kind == "folder":
        return kc.create_table(tmp_path / "t", SCHEMA, "k", partition_by=kc.HashPartition("k", 2))
    return created(MemoryObjectStore(), tablets=2)


def kept(table: kc.Table, store: Any, since: Any = None) -> Any:
    return table.backup(PLACE, since, _requests=store)


def restored(store: MemoryObjectStore, path: Path, at: Any = None) -> dict[int, int]:
    with kc.restore(PLACE, path, at, _requests=store) as table:
        return rows_of(table)


@pytest.mark.parametrize("kind", ["folder", "store"])
def test_a_chain_of_backups(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RUN_BYTES", 4096)
    store = MemoryObjectStore()
    with table_in(kind, tmp_path) as table:
        table.insert({"k": list(range(3000)), "v": list(range(3000))})
        full = kept(table, store)
        assert (full.number, full.total, full.folder) == (1, 3000, PLACE)
        first = rows_of(table)
        table.upsert([{"k": 1, "v": -1}])
        table.delete([{"k": 2}])
        second = kept(table, store, "last")
        assert (second.inserted, second.updated, second.deleted, second.total) == (0, 1, 1, 2999)
        assert kept(table, store, "last").number == 2, "nothing was written since"
        assert sum(name.startswith("00000001/rows-") for name in store.objects) > 1
        assert restored(store, tmp_path / "first", full) == first
        assert restored(store, tmp_path / "second") == rows_of(table)
        assert kept(table, store).number == 3
    with table_in("store", tmp_path) as other, pytest.raises(kc.InvalidArgument, match="another table"):
        kept(other, store)


def test_of_two_that_make_one_number_one_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = MemoryObjectStore()
    with table_in("store", tmp_path) as table:
        table.insert([{"k": 1, "v": 1}])
        real: Callable[..., Any] = module.write_runs
        inner: list[Any] = []

        def slow(*arguments: Any) -> Any:
            if not inner:
                inner.append(None)
                inner[0] = kept(table, store)
            return real(*arguments)

        monkeypatch.setattr(module, "write_runs", slow)
        with pytest.raises(kc.Locked) as told:
            kept(table, store)
        assert "number 1" in told.value.__notes__[0]
        assert inner[0].number == 1
        assert len(store.objects) == 2, "a run, and its manifest"
        assert restored(store, tmp_path / "r") == {1: 1}


@pytest.mark.parametrize("fate", ["crash before", "crash after"])
def test_killed_at_each_request(fate: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RUN_BYTES", 1)
    clock = ManualClock()
    with created(MemoryObjectStore(), clock=clock) as table:
        table.insert([{"k": 1, "v": 1}])
        nth, made = 1, 0
        while True:
            store = MemoryObjectStore(now_s=lambda: clock.now_us() / 1e6)
            kept(table, store)
            table.upsert([{"k": nth, "v": -nth}])
            faulty = FaultyStore(store, [Rule(fate, nth=nth)])  # type: ignore[arg-type]
            with suppress(SimulatedCrash):
                kept(table, faulty, "last")
            there = "00000002/BACKUP" in store.objects
            made += there
            clock.advance(90_000.0)
            table.upsert([{"k": 0, "v": nth}])
            assert kept(table, store, "last").number == 2 + there
            assert restored(store, tmp_path / f"r{nth}") == rows_of(table)
            clock.advance(90_000.0)
            kept(table, store)
            runs = [name for name in store.objects if "/rows-" in name]
            assert len(runs) == sum(name.endswith("/BACKUP") for name in store.objects), "no run is left over"
            if not faulty.crashed:
                break
            nth += 1
    assert nth > 4 and made


def test_lost_and_late_answers(tmp_path: Path) -> None:
    """A manifest whose put had no answer is known again by its bytes."""
    with table_in("folder", tmp_path) as table:
        table.insert([{"k": 1, "v": 1}])
        for n in range(8):
            store = MemoryObjectStore()
            faulty = FaultyStore(store, [Rule("lost", ops=frozenset({"put"}), nth=1 + n % 2)])
            assert kept(table, faulty).number == 1
            assert restored(store, tmp_path / f"r{n}") == {1: 1}


def test_damage_and_wrong_places(tmp_path: Path) -> None:
    store = MemoryObjectStore()
    with table_in("folder", tmp_path) as table:
        table.insert([{"k": 1, "v": 1}])
        kept(table, store)
        [name] = [name for name in store.objects if "/rows-" in name]
        whole = store.objects[name].data
        damaged = (whole[:-1], "its writer wrote"), (whole[:-1] + b"x", "checksum"), (None, "missing")
        for data, said in damaged:
            store.delete([name])
            if data is not None:
                store.store(name, data)
            with pytest.raises(kc.Corruption, match=said):
                restored(store, tmp_path / "r")
            assert not (tmp_path / "r").exists()
        with pytest.raises(kc.TableNotFound, match="no backup at s3://bucket/backups"):
            restored(MemoryObjectStore(), tmp_path / "r")
        foreign = MemoryObjectStore()
        with created(foreign), pytest.raises(kc.InvalidArgument, match="no folder of backups"):
            kept(table, foreign)
    store = MemoryObjectStore()
    with created(store) as table, pytest.raises(kc.InvalidArgument, match="own folder"):
        table.backup(f"{table.path}/backups", _requests=store)
