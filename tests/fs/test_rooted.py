"""A folder and nothing else: no call of a rooted file system follows a link beneath it, or leads out."""

from __future__ import annotations

import os
import pickle
import random
import threading
import time
from array import array
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kudu_core.errors import Corruption, InvalidArgument
from kudu_core.fs import FileSystem, PosixFileSystem, base
from tests.support.fs.faulty import FaultyFileSystem
from tests.support.fs.memory import MemoryFileSystem

SECRET = b"of the world outside"


class World:
    """A folder ``t`` with files and folders, and one ``out`` beside it with some of the same names."""

    def __init__(self, kind: str, tmp_path: Path) -> None:
        self.memory = MemoryFileSystem(now_s=time.time)
        self.memory.mkdir("/d")
        whole: FileSystem = PosixFileSystem() if kind == "posix" else self.memory
        self.top = str(tmp_path) if kind == "posix" else "/d"
        self.plain = whole
        self.root, self.out = f"{self.top}/TBL", f"{self.top}/out"
        for folder in (self.root, self.out):
            for name in ("", "/a", "/a/b", "/a/b/c"):
                whole.mkdir(folder + name)
                whole.replace_file(f"{folder}{name}/f", SECRET)
        self.counted = FaultyFileSystem(whole)
        self.fs = (self.counted if kind == "faulty" else whole).rooted(self.root)

    def symlink(self, target: str, path: str) -> None:
        if isinstance(self.plain, MemoryFileSystem):
            self.plain.symlink(target, path)
        else:
            os.symlink(target, path)

    def replace(self, path: str, target: str) -> None:
        """Put a link in the place of a folder or a file."""
        try:
            self.plain.unlink(path)
        except OSError:
            self.plain.rmtree(path)
        self.symlink(target, path)

    def picture(self, folder: str) -> list[Any]:
        found: list[Any] = []
        for name in self.plain.listdir(folder):
            path = f"{folder}/{name}"
            stat = self.plain.stat(path)
            found.append((path, stat.inode, stat.mtime_s))
            if self.plain.is_dir(path):
                found += self.picture(path)
            else:
                found.append(self.plain.read_bytes(path, 1000))
        return found


@pytest.fixture(params=["posix", "memory", "faulty"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> World:
    return World(request.param, tmp_path)


def top(folder: str) -> str:
    """The folder that the file system is rooted at."""
    return folder[: folder.index("/TBL") + 4]


CALLS: dict[str, Callable[[FileSystem, str], object]] = {
    "open_read": lambda fs, folder: fs.open_read(f"{folder}/f"),
    "open_write": lambda fs, folder: fs.open_write(f"{folder}/f"),
    "create": lambda fs, folder: fs.create(f"{folder}/new"),
    "read_bytes": lambda fs, folder: fs.read_bytes(f"{folder}/f", 100),
    "replace_file": lambda fs, folder: fs.replace_file(f"{folder}/f", b"x"),
    "mkdir": lambda fs, folder: fs.mkdir(f"{folder}/new"),
    "mkdir exist_ok": lambda fs, folder: fs.mkdir(f"{folder}/a", exist_ok=True),
    "sync_dir": lambda fs, folder: fs.sync_dir(folder),
    "rename from": lambda fs, folder: fs.rename(f"{folder}/f", f"{top(folder)}/moved"),
    "rename to": lambda fs, folder: fs.rename(f"{top(folder)}/f", f"{folder}/moved"),
    "link from": lambda fs, folder: fs.link(f"{folder}/f", f"{top(folder)}/linked"),
    "link to": lambda fs, folder: fs.link(f"{top(folder)}/f", f"{folder}/linked"),
    "unlink": lambda fs, folder: fs.unlink(f"{folder}/f"),
    "unlink missing": lambda fs, folder: fs.unlink(f"{folder}/none", missing_ok=True),
    "rmdir": lambda fs, folder: fs.rmdir(f"{folder}/a"),
    "rmtree": lambda fs, folder: fs.rmtree(f"{folder}/a"),
    "rmtree itself": lambda fs, folder: fs.rmtree(folder),
    "listdir": lambda fs, folder: fs.listdir(folder),
    "exists": lambda fs, folder: fs.exists(f"{folder}/f"),
    "is_dir": lambda fs, folder: fs.is_dir(f"{folder}/a"),
    "stat": lambda fs, folder: fs.stat(f"{folder}/f"),
    "identity": lambda fs, folder: fs.identity(f"{folder}/f"),
}
"""On a folder that is a link."""


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_a_folder_that_is_a_link_is_refused(world: World, call: Callable[[FileSystem, str], object]) -> None:
    before = world.picture(world.out)
    for way, lead in (
        ("/a/b/c", f"{world.out}/a/b/c"),
        ("/a/b", "../../out/a/b"),
        ("/a", f"{world.out}/a"),
        ("/a", "../out/a"),
        ("/a", "/nowhere"),
    ):
        world.replace(world.root + way, lead)
        inside = world.plain.listdir(world.root)
        with pytest.raises(Corruption, match=r"TBL(/[abc])+ at byte 0: a link stands here"):
            call(world.fs, world.root + way)
        assert world.picture(world.out) == before
        assert world.plain.listdir(world.root) == inside


OPENING = ("open_read", "open_write", "read_bytes", "identity")


@pytest.mark.parametrize("name", OPENING)
@pytest.mark.parametrize("way", ["", "/a", "/a/b"])
def test_a_file_that_is_a_link_is_refused(world: World, name: str, way: str) -> None:
    world.replace(f"{world.root}{way}/f", f"{world.out}/f")
    before = world.picture(world.out)
    with pytest.raises(Corruption, match=r"/f at byte 0: a link stands here"):
        CALLS[name](world.fs, world.root + way)
    with pytest.raises(FileExistsError):
        world.fs.create(f"{world.root}{way}/f")
    assert world.fs.exists(f"{world.root}{way}/f") and not world.fs.is_dir(f"{world.root}{way}/f")
    world.fs.replace_file(f"{world.root}{way}/f", b"mine")  # takes the link's place
    assert world.fs.read_bytes(f"{world.root}{way}/f", 9) == b"mine"
    assert world.picture(world.out) == before


def test_a_link_is_given_no_second_name(world: World) -> None:
    world.replace(f"{world.root}/a/f", f"{world.out}/f")
    with pytest.raises(Corruption, match="a link stands here"):
        world.fs.link(f"{world.root}/a/f", f"{world.root}/linked")
    assert not world.fs.exists(f"{world.root}/linked")


@pytest.mark.parametrize("name", OPENING)
def test_a_folder_is_no_file(world: World, name: str) -> None:
    world.plain.unlink(f"{world.root}/a/f")
    world.plain.mkdir(f"{world.root}/a/f")
    with pytest.raises(Corruption, match="no regular file"):
        CALLS[name](world.fs, f"{world.root}/a")


@pytest.mark.parametrize("name", CALLS)
def test_a_file_is_no_folder(world: World, name: str) -> None:
    """Wherever a folder belongs, and whatever is done with it."""
    for way in ("/a/b/c", "/a/b", "/a"):
        world.plain.rmtree(world.root + way)
        world.plain.create(world.root + way).close()
        inside = world.plain.listdir(world.root)
        if name in ("exists", "is_dir"):
            assert CALLS[name](world.fs, f"{world.root}/a/b/c") is False
            continue
        with pytest.raises(Corruption, match="something that is no folder") as caught:
            CALLS[name](world.fs, f"{world.root}/a/b/c")
        assert caught.value.path == world.root + way
        assert world.plain.listdir(world.root) == inside
        again = pickle.loads(pickle.dumps(caught.value))
        assert type(again) is type(caught.value) and str(again) == str(caught.value)


@pytest.mark.parametrize("name", OPENING)
def test_a_pipe_is_no_file_and_nobody_waits_for_its_other_end(tmp_path: Path, name: str) -> None:
    world = World("posix", tmp_path)
    os.unlink(f"{world.root}/a/f")
    os.mkfifo(f"{world.root}/a/f")
    with pytest.raises(Corruption, match="no regular file"):
        CALLS[name](world.fs, f"{world.root}/a")
    os.mkfifo(f"{world.root}/LOCK")
    for call in (lambda lease: lease.holder(), lambda lease: lease.try_acquire()):
        with pytest.raises(Corruption, match="no regular file"):
            call(world.fs.lease(f"{world.root}/LOCK"))


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_a_path_that_leads_out_is_refused(world: World, call: Callable[[FileSystem, str], object]) -> None:
    before = world.picture(world.top)
    for way in ("/..", "/../out", "/a/../../out", "/a/..", "//a", "/./a", "x", "/a\0"):
        with pytest.raises(InvalidArgument, match="is no path in"):
            call(world.fs, world.root + way)
    for path in (world.out, world.top, "TBL/f", ""):
        with pytest.raises(InvalidArgument, match="is no path in"):
            world.fs.read_bytes(path, 100)
    assert world.picture(world.top) == before


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_every_call_works_as_without_a_root(
    request: pytest.FixtureRequest, tmp_path: Path, call: Callable[[FileSystem, str], object]
) -> None:
    for kind in ("posix", "memory", "faulty"):
        seen = []
        for rooted in (False, True):
            place = tmp_path / kind / str(rooted)
            place.mkdir(parents=True)
            world = World(kind, place)
            try:
                call(world.fs if rooted else world.plain, f"{world.root}/a/b")
                error = None
            except OSError as exc:
                error = exc.errno, str(exc.filename).replace(world.top, "")
            names = [entry[0] for entry in world.picture(world.root) if isinstance(entry, tuple)]
            seen.append((error, [name.replace(world.top, "") for name in names]))
        assert seen[0] == seen[1], kind


def test_the_users_path_may_be_a_link(world: World) -> None:
    world.symlink(world.root, f"{world.top}/link")
    fs = world.plain.rooted(f"{world.top}/link")
    path = f"{world.top}/link"
    fs.replace_file(f"{path}/g", b"1")
    fs.sync_dir(path)
    assert fs.is_dir(path) and fs.read_bytes(f"{path}/g", 9) == b"1" and "g" in fs.listdir(path)
    assert fs.listdir(f"{path}/a/b") == world.fs.listdir(f"{world.root}/a/b")
    lease = fs.lease(f"{path}/LOCK")
    lease.try_acquire()
    assert world.fs.lease(f"{world.root}/LOCK").holder() is not None
    lease.release()
    with pytest.raises(InvalidArgument, match="no lease"):
        fs.lease(f"{path}/a/LOCK")


def test_a_view_of_a_view_is_of_the_whole(world: World) -> None:
    other = world.fs.rooted(world.out)
    assert other.read_bytes(f"{world.out}/f", 100) == SECRET
    with pytest.raises(InvalidArgument):
        other.read_bytes(f"{world.root}/f", 100)


def test_calls_of_a_view_are_counted_and_fail_with_the_others(tmp_path: Path) -> None:
    world = World("faulty", tmp_path)
    world.fs.read_bytes(f"{world.root}/a/f", 100)
    assert world.counted.counts["open_read"] == 1
    world.counted.crash()
    with pytest.raises(Exception, match="stopped"):
        world.fs.exists(f"{world.root}/a")


def test_a_file_with_another_name_is_not_written_to(world: World) -> None:
    """A table that was copied with hard links shares its files with the copy."""
    world.plain.link(f"{world.root}/a/f", f"{world.out}/shared")
    before = world.picture(world.out)
    file = world.fs.open_write(f"{world.root}/a/f")
    file.append(b" and more")
    file.pwrite(b"O", 0)
    file.truncate(5)
    file.close()
    assert world.fs.read_bytes(f"{world.root}/a/f", 100) == b"Of th"
    assert world.picture(world.out) == before
    assert not any(map(base.is_temporary, world.fs.listdir(f"{world.root}/a")))


def test_a_lease_writes_nothing_into_a_file_with_another_name(tmp_path: Path) -> None:
    world = World("posix", tmp_path)
    os.link(f"{world.out}/f", f"{world.root}/LOCK")
    before = world.picture(world.out)
    lease = world.fs.lease(f"{world.root}/LOCK")
    lease.try_acquire()
    assert lease.held and world.picture(world.out) == before
    lease.release()


def test_removing_a_tree_removes_links_and_not_what_they_lead_to(world: World) -> None:
    world.symlink(world.out, f"{world.root}/a/up")
    world.symlink(f"{world.out}/f", f"{world.root}/a/b/file")
    world.symlink("/nowhere", f"{world.root}/a/b/c/dangling")
    before = world.picture(world.out)
    world.fs.rmtree(f"{world.root}/a")
    assert world.plain.listdir(world.root) == ["f"] and world.picture(world.out) == before


def test_folders_without_end_are_not_gone_down(world: World) -> None:
    deep = f"{world.root}/a"
    for _ in range(base.MAX_DEPTH + 1):
        deep += "/d"
        world.plain.mkdir(deep)
    with pytest.raises(OSError, match="folders in one another"):
        world.fs.rmtree(f"{world.root}/a")


def test_a_folder_that_is_exchanged_for_a_link_meanwhile(tmp_path: Path, long: bool) -> None:
    """Real races: whatever the moment, what is outside stays as it is."""
    world = World("posix", tmp_path)
    world.plain.rmtree(f"{world.root}/a/b/c")
    os.rename(f"{world.root}/a/b", f"{world.top}/real")
    os.symlink(f"{world.out}/a/b", f"{world.top}/false")
    os.rename(f"{world.top}/real", f"{world.root}/a/b")
    before = world.picture(world.out)
    stop = threading.Event()

    def exchange() -> None:
        while not stop.is_set():
            os.rename(f"{world.root}/a/b", f"{world.top}/real")
            os.rename(f"{world.top}/false", f"{world.root}/a/b")
            os.rename(f"{world.root}/a/b", f"{world.top}/false")
            os.rename(f"{world.top}/real", f"{world.root}/a/b")

    calls = [CALLS[name] for name in ("create", "replace_file", "mkdir", "unlink", "rmtree", "listdir")]
    thread = threading.Thread(target=exchange)
    thread.start()
    done = refused = 0
    rng = random.Random(7)
    try:
        while done < (20_000 if long else 1_000) or not refused:
            assert thread.is_alive()
            done += 1
            try:
                rng.choice(calls)(world.fs, f"{world.root}/a/b")
            except Corruption:
                refused += 1
            except OSError as exc:
                assert not isinstance(exc, PermissionError)  # not there at this moment, or there already
    finally:
        stop.set()
        thread.join()
    assert world.picture(world.out) == before


@pytest.mark.parametrize(
    "data",
    [
        b"\1\0\2\0",
        array("h", [1, 2]),
        memoryview(b"\1\0\2\0").cast("B", (2, 2)),
        [array("h", [1]), b"", bytearray(b"\2\0")],
    ],
    ids=["bytes", "numbers", "two dimensions", "several"],
)
def test_what_is_written_is_counted_in_bytes(data: Any) -> None:
    """A write that was cut short goes on in the middle of a buffer."""
    views = base.byte_views(data)
    assert all((view.format, view.ndim) == ("B", 1) for view in views)
    assert b"".join(bytes(view[:1]) + bytes(view[1:]) for view in views) == b"\1\0\2\0"
