"""Backups in an object store, of tables in folders and in stores."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import kudu_core as kc
from kudu_core.common.run.clock import Clock
from kudu_core.fs.posix import PosixFileSystem
from kudu_core.table.backup import backup as module
from kudu_core.table.backup import restore as restoring
from kudu_core.table.backup.backup_manifest import read_manifests
from kudu_core.table.backup.backup_place import options_of_both, place_at
from kudu_core.table.lifecycle.locations import location_of
from tests.support.clock import ManualClock
from tests.support.fs.faulty import SimulatedCrash
from tests.support.inside import given_up_leases
from tests.support.objects.fates import Rule
from tests.support.objects.faulty import FaultyStore
from tests.support.objects.memory import MemoryObjectStore
from tests.support.objects.tables import SCHEMA, URL, created, rows_of

PLACE = "s3://bucket/backups"


def table_in(kind: str, tmp_path: Path) -> kc.Table:
    if kind == "folder":
        return kc.create_table(tmp_path / "t", SCHEMA, "k", partition_by=kc.HashPartition("k", 2))
    return created(MemoryObjectStore(), tablets=2)


def kept(table: kc.Table, store: Any, since: Any = None) -> Any:
    return table.backup(PLACE, since, _requests=store)


def restored(store: MemoryObjectStore, path: Path, at: Any = None) -> dict[int, int]:
    with kc.restore(PLACE, path, at, _src_requests=store) as table:
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


# ---- restored into a store ----


@pytest.fixture(params=["folder", "store"])
def chain(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Any, MemoryObjectStore | None]]:
    """A full backup and one that continues it, of 30 rows, with another set of options."""
    where: Any = tmp_path / "backups" if request.param == "folder" else PLACE
    requests = None if request.param == "folder" else MemoryObjectStore()
    options = {"scan_threads": 3, "durability": "group"}  # a record is not awaited by who writes it
    with kc.create_table(
        tmp_path / "source", SCHEMA, "k", partition_by=kc.HashPartition("k", 3), options=options
    ) as table:
        table.insert({"k": list(range(30)), "v": list(range(30))})
        table.backup(where, _requests=requests)
        table.update([{"k": 4, "v": -4}])
        table.delete([{"k": 5}])
        table.backup(where, "last", _requests=requests)
        yield where, requests


WANTED = {k: -4 if k == 4 else k for k in range(30) if k != 5}


def into_store(chain: Any, target: Any, at: Any = None) -> kc.Table:
    where, requests = chain
    return kc.restore(where, URL, at, _requests=target, _src_requests=requests)


def test_a_store_takes_a_table(chain: Any) -> None:
    target = MemoryObjectStore()
    with into_store(chain, target) as table:
        assert rows_of(table) == WANTED and table.path == URL
        assert table.options.scan_threads == 3
        assert (table.options.file_grace_s, table.options.group_interval_s) == (3600.0, 0.25)
        assert len(table.partitions.partitions) == 3
        table.insert([{"k": 5, "v": 5}])
        table.verify()
    with kc.open_table(URL, _requests=target) as reader:
        assert rows_of(reader) == {**WANTED, 5: 5}
    for at in (None, first_of(chain)):
        with pytest.raises(kc.TableExists, match="there is a table at"):
            into_store(chain, target, at)


def test_options_of_two_places() -> None:
    given, other = {"region": "a"}, {"region": "b"}
    for src, path, of_src, of_path in (
        ("/b", "/t", given, None),
        ("/b", URL, None, given),
        (PLACE, "/t", given, None),
        (PLACE, URL, given, given),
    ):
        assert options_of_both(src, path, given, None) == (of_path, of_src)
        assert options_of_both(src, path, given, other) == (of_path, other)
    for src, path in (("/b", "/t"), (Path("/b"), Path("/t"))):
        with pytest.raises(kc.InvalidArgument, match="storage_options are of an object store"):
            kc.restore(src, path, storage_options=given)


def test_what_lies_at_the_place_stays(chain: Any) -> None:
    target = MemoryObjectStore()
    target.store("notes.txt", b"mine")
    with pytest.raises(kc.TableExists, match=r"is not empty: 'notes.txt'"):
        into_store(chain, target)
    assert set(target.objects) == {"notes.txt"}


def make(chain: Any, target: Any) -> None:
    """As ``into_store``, and not opened."""
    where, requests = chain
    clock = Clock()
    place = place_at(where, None, clock, requests=requests)
    location = location_of(URL, clock=clock, requests=target)
    restoring.restore(place, PosixFileSystem(), location, None, clock)


def seen(target: MemoryObjectStore) -> dict[int, int] | None:
    """What others see at the place: a table, or none."""
    for mode in ("r", "rw"):
        with suppress(kc.TableNotFound), kc.open_table(URL, mode, _requests=target) as table:
            return rows_of(table)
    return None


@pytest.mark.parametrize("fate", ["crash before", "crash after"])
def test_a_restore_killed_at_each_request(fate: str, chain: Any) -> None:
    nth = whole = 0
    while True:
        nth += 1
        target = MemoryObjectStore()
        faulty = FaultyStore(target, [Rule(fate, nth=nth)])  # type: ignore[arg-type]
        with suppress(SimulatedCrash):
            make(chain, faulty)
        target.objects.pop("LEASE", None)
        if not faulty.crashed:
            break
        found = seen(target)
        assert found in (None, WANTED), f"request {nth}"
        if found is None:
            first = kc.restore(chain[0], URL, _requests=target, _src_requests=chain[1])
            assert rows_of(first) == WANTED
            first.verify()
            first.close()
        else:
            whole += 1
    assert nth > 10 and whole


def test_only_the_same_restore_goes_on(chain: Any) -> None:
    target = MemoryObjectStore()
    faulty = FaultyStore(target, [Rule("crash after", ops=frozenset({"put"}), nth=4)])
    with pytest.raises(SimulatedCrash):
        make(chain, faulty)
    given_up_leases().clear()  # whoever goes on is another process, and does not know what became of this one
    with pytest.raises(kc.Locked):
        into_store(chain, target)
    target.objects.pop("LEASE")
    with pytest.raises(kc.TableNotFound, match="is not whole: a restore of backup 2 of"):
        kc.open_table(URL, _requests=target)
    with pytest.raises(kc.TableNotFound, match="run it again"):
        kc.open_table(URL, "rw", _requests=target)
    with pytest.raises(kc.TableExists, match=r"a restore of backup 2 of .* was begun, and not of backup 1"):
        into_store(chain, target, first_of(chain))
    with pytest.raises(kc.TableExists):
        kc.create_table(URL, SCHEMA, "k", _requests=target)
    with into_store(chain, target) as table:
        assert rows_of(table) == WANTED


def first_of(chain: Any) -> int:
    where, requests = chain
    found = place_at(where, None, Clock(), requests=requests)
    return read_manifests(found.fs, found.folder)[0].timestamp


def test_backups_that_do_not_fit_make_no_table(chain: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    target = MemoryObjectStore()
    with monkeypatch.context() as patch:
        patch.setattr(restoring, "_within", lambda calls, chain, partitions: iter(()))
        with pytest.raises(kc.Corruption, match="its files give 0"):
            into_store(chain, target)
    assert seen(target) is None
    with into_store(chain, target) as table:
        assert rows_of(table) == WANTED
