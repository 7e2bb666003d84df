"""Nothing is deleted on the word of a damaged file: what nothing names goes to ``lost/``, what is named comes
back from there, and while anything that is named is missing nothing is touched at all."""

from __future__ import annotations

from typing import Any

import pytest

import kudu_core as kc
from kudu_core.common.format.names import parse_lost
from kudu_core.fs.missing import FileMissing
from kudu_core.tablet.store import manifest_format as form
from tests.support.faults import drop
from tests.support.hostile.damage import contents, put
from tests.support.hostile.lost import (
    MANIFEST,
    OPTIONS,
    ROOT,
    ROWS,
    SCHEMA,
    TABLET,
    World,
    orphan,
    without_lock,
)
from tests.support.inside import tablet_of

# ---- files that nothing names, and files that are named


def test_an_orphan_is_kept_for_a_grace(world: World) -> None:
    world.merged()
    named = world.data_files()
    orphan(world)
    put(world.fs, f"{TABLET}/notes.txt", b"not ours")
    events: list[Any] = []
    with world.open(listener=events.append) as table:
        [kept] = world.lost
        told = parse_lost(kept)
        assert told is not None and told[1:] == (1, "000001-00000999.rows")
        assert told.moved_s == world.clock.now_us() // 1_000_000
        assert world.fs.read_bytes(f"{ROOT}/lost/{kept}", 99) == b"orphan"
        assert sorted(world.data_files()) == sorted([*named, "notes.txt"])
        assert table.metrics()["lost_bytes"] == 6 and table.metrics()["lost_files"] == 1
        assert table.stats().to_pylist()[0]["lost_bytes"] == 6
        assert "lost: 1 files, 6 bytes" in table.layout()
        found = table.verify()
        assert (found.lost_files, found.lost_bytes) == (1, 6)
        assert found.foreign == ("tablets/00000001/notes.txt",)
    [opened] = [event for event in events if type(event).__name__ == "TableOpened"]
    assert (opened.orphans_kept, opened.orphans_deleted, opened.brought_back) == (1, 0, 0)
    world.clock.advance(3000)
    world.keys()
    assert world.lost == [kept]
    world.clock.advance(601)
    world.keys()
    assert world.lost == []


def test_maintenance_ends_the_grace(world: World) -> None:
    world.merged()
    orphan(world)
    with world.open() as table:
        assert len(world.lost) == 1
        put(world.fs, f"{ROOT}/lost/mine", b"not ours")
        world.clock.advance(3601)
        table.gc()
        assert world.lost == ["mine"]
        assert table.verify().foreign == ("lost/mine",)


def test_the_same_name_twice(world: World) -> None:
    world.merged()
    for data in (b"one", b"two"):
        orphan(world, data=data)
        world.keys()
    assert sorted(world.fs.read_bytes(f"{ROOT}/lost/{name}", 9) for name in world.lost) == [b"one", b"two"]


def test_what_an_edit_let_go_of_is_deleted_at_once(world: World) -> None:
    """A merge's inputs whose grace was not over when the table was closed: no copies of them are kept."""
    with world.create(file_grace_s=3600) as table:
        reader = world.open("r")
        for part in range(3):
            table.insert({"k": [part], "v": [0]})
            table.flush()
        table.compact(full=True)
        kept = len(world.data_files())
    reader.close()
    assert kept == 4
    with world.open() as table:
        assert len(world.data_files()) == 1 and world.lost == []
        assert tablet_of(table).state.retired == frozenset()
        table.insert({"k": [9], "v": [0]})
        table.flush()
    assert world.keys("r") == [0, 1, 2, 9]


def test_what_is_retired_survives_a_checkpoint_of_the_manifest(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    from kudu_core.tablet.store import manifest

    monkeypatch.setattr(manifest, "REWRITE_BYTES", 0)
    with world.create(file_grace_s=3600) as table, world.open("r"):
        for part in range(3):
            table.insert({"k": [part], "v": [0]})
            table.flush()
        table.compact(full=True)
        for part in range(10, 16):
            table.insert({"k": [part], "v": [0]})
            table.flush()
        assert len(tablet_of(table).state.retired) == 3
    world.keys()
    assert world.lost == []


def test_files_that_were_deleted_are_retired_no_longer(world: World) -> None:
    world.merged()
    with world.open() as table:
        assert tablet_of(table).state.retired == frozenset()


@pytest.mark.parametrize("where", ["manifest", "log"])
def test_no_orphan_is_touched_while_a_named_file_is_missing(world: World, where: str) -> None:
    if where == "manifest":
        world.merged()
        [missing] = world.data_files()
    else:
        table = world.create(ingest_threshold_rows=10)
        table.insert({"k": list(range(ROWS)), "v": [0] * ROWS})
        [missing] = world.data_files()
        drop(table)
        world.fs.kill()
        sound = world.fs.read_bytes(MANIFEST, 1 << 20)  # as if the edit had not come to the disk
        put(world.fs, MANIFEST, sound[: form.scan_edits(sound)[0][-1].offset])
    orphan(world)
    path = f"{TABLET}/{missing}"
    sound = world.fs.read_bytes(path, 1 << 20)
    put(world.fs, path, None)
    before = contents(world.fs)
    with pytest.raises(FileMissing) as error:
        world.open()
    assert error.value.path == path
    assert without_lock(contents(world.fs)) == without_lock(before)
    put(world.fs, path, sound)
    assert world.keys() == list(range(ROWS))
    assert len(world.lost) == 1


def test_a_named_file_comes_back(world: World) -> None:
    """The files of a table are put back from a copy beside what an open had moved away meanwhile."""
    world.merged()
    sound = contents(world.fs)
    # Nothing knows of the last edit: the open before it is what a power cut could have left.
    manifest = sound[MANIFEST]
    put(world.fs, MANIFEST, manifest[: form.scan_edits(manifest)[0][1].offset])
    table = sound[f"{ROOT}/TABLE"]
    put(world.fs, f"{ROOT}/TABLE", unaware(table))
    empty_checkpoint(world)
    with world.open():
        pass
    assert len(world.lost) == 1 and world.data_files() == []
    wrong = world.lost[0].replace("-00000001-", "-00000002-")
    put(world.fs, f"{ROOT}/lost/{wrong}", b"of another tablet")
    for path, data in sound.items():
        if not path.endswith(".rows"):
            put(world.fs, path, data)
    for name in world.fs.listdir(f"{ROOT}/wal"):
        if f"{ROOT}/wal/{name}" not in sound:
            put(world.fs, f"{ROOT}/wal/{name}", None)
    events: list[Any] = []
    with world.open(listener=events.append) as table_:
        assert table_.count() == ROWS
        table_.verify()
    assert next(e.brought_back for e in events if type(e).__name__ == "TableOpened") == 1
    assert world.lost == [wrong]


def unaware(table: bytes) -> bytes:
    """TABLE without what it knows of manifests and of a clean close."""
    import json

    from kudu_core.table.stored import table_state as state

    value = json.loads(table[state.HEADER.size :])
    value["edits"], value["clean_end"] = [], 0
    return state.ENVELOPE.around(json.dumps(value).encode())


def empty_checkpoint(world: World) -> None:
    """The log of the table as if it had been made today: no record, no CHECKPOINT."""
    from kudu_core.table.stored.table_state import read_state
    from kudu_core.wal import Log

    state = read_state(world.fs, f"{ROOT}/TABLE")
    world.fs.rmtree(f"{ROOT}/wal")
    world.fs.mkdir(f"{ROOT}/wal")
    last_ts = state.applied_ts
    Log.create(world.fs, f"{ROOT}/wal", state.uuid, state.epoch, clock=world.clock, last_ts=last_ts).close()


def test_folders_of_tablets(world: World) -> None:
    """That of a tablet which TABLE has let go of is deleted; one that no TABLE ever knew is kept."""
    ranges = kc.RangePartition("k", bounds=[(0, 10), (10, 20)])
    with kc.create_table(
        ROOT, SCHEMA, "k", partition_by=ranges, options=OPTIONS, _fs=world.fs, _clock=world.clock
    ) as table:
        table.insert({"k": [1, 11], "v": [0, 0]})
        table.flush()
        table.alter(drop_range=(0, 10))
        world.clock.advance(2 * 86_400)
        table.upsert({"k": [11], "v": [1]})
        table.gc()
        table.gc()
    assert world.fs.listdir(f"{ROOT}/tablets") == ["00000002"]
    for name in ("00000001", "00000003"):
        world.fs.mkdir(f"{ROOT}/tablets/{name}")
        put(world.fs, f"{ROOT}/tablets/{name}/000001-00000001.rows", b"x")
    assert world.keys() == [11]
    assert world.fs.listdir(f"{ROOT}/tablets") == ["00000002"]
    [kept] = world.lost
    assert kept.endswith("-00000003-tablet")
    assert world.fs.listdir(f"{ROOT}/lost/{kept}") == ["000001-00000001.rows"]
    with world.open("r") as table:
        assert table.metrics()["lost_files"] == 1 == table.metrics()["lost_bytes"]
    world.clock.advance(3601)
    world.keys()
    assert world.lost == []
