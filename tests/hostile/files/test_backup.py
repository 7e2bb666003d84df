"""A folder of backups from elsewhere: links in it, and descriptions that lie although their checksums are
good. A restore gives what is there or an error of ours, and touches nothing but the new table."""

from __future__ import annotations

import json
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import kudu_core as kc
from kudu_core.table.backup import backup_manifest as backup_format
from tests.support.guard import at_most, within
from tests.support.hostile.forge import HOSTILE, MEMORY, another, encoded, places
from tests.support.hostile.links import KINDS, OPTIONS, SCHEMA, aged, home, replace, world

CASES, LONG_CASES = 40, 5000
SECONDS = 20.0


def back_up(folder: Path, table_path: Path) -> dict[int, str]:
    """A full backup and one that continues it."""
    with kc.create_table(
        table_path, SCHEMA, "k", partition_by=kc.HashPartition("k", 2), options=OPTIONS
    ) as table:
        table.upsert({"k": list(range(20)), "v": ["x"] * 20})
        table.backup(folder)
        table.upsert({"k": [3, 30], "v": ["y", "y"]})
        table.delete({"k": [4]})
        table.backup(folder, since="last")
        return {row["k"]: row["v"] for row in table.scan().to_pylist()}


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[int, str]]:
    place = tmp_path_factory.mktemp("sound")
    return place / "backups", back_up(place / "backups", place / "t")


class Around:
    """What lies beside backups and target: somebody's files, and another table."""

    def __init__(self, place: Path, backups: Path) -> None:
        self.place = place
        self.outside = home(place)
        shutil.copytree(backups, place / "backups", symlinks=True)
        (place / "neighbour").mkdir()
        (place / "neighbour" / "TABLE").write_text("another's")

    def held(self) -> None:
        """Now everything is as it is to stay."""
        self.before = aged(self.outside), world(self.place / "neighbour"), world(self.place / "backups")

    def restore(self, what: str, **given: Any) -> dict[int, str] | None:
        """The rows of the restored table; None: refused.  The world outside is the same."""
        target = self.place / "restored"
        rows: dict[int, str] | None = None
        try:
            with (
                within(SECONDS),
                at_most(MEMORY),
                kc.restore(self.place / "backups", target, **given) as made,
            ):
                made.verify()
                rows = {row["k"]: row["v"] for row in made.scan().to_pylist()}
        except (kc.KuduError, OSError):
            assert not target.exists(), f"{what}: refused, and there is a table"
        except BaseException as error:
            error.add_note(what)
            raise
        assert self.before == (
            world(self.outside),
            world(self.place / "neighbour"),
            world(self.place / "backups"),
        ), what
        wanted = {"backups", "house", "neighbour"} | ({"restored"} if rows is not None else set())
        assert set(os.listdir(self.place)) == wanted, what
        if rows is not None:
            shutil.rmtree(target)
        return rows


@pytest.mark.parametrize("kind", KINDS)
def test_links_in_a_folder_of_backups(tmp_path: Path, sound: tuple[Path, dict[int, str]], kind: str) -> None:
    backups, wanted = sound
    entries = sorted(str(entry.relative_to(backups)) for entry in backups.rglob("*"))
    assert len(entries) >= 7, entries
    refused = 0
    for number, name in enumerate(entries):
        around = Around(tmp_path / f"{number}", backups)
        if not replace(around.place / "backups" / name, kind, around.outside):
            continue
        around.held()
        found = around.restore(f"{name} as a {kind}")
        assert found in (None, wanted), name
        refused += found is None
    assert refused >= len(entries) - 3, "only LOCK, and folders that cannot be linked, may be something else"


@pytest.mark.parametrize("kind", KINDS)
def test_a_backup_into_a_hostile_folder(tmp_path: Path, kind: str) -> None:
    """Nothing is swept, written or read through a link: neither what has a number nor what is unfinished."""
    backups, table_path = tmp_path / "made", tmp_path / "t"
    wanted = back_up(backups, table_path)
    names = sorted(str(entry.relative_to(backups)) for entry in backups.rglob("*"))
    unfinished = f".00000003.{'a' * 32}.tmp"
    for number, name in enumerate([*names, unfinished, f"{unfinished}/rows-000001.arrow"]):
        place = tmp_path / f"{number}"
        outside = home(place)
        shutil.copytree(backups, place / "backups")
        (place / "backups" / unfinished).mkdir()
        (place / "backups" / unfinished / "rows-000001.arrow").write_text("x")
        if not replace(place / "backups" / name, kind, outside):
            continue
        before = aged(outside)
        with kc.open_table(table_path, "rw") as table:
            for since in (None, "last"):
                try:
                    table.backup(place / "backups", since)
                except (kc.KuduError, OSError):
                    continue
            assert {row["k"]: row["v"] for row in table.scan().to_pylist()} == wanted
        assert world(outside) == before, f"{name} as a {kind}"
        assert set(os.listdir(place)) == {"house", "backups"}, name


# ---- beside the target


@pytest.mark.parametrize("what", ["restore", "repair"])
@pytest.mark.parametrize("link", ["", "BUSY", "table", "more"])
def test_a_link_among_what_others_left_beside_the_target(
    tmp_path: Path, sound: tuple[Path, dict[int, str]], what: str, link: str
) -> None:
    """A folder with a temporary name of the target, with a lease that nobody holds, is swept if it is one."""
    outside = home(tmp_path)
    backups, wanted = sound
    target = tmp_path / "made"
    leftover = tmp_path / f".made.{'b' * 32}.tmp"
    if link:
        leftover.mkdir()
        (leftover / "BUSY").touch()
        (leftover / link).unlink(missing_ok=True)
        (leftover / link).symlink_to(outside / link if (outside / link).exists() else outside)
    else:
        leftover.symlink_to(outside)
    before = aged(outside)
    try:
        if what == "restore":
            kc.restore(backups, target).close()
        else:
            kc.repair(backups.parent / "t", target, dry_run=False)
    except (kc.KuduError, OSError):
        assert not target.exists()
    assert world(outside) == before
    if target.exists():
        with kc.open_table(target) as made:
            assert {row["k"]: row["v"] for row in made.scan().to_pylist()} == wanted


# ---- descriptions that lie


def described(path: Path) -> Any:
    return json.loads(path.read_bytes()[backup_format.HEADER.size :])


def describe(path: Path, value: Any) -> None:
    """A manifest with another text, and a checksum that says it is sound."""
    path.write_bytes(backup_format.ENVELOPE.around(encoded(value)))


def with_runs(name: object) -> Callable[[Any], None]:
    def change(value: Any) -> None:
        value["runs"][0][0] = name

    return change


def with_member(name: str, found: object) -> Callable[[Any], None]:
    return lambda value: value.__setitem__(name, found)


NAMES = (
    "../../house/letter",
    "/etc/passwd",
    "..",
    ".",
    "",
    "../00000002/rows-000001.arrow",
    "BACKUP/",
    "a\0b",
    5,
)
LIES: dict[str, Callable[[Any], None]] = {
    **{f"a run named {name!r}": with_runs(name) for name in NAMES},
    **{f"total {n}": with_member("total", n) for n in (0, 2**63, -1, 10**30)},
    **{f"since {n}": with_member("since", n) for n in (0, 1, 2**63, 2**64)},
    **{f"timestamp {n}": with_member("timestamp", n) for n in (0, 2**63, 2**64 - 2**32 - 1)},
    **{f"uuid {n!r}": with_member("uuid", n) for n in ("", "00" * 16, "../..", None)},
    "runs twice": lambda value: value["runs"].extend(value["runs"]),
    "no runs": lambda value: value.update(runs=[], counts=[0, 0, 0]),
    "rows of the run": lambda value: value["runs"][0].__setitem__(1, 2**63),
    "size of the run": lambda value: value["runs"][0].__setitem__(2, 2**63),
}


HARMLESS = {1: ("total",), 2: ("no runs", "timestamp")}
"""What nobody needs of the backup that another one continues; that nothing was done; of another time."""


@pytest.mark.parametrize("number", [1, 2])
def test_descriptions_that_lie(tmp_path: Path, sound: tuple[Path, dict[int, str]], number: int) -> None:
    backups, wanted = sound
    around = Around(tmp_path / "place", backups)
    file = around.place / "backups" / f"{number:08d}" / "BACKUP"
    good = described(file)
    for what, lie in LIES.items():
        value = json.loads(json.dumps(good))
        lie(value)
        describe(file, value)
        around.held()
        found = around.restore(f"backup {number}: {what}")
        assert found is None or what.startswith(HARMLESS[number]), what
    describe(file, good)
    around.held()
    assert around.restore("as it was") == wanted


def test_every_member_of_a_description(
    tmp_path: Path, sound: tuple[Path, dict[int, str]], seed: int, long: bool
) -> None:
    """One member is another; ids of columns and partitions are members too."""
    rng = random.Random(seed)
    backups, _ = sound
    around = Around(tmp_path / "place", backups)
    files = sorted((around.place / "backups").glob("*/BACKUP"))
    good = {file: described(file) for file in files}
    outcomes = {True: 0, False: 0}
    for _ in range(LONG_CASES if long else CASES):
        file = rng.choice(files)
        what, value = another(rng, good[file])
        describe(file, value)
        around.held()
        outcomes[around.restore(f"{file.parent.name}: {what}") is None] += 1
        describe(file, good[file])
    assert outcomes[True], outcomes


def test_a_member_of_every_kind(tmp_path: Path, sound: tuple[Path, dict[int, str]], long: bool) -> None:
    """Each member once, as something that it cannot be."""
    backups, _ = sound
    around = Around(tmp_path / "place", backups)
    file = around.place / "backups" / "00000001" / "BACKUP"
    good = described(file)
    chosen = HOSTILE if long else ("../../TABLE", 2**64, -1)
    for path in places(good):
        for found in chosen if path[0] != "options" or long else chosen[:1]:
            value = json.loads(json.dumps(good))
            parent = value
            for name in path[:-1]:
                parent = parent[name]
            parent[path[-1]] = found
            describe(file, value)
            around.held()
            around.restore(f"{path} = {found!r:.40}")


@pytest.mark.parametrize(
    "name", ["0000001", "000000001", "00000000", "0000000a", "99999999", "\u0661" * 8, "00000003\n", "..tmp"]
)
def test_folders_with_odd_names(tmp_path: Path, sound: tuple[Path, dict[int, str]], name: str) -> None:
    """What has a number is a backup, and must be one; what has none is left alone."""
    backups, wanted = sound
    around = Around(tmp_path / "place", backups)
    odd = around.place / "backups" / name
    odd.mkdir()
    (odd / "BACKUP").symlink_to(around.outside / "letter")
    around.held()
    assert around.restore(name) == (None if name == "99999999" else wanted)


def test_backups_that_continue_each_other(tmp_path: Path, sound: tuple[Path, dict[int, str]]) -> None:
    """No circle, and no way back in time."""
    backups, _ = sound
    around = Around(tmp_path / "place", backups)
    files = sorted((around.place / "backups").glob("*/BACKUP"))
    first, second = (described(file) for file in files)
    for since in (first["timestamp"], second["timestamp"], second["timestamp"] + 1):
        describe(files[0], {**first, "since": since})
        around.held()
        assert around.restore(f"the full one continues {since}") is None
    for since in (second["timestamp"], first["timestamp"] + 1, 0):
        describe(files[0], first)
        describe(files[1], {**second, "since": since})
        around.held()
        assert around.restore(f"the second one continues {since}") is None
