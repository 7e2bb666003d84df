"""Nothing is deleted on the word of a damaged file: what nothing names goes to ``lost/``, what is named comes
back from there, and while anything that is named is missing nothing is touched at all."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

import kudu_core as kc
from kudu_core.cfile.pages.container import FileMissing
from kudu_core.common.format.names import parse_lost
from kudu_core.tablet.store import manifest_format as form
from tests.support.clock import ManualClock
from tests.support.faults import drop
from tests.support.fs.faulty import CHANGES, FaultyFileSystem, Rule, SimulatedCrash
from tests.support.fs.memory import MemoryFileSystem
from tests.support.hostile.damage import Files, contents, put
from tests.support.inside import log_of, table_file_of, tablet_of

ROOT = "/tables/t"
TABLET = f"{ROOT}/tablets/00000001"
MANIFEST = f"{TABLET}/MANIFEST"
SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64())])
OPTIONS: dict[str, Any] = {"maintenance": "manual", "file_grace_s": 0, "lost_grace_s": 3600}
ROWS = 40


class World:
    """A table on a disk in memory, and a clock."""

    def __init__(self, fs: MemoryFileSystem | None = None, clock: ManualClock | None = None) -> None:
        self.clock = clock or ManualClock()
        if fs is None:
            fs = MemoryFileSystem(lambda: self.clock.now_us() / 1e6)
            fs.mkdir("/tables")
            fs.sync_all()
        self.fs = fs

    def create(self, **options: Any) -> kc.Table:
        given = {**OPTIONS, **options}
        return kc.create_table(ROOT, SCHEMA, "k", options=given, _fs=self.fs, _clock=self.clock)

    def open(self, mode: str = "rw", **given: Any) -> kc.Table:
        return kc.open_table(ROOT, mode, _fs=self.fs, _clock=self.clock, **given)

    def merged(self, **options: Any) -> None:
        """Four flushes and the merge of what they wrote, whose edit is the last; closed."""
        with self.create(**options) as table:
            for part in range(4):
                table.insert({"k": list(range(part, ROWS, 4)), "v": [part] * (ROWS // 4)})
                table.flush()
            table.compact(full=True)
            table.gc()

    def keys(self, mode: str = "rw") -> list[int]:
        with self.open(mode) as table:
            found: list[int] = table.scan(["k"], order="key").to_table()["k"].to_pylist()
        return found

    @property
    def lost(self) -> list[str]:
        return self.fs.listdir(f"{ROOT}/lost") if self.fs.exists(f"{ROOT}/lost") else []

    def data_files(self) -> list[str]:
        return [name for name in self.fs.listdir(TABLET) if not name.startswith("MANIFEST")]


@pytest.fixture
def world() -> World:
    return World()


def flip(data: bytes, at: int, bit: int = 0) -> bytes:
    damaged = bytearray(data)
    damaged[at] ^= 1 << bit
    return bytes(damaged)


def without_lock(files: Files) -> Files:
    return {path: data for path, data in files.items() if not path.endswith("/LOCK")}


# ---- a manifest or TABLE that has lost edits


@pytest.mark.parametrize("which", [0, 2, -2, -1])
def test_one_bit_of_a_manifest_after_a_clean_close(world: World, which: int) -> None:
    """Refused, nothing is touched, and the mended bit brings everything back."""
    world.merged()
    sound = world.fs.read_bytes(MANIFEST, 1 << 20)
    edits, _ = form.scan_edits(sound)
    edit = edits[which]
    put(world.fs, MANIFEST, flip(sound, (edit.offset + edit.end) // 2))
    before = contents(world.fs)
    for mode in ("r", "rw"):
        with pytest.raises(kc.Corruption, match="MANIFEST"):
            world.open(mode)
    assert without_lock(contents(world.fs)) == without_lock(before)
    put(world.fs, MANIFEST, sound)
    assert world.keys() == list(range(ROWS))


@pytest.mark.parametrize("how", ["cut", "older"])
def test_a_manifest_without_its_last_edit_after_a_clean_close(world: World, how: str) -> None:
    """Nothing in the file tells: TABLE does."""
    world.merged()
    sound = world.fs.read_bytes(MANIFEST, 1 << 20)
    last = form.scan_edits(sound)[0][-1]
    put(world.fs, MANIFEST, sound[: last.offset + (20 if how == "cut" else 0)])
    before = contents(world.fs)
    for mode in ("r", "rw"):
        with pytest.raises(kc.Corruption, match="TABLE has seen edit"):
            world.open(mode)
    assert without_lock(contents(world.fs)) == without_lock(before)
    put(world.fs, MANIFEST, None)
    for mode in ("r", "rw"):
        with pytest.raises(kc.Corruption, match="ends at edit 0; TABLE"):
            world.open(mode)
    put(world.fs, MANIFEST, sound)
    assert world.keys() == list(range(ROWS))


def test_a_flush_leaves_evidence(world: World) -> None:
    """Also where the process dies after it: its CHECKPOINT knows of the edit."""
    table = world.create()
    table.insert({"k": [1, 2], "v": [0, 0]})
    table.flush()
    records = log_of(table).records
    table.flush()
    assert log_of(table).records == records, "nothing was flushed: nothing new to be told"
    drop(table)
    world.fs.kill()
    sound = world.fs.read_bytes(MANIFEST, 1 << 20)
    last = form.scan_edits(sound)[0][-1]
    put(world.fs, MANIFEST, sound[: last.offset])
    for mode in ("r", "rw"):
        with pytest.raises(kc.Corruption, match="CHECKPOINT has seen edit"):
            world.open(mode)
    put(world.fs, MANIFEST, sound)
    assert world.keys() == [1, 2]


def test_a_manifest_of_the_same_number_that_holds_less(world: World) -> None:
    """Forged, or of another history: what the log was dropped for is not in it."""
    table = world.create()
    table.insert({"k": [1], "v": [0]})
    table.flush()
    state = tablet_of(table).state
    drop(table)
    world.fs.kill()
    header = form.Header(table_file_of(table).uuid, 1)
    empty = form.lines_of([{"checkpoint": True, "next_file": 9, "next_rowset": 9}])
    frames = form.frames(header, form.HEADER.size, state.number, state.epoch, state.number, empty)
    put(world.fs, MANIFEST, header.pack() + b"".join(frames))
    for mode in ("r", "rw"):
        with pytest.raises(kc.Corruption, match="holds records up to 0; the log's last CHECKPOINT"):
            world.open(mode)


def test_a_tablet_of_which_a_checkpoint_knows_nothing(world: World) -> None:
    """A log that was dropped through X was dropped for every tablet that was there."""
    table = world.create()
    table.insert({"k": [1], "v": [0]})
    table.flush()
    log = log_of(table)
    log.checkpoint(log.committed_ts, {})
    drop(table)
    world.fs.kill()
    for mode in ("r", "rw"):
        with pytest.raises(kc.Corruption, match=r"without a word of tablet 1|older copy"):
            world.open(mode)


# ---- files that nothing names, and files that are named


def orphan(world: World, name: str = "000001-00000999.rows", data: bytes = b"orphan") -> None:
    put(world.fs, f"{TABLET}/{name}", data)


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
        for part in range(3):
            table.insert({"k": [part], "v": [0]})
            table.flush()
        table.compact(full=True)
        kept = len(world.data_files())
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
    with world.create(file_grace_s=3600) as table:
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

    from kudu_core.table.stored import table_file as state

    value = json.loads(table[state.HEADER.size :])
    value["edits"], value["clean_end"] = [], 0
    body = json.dumps(value).encode()
    head = state.HEADER.pack(state.MAGIC, 1, 0, len(body), state._crc(1, 0, body), 0)
    return head + body


def empty_checkpoint(world: World) -> None:
    """The log of the table as if it had been made today: no record, no CHECKPOINT."""
    from kudu_core.table.stored.table_file import read_state
    from kudu_core.wal import Log

    state = read_state(world.fs, f"{ROOT}/TABLE")
    world.fs.rmtree(f"{ROOT}/wal")
    world.fs.mkdir(f"{ROOT}/wal")
    last_ts = state.applied_ts
    Log.create(
        world.fs, f"{ROOT}/wal", state.uuid, state.epoch, clock=world.clock, last_ts=last_ts
    ).close()


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


# ---- a crash on the way


def crashes(world: World, seed: int, long: bool) -> Any:
    """What power cuts leave of an open for writing, at every call of it, or at some."""
    inner = world.fs.crash_clone(0, keep="all")
    fs = FaultyFileSystem(inner)
    kc.open_table(ROOT, "rw", _fs=fs, _clock=ManualClock(world.clock.now_us())).close()
    calls = range(1, fs.calls + 1)
    rng = random.Random(seed)
    for call in calls if long else sorted(rng.sample(calls, min(40, len(calls)))):
        inner = world.fs.crash_clone(0, keep="all")
        fs = FaultyFileSystem(inner, [Rule(nth=call, error="crash")])
        table = None
        with pytest.raises(SimulatedCrash):
            table = kc.open_table(ROOT, "rw", _fs=fs, _clock=ManualClock(world.clock.now_us()))
            table.close()
        drop(table)
        for keep in ("none", "all", "random"):
            yield call, World(inner.crash_clone(rng, keep=keep), ManualClock(world.clock.now_us() + 10))


def test_no_crash_loses_an_orphan(world: World, seed: int, long: bool) -> None:
    world.merged()
    orphan(world, data=b"the only copy")
    world.fs.sync_all()
    for call, left in crashes(world, seed, long):
        assert left.keys() == list(range(ROWS)), f"crash at {call}"
        held = [data for path, data in contents(left.fs).items() if "/tablets/" in path or "/lost/" in path]
        assert b"the only copy" in held, f"crash at {call}"


def test_no_crash_loses_a_file_on_its_way_back(world: World, seed: int, long: bool) -> None:
    world.merged()
    [name] = world.data_files()
    world.fs.mkdir(f"{ROOT}/lost")
    world.fs.rename(f"{TABLET}/{name}", f"{ROOT}/lost/0000000100-00000001-{name}")
    world.fs.sync_all()
    for call, left in crashes(world, seed, long):
        assert left.keys() == list(range(ROWS)), f"crash at {call}"


# ---- before anything is written


def spied(world: World) -> list[str]:
    """What an open for writing that is refused has changed, but for LOCK."""
    changed: list[str] = []

    class Spy(FaultyFileSystem):
        def _enter(self, op: str, path: str) -> Any:
            if op in CHANGES and not path.endswith("/LOCK"):
                changed.append(f"{op} {path}")
            return super()._enter(op, path)

    with pytest.raises(kc.KuduError):
        kc.open_table(ROOT, "rw", _fs=Spy(world.fs), _clock=world.clock)
    return changed


Change = Callable[[bytes], bytes | None]
WHOLE: dict[str, Change] = {
    "missing": lambda data: None,
    "empty": lambda data: b"",
    "half": lambda data: data[: len(data) // 2],
    "one byte less": lambda data: data[:-1],
    "first bit": lambda data: flip(data, 0),
    "middle bit": lambda data: flip(data, len(data) // 2),
    "zeros": lambda data: bytes(len(data)),
    "garbage behind": lambda data: data + b"garbage!" * 9,
}


@pytest.mark.parametrize("what", WHOLE)
@pytest.mark.parametrize("kind", ["TABLE", "MANIFEST", "log"])
def test_damage_is_found_before_anything_is_written(world: World, kind: str, what: str) -> None:
    world.merged()
    [segment] = [n for n in world.fs.listdir(f"{ROOT}/wal") if n.endswith(".log")]
    path = {"TABLE": f"{ROOT}/TABLE", "MANIFEST": MANIFEST, "log": f"{ROOT}/wal/{segment}"}[kind]
    sound = world.fs.read_bytes(path, 1 << 30)
    if kind == "log":
        sound = sound.rstrip(b"\0") + bytes(8)  # its records, which the clean close knows of
        put(world.fs, path, sound)
        if what in ("one byte less", "garbage behind"):
            assert world.keys() == list(range(ROWS))  # behind the end that TABLE knows, nothing counts
            return
    orphan(world)
    put(world.fs, path, WHOLE[what](sound))
    assert spied(world) == []
    put(world.fs, path, sound)
    assert world.keys() == list(range(ROWS))
