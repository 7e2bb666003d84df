"""Nothing is guessed, nothing is overwritten: one damaged bit anywhere in TABLE, a MANIFEST or the log.

The table is refused and nothing of it has changed, or it is what it was, or what a power cut could have left
of it; then what was not taken is in ``lost/``, bit for bit.  Once the bit is mended everything is back.

By default some bytes of each file, with ``--long`` every one.
"""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest

import kudu_core as kc
from tests.support.clock import ManualClock
from tests.support.faults import TINY, drop, segments_of
from tests.support.fs.memory import MemoryFileSystem
from tests.support.hostile.damage import Files, contents, kind_of, put
from tests.support.hostile.forge import log_records

pytestmark = pytest.mark.timeout(7200)  # --long takes its time

ROOT = "/tables/t"
SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64())])
TRIED = 24
KEYS = 14


def made(ending: str) -> tuple[MemoryFileSystem, ManualClock]:
    """Keys 0 to 13, one a call: in files, in a merge of files, in memory; two lives, ended in a way."""
    clock = ManualClock()
    fs = MemoryFileSystem(lambda: clock.now_us() / 1e6)
    fs.mkdir("/tables")
    fs.sync_all()
    durability = "none" if ending == "killed unsynced" else "sync"
    options = {"maintenance": "manual", "file_grace_s": 0, "durability": durability}
    table = kc.create_table(ROOT, SCHEMA, "k", options=options, _fs=fs, _clock=clock)

    def insert(table: kc.Table, keys: range) -> None:
        for key in keys:
            clock.advance(us=10)
            table.insert({"k": [key], "v": [key]})

    for begin in (0, 3):
        insert(table, range(begin, begin + 3))
        table.flush()
    table.compact(full=True)
    table.gc()
    insert(table, range(6, 8))
    table.close()
    table = kc.open_table(ROOT, "rw", _fs=fs, _clock=clock)
    insert(table, range(8, 11))
    table.flush()
    insert(table, range(11, KEYS))
    if ending == "closed":
        table.close()
    else:
        drop(table)
        fs.kill()
    if ending == "power cut":
        fs = fs.crash_clone(0, keep="none")
    fs.sync_all()
    return fs, clock


def rows(fs: MemoryFileSystem, clock: ManualClock, mode: str) -> list[int]:
    with kc.open_table(ROOT, mode, _fs=fs, _clock=ManualClock(clock.now_us() + 1000)) as table:
        found: list[int] = table.scan(["k"], order="key").to_table()["k"].to_pylist()
    return found


def without_lock(files: Files) -> Files:
    # Copies for repairs alone; a failed open may renew them.
    return {path: data for path, data in files.items() if not path.endswith(("/LOCK", ".copy"))}


def data_of(files: Files) -> set[bytes]:
    return {data for path, data in files.items() if kind_of(path) in ("rows", "delta") or "/lost/" in path}


@pytest.mark.parametrize("kind", ["TABLE", "MANIFEST", "log"])
@pytest.mark.parametrize("ending", ["closed", "killed", "power cut", "killed unsynced"])
def test_one_bit_of_every_byte(ending: str, kind: str, seed: int, long: bool) -> None:
    rng = random.Random(f"{seed}{ending}{kind}")
    with segments_of(TINY):
        disk, clock = made(ending)
        whole = list(range(KEYS))
        assert rows(disk.crash_clone(0, keep="all"), clock, "rw") == whole
        sound = contents(disk)
        places = [(path, at) for path in sound if kind_of(path) == kind for at in range(len(sound[path]))]
        outcomes = set()
        for path, at in places if long else rng.sample(places, min(TRIED, len(places))):
            bit = rng.randrange(8)
            where = f"{ending}: bit {bit} of byte {at} of {path}; --seed={seed}"
            damaged = bytearray(sound[path])
            damaged[at] ^= 1 << bit
            for mode in ("r", "rw"):
                fs = disk.crash_clone(0, keep="all")
                put(fs, path, bytes(damaged))
                before = without_lock(contents(fs))
                try:
                    found = rows(fs, clock, mode)
                except (kc.Corruption, kc.NotSupported):
                    outcomes.add("refused")
                    assert without_lock(contents(fs)) == before, where
                    put(fs, path, sound[path])
                    assert rows(fs, clock, "rw") == whole, where
                    continue
                outcomes.add("opened")
                # Nothing is missing but the end, and nothing of which anything says that it was synced: after
                # a power cut that took COMMITTED along nothing does of the very last record.
                assert found == whole[: len(found)], where
                assert len(found) >= {"killed unsynced": 11, "power cut": KEYS - 1}.get(ending, KEYS), where
                if mode == "r":
                    assert without_lock(contents(fs)) == before, where
                    continue
                after = contents(fs)
                assert data_of(before) <= data_of(after), where
                if found != whole:
                    outcomes.add("shorter")
                    kept = [data for name, data in after.items() if "/lost/" in name]
                    assert bytes(damaged) in kept, f"{where}: the end of the log is gone"
        assert "refused" in outcomes


def test_an_end_that_looks_like_damage_is_kept(seed: int) -> None:
    """A record whose bit nothing tells from a tear: the segment is in ``lost/``, with all that follows."""
    with segments_of(TINY):
        disk, clock = made("killed unsynced")
        sound = contents(disk)
        path = max(path for path in sound if kind_of(path) == "log")
        begin, length = log_records(sound[path])[-1]
        shorter = 0
        for at in range(begin, begin + length, 5):
            fs = disk.crash_clone(0, keep="all")
            damaged = bytearray(sound[path])
            damaged[at] ^= 4
            put(fs, path, bytes(damaged))
            found: Any = rows(fs, clock, "rw")
            kept = [data for name, data in contents(fs).items() if "/lost/" in name]
            assert (bytes(damaged) in kept) == (found != list(range(KEYS)))
            shorter += found != list(range(KEYS))
        assert shorter
