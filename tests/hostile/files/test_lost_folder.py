"""A `lost/` from elsewhere: links and odd names in it, or in its place.  Opening, sweeping, verifying and
repairing touch nothing outside, and sweep no name but ours."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

import kudu_core as kc
from tests.support.hostile.links import KINDS, SCHEMA, aged, home, replace, world
from tests.support.inside import sweep_lost_soon

OPTIONS = {"maintenance": "manual", "file_grace_s": 0, "lost_grace_s": 3600.0}
LONG_AGO = 1_000_000_000
"""In seconds since 1970: the grace is over."""
AHEAD = 99_999_999_999


def make(path: Path) -> None:
    """A table one of whose files lies in `lost/`, beside others that nothing names: some of long ago."""
    with kc.create_table(path, SCHEMA, "k", options=OPTIONS) as table:
        for first in (0, 10):
            table.upsert({"k": list(range(first, first + 10)), "v": ["x"] * 10})
            table.flush()
    lost = path / "lost"
    lost.mkdir(exist_ok=True)
    one, two = sorted((path / "tablets" / "00000001").glob("*.rows"))
    for moved_s in (LONG_AGO, AHEAD):
        shutil.copy(one, lost / f"{moved_s:010d}-00000001-000001-00000077.rows")
        folder = lost / f"{moved_s:010d}-00000009-tablet"
        folder.mkdir()
        shutil.copy(one, folder / one.name)
        (lost / f"{moved_s:010d}-00000000-log-00000001-0000000001.log").write_bytes(b"x" * 100)
    two.rename(lost / f"{AHEAD:010d}-00000001-{two.name}")


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("sound") / "t"
    make(path)
    return path


def use(path: Path) -> dict[str, object]:
    """Open, sweep, verify and repair it; what each call came to."""
    told: dict[str, object] = {}

    def call(name: str, made: object) -> None:
        try:
            told[name] = made() if callable(made) else made
        except (kc.KuduError, OSError) as error:
            told[name] = error

    before = world(path)
    call("repair", lambda: kc.repair(path))
    assert world(path) == before
    call("read", lambda: read(path))
    call("write", lambda: write(path))
    call("repair after", lambda: kc.repair(path, dry_run=False))
    return told


def read(path: Path) -> int:
    with kc.open_table(path) as table:
        table.verify()
        return table.count()


def write(path: Path) -> int:
    with kc.open_table(path, "rw") as table:
        sweep_lost_soon(table)
        table.maintain()
        table.gc()
        table.stats()
        table.verify()
        return table.count()


def test_as_it_is(tmp_path: Path, sound: Path) -> None:
    """What is named comes back, what was there too long goes."""
    shutil.copytree(sound, tmp_path / "t")
    told = use(tmp_path / "t")
    assert isinstance(told["read"], kc.Corruption) and told["write"] == 20, told
    assert isinstance(told["repair"], kc.RepairReport) and told["repair"].rows_kept == 20
    left = os.listdir(tmp_path / "t" / "lost")
    assert len(left) == 3 and all(name.startswith(str(AHEAD)) for name in left)


@pytest.mark.parametrize("kind", KINDS)
def test_links_in_lost(tmp_path: Path, sound: Path, kind: str) -> None:
    entries = ["lost", *sorted(str(entry.relative_to(sound)) for entry in sound.glob("lost/**/*"))]
    assert len(entries) >= 10
    for number, name in enumerate(entries):
        place = tmp_path / f"{number}"
        outside = home(place)
        shutil.copytree(sound, place / "t")
        if not replace(place / "t" / name, kind, outside):
            continue
        before = aged(outside)
        told = use(place / "t")
        what = f"{name} as a {kind}: {told}"
        assert world(outside) == before, what
        assert set(os.listdir(place)) <= {"house", "t", "t.repaired"}, what
        for step in ("repair", "repair after"):
            assert isinstance(told[step], kc.RepairReport), what
        if not name.endswith("00000002.rows") and name != "lost":
            assert told["write"] == 20, what


def test_a_link_of_the_right_size_is_not_brought_back(tmp_path: Path, sound: Path) -> None:
    """In the place of a file that is named: as long as that, and another's."""
    path, outside = tmp_path / "t", home(tmp_path)
    shutil.copytree(sound, path)
    (kept,) = (entry for entry in (path / "lost").iterdir() if entry.name.endswith("00000002.rows"))
    size = kept.stat().st_size
    kept.unlink()
    target = "../../house/" + "x" * (size - len("../../house/")) if size < 4000 else "../../house/letter"
    kept.symlink_to(target)
    assert kept.lstat().st_size == size
    before, names = aged(outside), sorted(os.listdir(path / "lost"))
    with pytest.raises(kc.Corruption):
        kc.open_table(path, "rw")
    assert world(outside) == before
    assert kept.is_symlink() and sorted(os.listdir(path / "lost")) == names, "nothing was moved or deleted"


ODD = (
    b"1000000000-00000009-tabletx",
    b"1000000000-00000009-TABLE",
    b"1000000000-00000009-..",
    b"1000000000-00000009-000001-00000001.rows\n",
    b"1000000000-00000009-000001-00000001.rows.tmp",
    b"100000000-00000009-tablet",
    b"1000000000-9-tablet",
    b"1000000000-00000009-log-00000001-0000000001.log.x",
    b"1000000000-00000009-home\xff\xfe",
    b"-1000000000-00000009-tablet",
    "\u0661\u0660\u0660\u0660\u0660\u0660\u0660\u0660\u0660\u0660-00000009-tablet".encode(),
    b"thesis",
    b"...",
    b"x" * 255,
)


def test_odd_names_are_left_alone(tmp_path: Path, sound: Path) -> None:
    """Files, folders and links, however old."""
    path, outside = tmp_path / "t", home(tmp_path)
    shutil.copytree(sound, path)
    lost = os.fsencode(path / "lost")
    for number, name in enumerate(ODD):
        at = lost + b"/" + name
        if number % 3 == 0:
            os.mkdir(at)
            os.symlink(outside, at + b"/inner")
        elif number % 3 == 1:
            os.symlink(outside, at)
        else:
            os.close(os.open(at, os.O_CREAT))
    before = aged(outside)
    told = use(path)
    assert told["write"] == 20 and isinstance(told["repair"], kc.RepairReport), told
    assert world(outside) == before
    left = os.listdir(lost)
    assert set(ODD) <= set(left)
    with kc.open_table(path) as table:
        found = table.verify().foreign
    assert len([name for name in found if name.startswith("lost/")]) == len(ODD)


def test_numbers_that_are_absurd(tmp_path: Path, sound: Path) -> None:
    """Times and tablets that no table has had: kept, or swept as what they are called."""
    path, outside = tmp_path / "t", home(tmp_path)
    shutil.copytree(sound, path)
    names = [
        f"{'9' * 12}-00000001-tablet",
        f"{'0' * 12}-{'9' * 10}-000001-00000001.rows",
        f"{'0' * 10}-{'0' * 8}-{'9' * 10}-{'9' * 20}.delta",
    ]
    for name in names:
        os.symlink(outside, path / "lost" / name)
    before = aged(outside)
    assert use(path)["write"] == 20
    assert world(outside) == before
    assert names[0] in os.listdir(path / "lost")
