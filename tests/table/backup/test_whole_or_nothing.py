"""A backup, a restore or a repair that raises has made nothing, whichever of its fsyncs failed."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import kudu_core as kc
from kudu_core.common.run.clock import Clock
from kudu_core.fs import posix
from kudu_core.table.backup.backup_place import place_at
from kudu_core.table.backup.restore import Fill, restore
from kudu_core.table.jobs.restore_job import filling
from kudu_core.table.lifecycle import beside
from kudu_core.table.lifecycle.locations import location_of
from kudu_core.table.opened.handle import Handle
from tests.support.inside import is_left_to_caller
from tests.support.tables import Make

MOST = 200


class Disk:
    """Counts fsyncs of files and folders, and has one of them fail, or that one and all after it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        self.fails: range = range(0)
        for name in ("fsync", "fdatasync"):
            monkeypatch.setattr(posix.os, name, self._counted(getattr(os, name)))

    def _counted(self, usual: Callable[[int], None]) -> Callable[[int], None]:
        def sync(descriptor: int) -> None:
            self.count += 1
            if self.count in self.fails:
                raise OSError(errno.EIO, "no fsync")
            usual(descriptor)

        return sync

    def failing(self, number: int, *, for_good: bool) -> None:
        self.count = 0
        self.fails = range(number, MOST if for_good else number + 1)


def failures(disk: Disk, call: Callable[[], object], *, for_good: bool) -> Iterator[int]:
    """After each failure of ``call``, the number of the fsync, 0 where it did not fail; until one is beyond
    those that it makes."""
    for number in range(1, MOST):
        disk.failing(number, for_good=for_good)
        try:
            call()
        except (OSError, kc.KuduError):
            failed = True
        else:
            failed = False
        disk.fails = range(0)
        if not failed and disk.count < number:
            return
        yield number if failed else 0  # it could do without
    raise AssertionError("more fsyncs than expected")


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(monkeypatch)


def restored(folder: Path, target: Path, fill: Fill | None = None) -> None:
    clock = Clock()
    place = place_at(folder, None, clock)
    restore(place, posix.PosixFileSystem(), location_of(target, clock=clock), None, clock, fill)


@pytest.mark.parametrize("for_good", [False, True])
def test_no_fsync_of_a_backup_fails_half(
    make: Make, path: Path, dst: Path, disk: Disk, for_good: bool
) -> None:
    with make() as table:
        table.insert({"k": list(range(20))})
    reader = kc.open_table(path)  # a writer whose log cannot be synced is poisoned
    made = 0
    for number in failures(disk, lambda: reader.backup(dst), for_good=for_good):
        there = [name for name in os.listdir(dst) if name != "LOCK"] if dst.exists() else []
        assert for_good or not there, f"fsync {number}"
        assert all(name.startswith(".") for name in there), f"fsync {number}: {there}"
        made += 1
    assert made > 3
    assert sorted(os.listdir(dst)) == ["00000001", "LOCK"]
    reader.close()
    kc.restore(dst, dst.parent / "restored").close()


@pytest.mark.parametrize("for_good", [False, True])
@pytest.mark.parametrize("how", ["restore", "repair"])
def test_no_fsync_of_a_table_made_beside_fails_half(
    make: Make, path: Path, dst: Path, disk: Disk, how: str, for_good: bool
) -> None:
    with make() as table:
        table.insert({"k": list(range(20))})
        table.backup(dst)
    target = dst.parent / "made" / "t"
    target.parent.mkdir()

    def call() -> None:
        if how == "restore":  # ``kc.restore`` opens it as well
            restored(dst, target)
        else:
            kc.repair(path, target, dry_run=False)

    made = 0
    for number in failures(disk, call, for_good=for_good):
        there = os.listdir(target.parent)
        assert number and "t" not in there, f"fsync {number}"
        assert for_good or not there, f"fsync {number}: {there}"
        made += 1
    assert made > 3
    assert os.listdir(target.parent) == ["t"]
    with kc.open_table(target) as table:
        assert table.count() == 20


def test_what_is_made_beside_is_closed_by_its_maker_alone(
    make: Make, dst: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else, where a close is cut short, a finalizer closes what was removed, or what stands there by then."""
    with make() as table:
        table.insert({"k": list(range(20))})
        table.backup(dst)
    kept: list[Handle] = []
    usual = beside.open_handle

    def opened(*args: Any, **keywords: Any) -> Handle:
        kept.append(usual(*args, **keywords))
        return kept[-1]

    def cut_short(*_: object) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(beside, "open_handle", opened)
    target = dst.parent / "restored"
    for fill in (None, filling(cut_short, cut_short)):
        if fill is None:
            kc.restore(dst, dst.parent / "whole")
        else:
            with pytest.raises(KeyboardInterrupt):
                restored(dst, target, fill)
    kc.repair(dst.parent / "whole", dry_run=False)
    assert len(kept) == 3 and all(map(is_left_to_caller, kept))
    assert not target.exists()


def test_whoever_fills_a_table_opens_it_so() -> None:
    """A rule for the next one: what makes tables beside their place opens them by ``open_beside`` alone."""
    package = Path(kc.__file__).parent
    makers = {
        str(file.relative_to(package))
        for file in package.rglob("*.py")
        if re.search(r"import .*\b(make_beside|open_beside|Fill)\b", file.read_text())
    }
    assert {"table/backup/restore.py", "table/jobs/restore_job.py", "table/repair/write_beside.py"} <= makers
    assert [name for name in makers if "open_handle" in (package / name).read_text()] == []
