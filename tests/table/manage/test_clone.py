"""``clone``: the same rows at another path, and from then on two tables that do not know each other."""

from __future__ import annotations

import errno
import os
import random
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import kudu_core as kc
from kudu_core.table.backup import clone_rows
from tests.support.inside import table_file_of
from tests.support.objects.memory import MemoryObjectStore
from tests.support.tables import Make
from tests.table.manage.worlds import PLACES, World, found

STORE = "s3://bucket/clones/c"


def files_of(path: Path) -> dict[str, tuple[int, bytes]]:
    """Data files below a table: the number of names, and the bytes."""
    found = [p for p in path.glob("tablets/*/*") if p.suffix in (".rows", ".delta")]
    return {str(p.relative_to(path)): (p.stat().st_nlink, p.read_bytes()) for p in found}


@pytest.mark.parametrize("mode", ["rw", "r"])
def test_a_clone_has_the_history(tmp_path: Path, seed: int, mode: str) -> None:
    for number in range(3):
        folder = tmp_path / str(number)
        folder.mkdir()
        world = World("folder", folder)
        world.churn(random.Random(seed * 10 + number), 10)
        world.table.tag("here")
        world.table.insert({"k": [1000]}, txn=("job", 1))
        world.rows = found(world.table)
        with kc.open_table(world.path) as reader:
            (world.table if mode == "rw" else reader).clone(folder / "c")
        links = {name: count for name, (count, _) in files_of(folder / "c").items()}
        assert set(links.values()) == {2} and links.keys() == files_of(folder / "t").keys()
        world.check()
        with kc.open_table(folder / "c") as before:
            assert found(before) == world.rows
        with kc.open_table(folder / "c", "rw") as clone:
            assert table_file_of(clone).uuid != table_file_of(world.table).uuid
            assert clone.tags() == world.table.tags() and clone.options == world.table.options
            assert clone.insert({"k": [1000]}, txn=("job", 1)).deduplicated
            for at, rows in world.then.items():
                assert found(clone, at) == rows
            assert found(clone) == world.rows
            clone.verify()
        world.table.close()


def test_neither_touches_the_files_of_the_other(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    world = World("folder", tmp_path, history_retention_s=0, file_grace_s=0)
    world.churn(rng, 8)
    world.table.flush()
    world.table.clone(tmp_path / "c")
    kept = {name: data for name, (_, data) in files_of(tmp_path / "c").items()}
    assert kept
    before = world.rows
    world.table.truncate()
    world.table.gc()
    world.table.gc()
    world.table.close()
    kc.drop_table(world.path)
    assert {name: data for name, (_, data) in files_of(tmp_path / "c").items()} == kept
    with kc.open_table(tmp_path / "c", "rw") as clone:
        assert found(clone) == before
        clone.clone(tmp_path / "d")
        clone.upsert({"k": list(before), "v": [5] * len(before)})
        clone.flush()
        clone.compact(full=True)
        clone.truncate()
        clone.insert({"k": [1]})
        clone.gc()
        clone.gc()
        assert not files_of(tmp_path / "c").keys() & kept.keys(), "the clone has let go of them"
        clone.verify()
    with kc.open_table(tmp_path / "d", "rw") as second:
        assert found(second) == before
        second.verify()


def test_where_links_are_impossible(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def link(*_: object, **__: object) -> None:
        raise OSError(errno.EXDEV, "another file system")

    world = World("folder", tmp_path)
    world.churn(random.Random(5), 8)
    world.table.flush()
    with monkeypatch.context() as patch:
        patch.setattr(os, "link", link)
        world.table.clone(tmp_path / "c")
    assert {count for count, _ in files_of(tmp_path / "c").values()} == {1}
    with kc.open_table(tmp_path / "c", "rw") as clone:
        assert found(clone) == world.rows
        clone.verify()
    world.table.close()


def test_where_the_last_record_is_a_checkpoint(make: Make, path: Path, tmp_path: Path) -> None:
    """A merge takes its time for its cut, and collected history may reach up to it."""
    table = make(history_retention_s=0)
    table.insert({"k": [1, 2], "a": [1, 2]})
    table.flush()
    table.update({"k": [1], "a": [3]})
    table.flush()
    table.compact(full=True)
    table.gc()
    rows = table.scan(order="key").to_table()
    table.clone(tmp_path / "c")
    table.close()
    with kc.open_table(path) as reader:
        reader.clone(tmp_path / "d")
    for name in ("c", "d"):
        for mode in ("r", "rw"):
            with kc.open_table(tmp_path / name, mode) as clone:  # type: ignore[arg-type]
                assert clone.scan(order="key").to_table() == rows
                clone.verify()


def test_a_clone_is_of_one_moment(make: Make, tmp_path: Path) -> None:
    """Beside writers of many tablets, small and large calls, flushes, merges and changes of columns."""
    table = make(
        partition_by=kc.HashPartition(["k"], 4), durability="sync", ingest_threshold_rows=150, file_grace_s=0
    )
    keys = list(range(100))
    table.insert({"k": keys, "a": [0] * 100})
    stop = threading.Event()
    problems: list[BaseException] = []

    def run(act: Callable[[int], object]) -> None:
        n = 0
        try:
            while not stop.is_set():
                n += 1
                act(n)
        except BaseException as error:  # noqa: BLE001  the test looks at it
            problems.append(error)

    def write(n: int) -> None:
        many = keys if n % 3 else [*keys, *range(1000, 1100)]
        table.upsert({"k": many, "a": [n] * len(many)})

    def maintain(n: int) -> None:
        table.flush()
        if n % 2:
            table.compact()
        table.gc()
        if n % 5 == 0:
            table.alter(add=[kc.Column(f"c{n}", "int32")])

    threads = [threading.Thread(target=run, args=(act,)) for act in (write, maintain)]
    for thread in threads:
        thread.start()
    seen = []
    for number in range(6):
        least = table.scan(["a"]).to_table()["a"][0].as_py()
        table.clone(tmp_path / f"c{number}")
        with kc.open_table(tmp_path / f"c{number}", "rw") as clone:
            values = set(clone.scan(["a"], where=[("k", "<", 100)]).to_table()["a"].to_pylist())
            assert len(values) == 1, "of one moment"
            assert min(values) >= least, "and what was there when it began"
            seen += values
            clone.verify()
    stop.set()
    for thread in threads:
        thread.join()
    assert problems == [] and seen[-1] > seen[0]


def test_a_past_moment(make: Make, tmp_path: Path) -> None:
    table = make(partition_by=kc.RangePartition(["k"], bounds=[(0, 10), (10, 20)]))
    then = table.insert({"k": [1, 11], "a": [1, 2]}).timestamp
    table.tag("then")
    table.alter(add=[kc.Column("more", "int64", default=4)])
    table.update({"k": [1], "a": [9]})
    table.delete([11])
    for at, name in ((then, "c"), ("then", "d")):
        table.clone(tmp_path / name, at=at)
        with kc.open_table(tmp_path / name) as clone:
            assert clone.scan(["k", "a", "more"], order="key").to_pylist() == [
                {"k": 1, "a": 1, "more": 4}, {"k": 11, "a": 2, "more": 4}
            ]  # fmt: skip
            assert clone.count(at=table.timestamp) == 1, "and what was since"
    table.alter(drop_range=(10, 20))
    with pytest.raises(kc.InvalidArgument, match="dropped since"):
        table.clone(tmp_path / "e", at="then")
    assert not [name for name in os.listdir(tmp_path) if "e" in name.split(".")], "nothing is left of it"


def test_what_is_refused(make: Make, path: Path, tmp_path: Path) -> None:
    table = make()
    table.insert({"k": [1]})
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "x").write_text("mine")
    for taken in (tmp_path / "full", tmp_path):
        with pytest.raises(kc.TableExists):
            table.clone(taken)
    for inside in (path, path / "c"):
        with pytest.raises(kc.InvalidArgument, match="own folder"):
            table.clone(inside)
    with pytest.raises(kc.SnapshotInFuture):
        table.clone(tmp_path / "c", at=table.timestamp + (10**9 << 12))
    table.close()
    with pytest.raises(kc.Closed):
        table.clone(tmp_path / "c")
    reader = kc.open_table(path)
    kc.drop_table(path)
    with pytest.raises(kc.TableNotFound):
        reader.clone(tmp_path / "c")
    reader.close()
    assert sorted(os.listdir(tmp_path)) == ["full"]


def test_a_link_in_the_table_is_not_followed(make: Make, path: Path, tmp_path: Path) -> None:
    table = make()
    table.insert({"k": [1]})
    table.flush()
    table.close()
    with kc.open_table(path) as reader:
        os.rename(path / "tablets" / "00000001", tmp_path / "elsewhere")
        (path / "tablets" / "00000001").symlink_to(tmp_path / "elsewhere")
        with pytest.raises(kc.Corruption, match="link"):
            reader.clone(tmp_path / "c")
    assert not (tmp_path / "c").exists()


# ---- from and to object stores ----


@pytest.mark.parametrize("source", PLACES)
@pytest.mark.parametrize("target", PLACES)
def test_from_and_to_a_store(source: str, target: str, tmp_path: Path, seed: int) -> None:
    if (source, target) == ("folder", "folder"):
        return
    rng = random.Random(seed)
    world = World(source, tmp_path, tablets=3)
    world.churn(rng, 6)
    at = world.note()
    world.table.tag("at")
    world.churn(rng, 2)
    world.table.alter(add=[kc.Column("more", "int64", default=4)])
    store = MemoryObjectStore()
    how: dict[str, Any] = {"_requests": store} if target == "store" else {}
    for number, when in enumerate((None, at, "at")):
        store.objects.clear()
        path = STORE if target == "store" else str(tmp_path / f"c{number}")
        world.table.clone(path, when, **how)
        with kc.open_table(path, "rw", **how) as clone:
            assert found(clone) == (world.rows if when is None else world.then[at])
            assert clone.schema == world.table.schema and clone.tags() == {}
            assert clone.options.history_retention_s is None
            clone.insert({"k": [999]})
            clone.verify()
    with pytest.raises(kc.TableExists):
        world.table.clone(path, **how)
    world.check()
    world.table.close()


def test_one_in_a_store_that_was_cut_short(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    table = make()
    table.insert({"k": [1, 2]})
    store = MemoryObjectStore()

    class Killed(Exception):
        pass

    def killed(*_: object) -> None:
        raise Killed

    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(clone_rows, "_fill", killed)
        table.clone(STORE, table.timestamp, _requests=store)
    with pytest.raises(kc.TableNotFound, match="not whole"):
        kc.open_table(STORE, _requests=store)
    assert kc.list_tables("s3://bucket/clones", _requests=store) == []
    table.clone(STORE, table.timestamp, _requests=store)
    with kc.open_table(STORE, _requests=store) as clone:
        assert clone.count() == 2


def test_one_in_a_store_that_was_cut_short_is_dropped(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    table = make()
    store = MemoryObjectStore()

    def killed(*_: object) -> None:
        raise kc.InternalError("killed")

    with monkeypatch.context() as patch, pytest.raises(kc.InternalError):
        patch.setattr(clone_rows, "_fill", killed)
        table.clone(STORE, table.timestamp, _requests=store)
    assert kc.drop_table(STORE, _requests=store) == ()
