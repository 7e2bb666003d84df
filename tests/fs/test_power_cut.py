"""What a power cut may take and what it may not, and how chosen calls fail.

The engine's crash tests stand on this: if ``MemoryFileSystem`` kept too much they would prove nothing,
if it lost too much they would refuse correct code.
"""

from __future__ import annotations

import errno
import random
from collections.abc import Callable
from typing import Any

import pytest

from kudu_core.fs import FileSystem, is_temporary
from tests.support.fs.faulty import CHANGES, FaultyFileSystem, Rule, SimulatedCrash
from tests.support.fs.memory import MemoryFileSystem

OLD, NEW = b"old" * 3000, b"new!" * 3000


def write(fs: FileSystem, path: str, data: bytes, *, sync: bool = True) -> Any:
    file = fs.create(path)
    file.append(data)
    if sync:
        file.sync()
    return file


def cuts(fs: MemoryFileSystem, seed: int, count: int = 200) -> list[MemoryFileSystem]:
    return [fs.crash_clone(seed + i) for i in range(count)]


def outcomes(fs: MemoryFileSystem, seed: int, look: Callable[[MemoryFileSystem], Any]) -> set[Any]:
    return {look(clone) for clone in cuts(fs, seed)}


# Power cuts ------------------------------------------------------------------------------------


def test_synced_data_under_a_synced_name_are_never_lost(memory: MemoryFileSystem, seed: int) -> None:
    file = write(memory, "/d/a", OLD)
    memory.sync_dir("/d")
    file.append(NEW)
    for clone in cuts(memory, seed):
        assert clone.read_bytes("/d/a", 1 << 20)[: len(OLD)] == OLD


def test_a_synced_file_is_lost_with_its_unsynced_name(memory: MemoryFileSystem, seed: int) -> None:
    write(memory, "/d/a", OLD)
    seen = outcomes(memory, seed, lambda fs: fs.exists("/d/a") and fs.read_bytes("/d/a", 1 << 20))
    assert seen == {False, OLD}
    assert not memory.crash_clone(keep="none").exists("/d/a")
    assert memory.crash_clone(keep="all").exists("/d/a")


def test_a_synced_name_does_not_save_the_data(memory: MemoryFileSystem, seed: int) -> None:
    write(memory, "/d/a", OLD, sync=False)
    memory.sync_dir("/d")
    lengths = outcomes(memory, seed, lambda fs: len(fs.read_bytes("/d/a", 1 << 20)))
    assert {0, len(OLD)} < lengths
    assert max(lengths) == len(OLD)
    assert memory.crash_clone(keep="none").read_bytes("/d/a", 1) == b""


def test_unsynced_writes_survive_in_any_part_torn_with_zeros_in_holes(
    memory: MemoryFileSystem, seed: int
) -> None:
    file = memory.create("/d/a")
    file.append(b"0" * 10)
    file.sync()
    memory.sync_dir("/d")
    for letter in (b"A", b"B", b"C"):
        file.append(letter * 10)
    seen = outcomes(memory, seed, lambda fs: fs.read_bytes("/d/a", 100))
    for data in seen:
        assert data[:10] == b"0" * 10
        for i, code in enumerate(b"ABC"):
            assert set(data[10 + 10 * i : 20 + 10 * i]) <= {code, 0}
    assert b"0" * 10 in seen
    assert b"0" * 10 + b"A" * 10 + b"B" * 10 + b"C" * 10 in seen
    assert b"0" * 10 + b"A" * 10 in seen  # in order
    assert any(b"\0" * 10 + b"B" in data for data in seen)  # out of order: a hole
    assert any(b"A" in data and data[11:20].count(b"A") not in (0, 9) for data in seen)  # torn
    assert any(set(data[10:]) == {0} for data in seen)  # only the new length was written


def test_a_long_write_may_survive_page_by_page(memory: MemoryFileSystem, seed: int) -> None:
    file = write(memory, "/d/a", bytes(40_000))
    memory.sync_dir("/d")
    file.pwrite(b"x" * 40_000, 0)
    seen = outcomes(memory, seed, lambda fs: fs.read_bytes("/d/a", 40_000))
    assert any(data[:4096] == bytes(4096) and b"x" in data for data in seen)


def test_a_truncation_may_be_lost_but_not_after_a_sync(memory: MemoryFileSystem, seed: int) -> None:
    file = write(memory, "/d/a", b"abcdef")
    memory.sync_dir("/d")
    file.truncate(3)
    assert outcomes(memory, seed, lambda fs: fs.read_bytes("/d/a", 9)) == {b"abcdef", b"abc"}
    file.sync(data_only=True)
    assert outcomes(memory, seed, lambda fs: fs.read_bytes("/d/a", 9)) == {b"abc"}


def test_a_rename_may_be_lost_until_the_directory_is_synced(memory: MemoryFileSystem, seed: int) -> None:
    write(memory, "/d/a", OLD)
    write(memory, "/d/b", NEW)
    memory.sync_dir("/d")
    memory.rename("/d/b", "/d/a")

    def look(fs: MemoryFileSystem) -> tuple[tuple[str, bytes], ...]:
        return tuple((name, fs.read_bytes(f"/d/{name}", 1 << 20)) for name in fs.listdir("/d"))

    assert outcomes(memory, seed, look) == {(("a", OLD), ("b", NEW)), (("a", NEW),)}
    memory.sync_dir("/d")
    assert outcomes(memory, seed, look) == {(("a", NEW),)}


def test_a_rename_between_directories_is_whole_until_one_is_synced(
    memory: MemoryFileSystem, seed: int
) -> None:
    memory.mkdir("/e")
    write(memory, "/d/a", OLD)
    memory.sync_all()
    memory.rename("/d/a", "/e/a")

    def look(fs: MemoryFileSystem) -> tuple[bool, bool]:
        return fs.exists("/d/a"), fs.exists("/e/a")

    assert outcomes(memory, seed, look) == {(True, False), (False, True)}
    memory.sync_dir("/d")  # the strictest reading of POSIX: gone here, and not yet there
    assert outcomes(memory, seed, look) == {(False, False), (False, True)}
    memory.sync_dir("/e")
    assert outcomes(memory, seed, look) == {(False, True)}


def test_an_unlink_may_be_lost_and_removals_reach_the_disk_in_any_order(
    memory: MemoryFileSystem, seed: int
) -> None:
    for name in ("a", "b"):
        write(memory, f"/d/{name}", OLD)
    memory.sync_dir("/d")
    memory.unlink("/d/a")
    memory.unlink("/d/b")
    seen = outcomes(memory, seed, lambda fs: tuple(fs.listdir("/d")))
    assert seen == {(), ("a",), ("b",), ("a", "b")}


def test_a_directory_is_lost_with_everything_in_it(memory: MemoryFileSystem, seed: int) -> None:
    memory.mkdir("/d/new")
    write(memory, "/d/new/a", OLD)
    memory.sync_dir("/d/new")
    seen = outcomes(memory, seed, lambda fs: fs.exists("/d/new") and fs.listdir("/d/new") == ["a"])
    assert seen == {True, False}
    memory.sync_dir("/d")
    assert outcomes(memory, seed, lambda fs: fs.read_bytes("/d/new/a", 1 << 20)) == {OLD}


def test_hard_links_are_one_file_after_a_cut(memory: MemoryFileSystem, seed: int) -> None:
    file = write(memory, "/d/a", b"x")
    memory.link("/d/a", "/d/b")
    memory.sync_dir("/d")
    file.append(b"yz")
    for clone in cuts(memory, seed, 50):
        assert clone.stat("/d/a").inode == clone.stat("/d/b").inode
        assert clone.read_bytes("/d/a", 9) == clone.read_bytes("/d/b", 9)
        assert clone.stat("/d/a") == clone.stat("/d/b")


def test_replace_file_is_atomic_in_every_cut(seed: int, long: bool) -> None:
    seen = set()
    for case in range(5000 if long else 500):
        rng = random.Random(seed + case)
        memory = MemoryFileSystem()
        memory.mkdir("/d")
        memory.replace_file("/d/TABLE", OLD)
        memory.sync_all()
        crashing = Rule(ops=CHANGES, nth=rng.randint(1, 6), error=rng.choice(["crash", "torn", errno.EIO]))
        fs = FaultyFileSystem(memory, [crashing], seed=seed + case)
        done = False
        try:
            fs.replace_file("/d/TABLE", NEW)
            done = True
        except (SimulatedCrash, OSError):
            pass
        clone = memory.crash_clone(rng)
        found = clone.read_bytes("/d/TABLE", 1 << 20)
        assert found in (OLD, NEW), f"seed {seed + case}"
        if done:
            assert found == NEW, f"seed {seed + case}"
        others = [name for name in clone.listdir("/d") if name != "TABLE"]
        assert all(map(is_temporary, others)), f"seed {seed + case}"
        clone.replace_file("/d/TABLE", b"next")  # what was left behind is in nobody's way
        seen.add((done, found == NEW, bool(others)))
    assert {(True, True, False), (False, False, False), (False, True, False), (False, False, True)} <= seen


def test_a_cut_of_a_cut_loses_nothing_more(memory: MemoryFileSystem, seed: int) -> None:
    write(memory, "/d/a", OLD, sync=False)
    for clone in cuts(memory, seed, 50):
        tree = {name: clone.read_bytes(f"/d/{name}", 1 << 20) for name in clone.listdir("/d")}
        again = clone.crash_clone(seed)
        assert {name: again.read_bytes(f"/d/{name}", 1 << 20) for name in again.listdir("/d")} == tree


def test_the_same_seed_gives_the_same_cut_and_cuts_are_independent(
    memory: MemoryFileSystem, seed: int
) -> None:
    write(memory, "/d/a", OLD, sync=False)
    memory.sync_dir("/d")
    one, two = memory.crash_clone(seed), memory.crash_clone(random.Random(seed))
    assert one.read_bytes("/d/a", 1 << 20) == two.read_bytes("/d/a", 1 << 20)
    identity = memory.identity("/d/a")
    one.replace_file("/d/a", b"changed")
    assert memory.read_bytes("/d/a", 1 << 20) == OLD
    assert memory.identity("/d/a") == identity
    assert one.identity("/d/a") != identity


def test_a_failed_sync_loses_what_a_later_one_reports_as_saved(memory: MemoryFileSystem, seed: int) -> None:
    write(memory, "/d/a", b"head").close()
    memory.sync_dir("/d")
    fs = FaultyFileSystem(memory, [Rule(ops={"sync"}, nth=1)])
    file = fs.open_write("/d/a")
    file.append(b"lost")
    with pytest.raises(OSError, match="error"):
        file.sync()
    file.append(b"kept")
    file.sync()
    assert fs.read_bytes("/d/a", 99) == b"headlostkept"  # the page cache still shows it
    assert outcomes(memory, seed, lambda m: m.read_bytes("/d/a", 99)) == {b"head\0\0\0\0kept"}

    fs.rules.append(Rule(ops={"sync_dir"}, nth=1))
    write(fs, "/d/b", b"b")
    with pytest.raises(OSError, match="error"):
        fs.sync_dir("/d")
    fs.sync_dir("/d")
    assert fs.exists("/d/b")
    assert outcomes(memory, seed, lambda m: m.exists("/d/b")) == {False}
