"""A manifest or TABLE that has lost edits deletes nothing, nor does a crash while files are put away."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

import kudu_core as kc
from kudu_core.tablet.store import manifest_format as form
from tests.support.clock import ManualClock
from tests.support.faults import drop
from tests.support.fs.faulty import CHANGES, FaultyFileSystem, Rule, SimulatedCrash
from tests.support.hostile.damage import contents, put
from tests.support.hostile.lost import MANIFEST, ROOT, ROWS, TABLET, World, flip, orphan, without_lock
from tests.support.inside import log_of, table_file_of, tablet_of

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
