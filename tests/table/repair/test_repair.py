"""``kudu_core.repair`` of damaged tables: nothing invented, nothing readable lost, nothing unsaid.

The rules are protocol S1 and S2; the copies of TABLE and of manifests are protocol S3.
By default a share of the cases, another one with every ``--seed``; ``--long`` does thousands.
"""

from __future__ import annotations

import errno
import random
from pathlib import Path
from typing import Any

import pytest

import kudu_core as kc
from kudu_core.table.repair import walk
from tests.support.clock import ManualClock
from tests.support.faults import ROOT, TINY, checking, segments_of
from tests.support.folders import everything
from tests.support.fs.faulty import FaultyFileSystem, Rule, SimulatedCrash
from tests.support.fs.memory import MemoryFileSystem
from tests.support.hostile.damage import (
    Damage,
    Subject,
    contents,
    in_place,
    kind_of,
    put,
    subject,
    whole_file,
)
from tests.support.inside import table_file_of
from tests.support.models.history import SCHEMA
from tests.support.models.repairing import TARGET, Repaired, check, check_equal, repaired
from tests.support.tables import Make

pytestmark = pytest.mark.timeout(7200)  # --long takes its time

KINDS = ("TABLE", "COMMITTED", "MANIFEST", "log", "spare", "rows", "delta")
CASES, LONG_CASES = 2, 400
PAIRS, LONG_PAIRS = 3, 1500
FAULTS = 8


@pytest.fixture(scope="module", params=["closed", "killed"])
def table(request: pytest.FixtureRequest, seed: int) -> Subject:
    return subject(request.param, seed)


@pytest.fixture(scope="module")
def closed(seed: int) -> Subject:
    return subject("closed", seed)


def repair_of(table: Subject, *damages: Damage, **given: object) -> Repaired:
    """The repaired table, held against the contract."""
    fs = table.disk.crash_clone(0, keep="all")
    for damage in damages:
        put(fs, damage.path, damage.data)
    try:
        found = repaired(fs, table.now_us, **given)
        check(found, table.history.past, table.history.model.state())
    except BaseException as error:
        error.add_note(f"{table.name} table: {'; '.join(map(str, damages))}")
        raise
    return found


def paths_of(table: Subject, kind: str) -> list[str]:
    return [path for path in table.files if kind_of(path) == kind]


def test_a_sound_table_gives_an_equal_one(table: Subject) -> None:
    found = repair_of(table)
    check_equal(found, table.history.model.state())
    assert found.report.is_sound, found.report.text()
    assert found.report.written and found.report.target == TARGET


@pytest.mark.parametrize("kind", KINDS)
def test_one_damaged_file(table: Subject, kind: str, seed: int, long: bool) -> None:
    rng = random.Random(seed * 1_000 + KINDS.index(kind))
    paths = paths_of(table, kind)
    damages = [damage for path in paths for damage in whole_file(table, path)]
    if not long:
        damages = rng.sample(damages, min(CASES, len(damages)))
    drawn = (in_place(table, rng.choice(paths), rng) for _ in range(LONG_CASES if long else CASES))
    for damage in (*damages, *(one for one in drawn if one is not None)):
        found = repair_of(table, damage)
        if found.report.is_sound:
            check_equal(found, table.history.model.state())


def test_two_damaged_files(table: Subject, seed: int, long: bool) -> None:
    rng = random.Random(seed)
    kinds = [kind for kind in KINDS if kind != "spare"]
    for _ in range(LONG_PAIRS if long else PAIRS):
        chosen = {rng.choice(paths_of(table, kind)) for kind in rng.sample(kinds, 2)}
        damages = [in_place(table, path, rng) if rng.random() < 0.7 else None for path in chosen]
        whole = [rng.choice(whole_file(table, path)) for path in chosen]
        repair_of(table, *(one or other for one, other in zip(damages, whole, strict=True)))


# ---- what must come back


@pytest.mark.parametrize("what", ["missing", "empty", "flipped"])
def test_a_damaged_TABLE_costs_nothing(table: Subject, what: str) -> None:
    """Its copy says the same."""
    path = f"{ROOT}/TABLE"
    data = bytearray(table.files[path])
    data[len(data) // 2] ^= 1
    left = {"missing": None, "empty": b"", "flipped": bytes(data)}[what]
    found = repair_of(table, Damage(path, what, left))
    check_equal(found, table.history.model.state())
    assert not found.report.is_sound and found.report.assumptions == (f"TABLE is as {path}.copy has it",)


def test_TABLE_of_another_table_is_not_believed(table: Subject) -> None:
    path = f"{ROOT}/TABLE"
    check_equal(repair_of(table, Damage(path, "another's", table.twin[path])), table.history.model.state())


def without_TABLE() -> list[Damage]:
    return [Damage(f"{ROOT}/{name}", "missing", None) for name in ("TABLE", "TABLE.copy")]


def test_without_TABLE_and_its_copy(table: Subject) -> None:
    """The caller knows the names; types, ids and the key are in the files."""
    found = repair_of(table, *without_TABLE(), schema=SCHEMA, primary_key="k")
    assert found.rows == table.history.model.state()
    assert len(found.report.assumptions) == 2


def test_without_TABLE_columns_have_numbers(closed: Subject) -> None:
    fs = closed.disk.crash_clone(0, keep="all")
    for damage in without_TABLE():
        put(fs, damage.path, None)
    kc.repair(ROOT, dry_run=False, _fs=fs, _clock=ManualClock(closed.now_us))
    with kc.open_table(TARGET, _fs=fs, _clock=ManualClock(closed.now_us + 10)) as made:
        assert made.primary_key == ("column_1",)
        rows = {(row.pop("column_1"),): tuple(row.values()) for row in made.scan().to_pylist()}
    assert rows == closed.history.model.state()


@pytest.mark.parametrize(
    ("given", "match"),
    [
        ({"schema": SCHEMA}, "primary_key"),
        ({"schema": SCHEMA.remove(3), "primary_key": "k"}, "has 3 columns, the files have 4"),
        ({"schema": SCHEMA, "primary_key": "a"}, "the key is columns"),
    ],
)
def test_what_is_given_must_fit(closed: Subject, given: dict[str, object], match: str) -> None:
    fs = closed.disk.crash_clone(0, keep="all")
    for damage in without_TABLE():
        put(fs, damage.path, None)
    with pytest.raises(kc.InvalidArgument, match=match):
        kc.repair(ROOT, _fs=fs, _clock=ManualClock(closed.now_us), **given)  # type: ignore[arg-type]


def test_a_schema_for_a_table_that_has_one(closed: Subject) -> None:
    with pytest.raises(kc.InvalidArgument, match="cannot be read"):
        kc.repair(ROOT, schema=SCHEMA, primary_key="k", _fs=closed.disk)


def test_a_missing_file_of_rows_loses_its_rows_alone(closed: Subject) -> None:
    for path in paths_of(closed, "rows"):
        found = repair_of(closed, Damage(path, "missing", None))
        lost = {key for key in closed.history.model.state() if key not in found.rows}
        findings = [f for tablet in found.report.tablets for f in tablet.findings]
        assert [finding.path for finding in findings] in ([path], []), found.report.text()
        assert len(lost) <= sum(finding.rows_lost for finding in findings)


def test_a_missing_UNDO_file_loses_no_row(closed: Subject) -> None:
    """It tells of the past only, which no repaired table has."""
    past = 0
    for path in paths_of(closed, "delta"):
        found = repair_of(closed, Damage(path, "missing", None))
        findings = [f for tablet in found.report.tablets for f in tablet.findings]
        past += not findings
        if not findings:
            check_equal(found, closed.history.model.state())
    assert past, "the table has no UNDO file"


# ---- the rest of the contract


def test_nothing_is_written_over(closed: Subject) -> None:
    fs = closed.disk.crash_clone(0, keep="all")
    fs.mkdir(TARGET)
    put(fs, f"{TARGET}/mine", b"x")
    with pytest.raises(kc.TableExists):
        kc.repair(ROOT, dry_run=False, _fs=fs, _clock=ManualClock(closed.now_us))
    assert fs.listdir(TARGET) == ["mine"]


def test_not_beside_a_writer(closed: Subject) -> None:
    fs = closed.disk.crash_clone(0, keep="all")
    with kc.open_table(ROOT, "rw", _fs=fs, _clock=ManualClock(closed.now_us)), pytest.raises(kc.Locked):
        kc.repair(ROOT, _fs=fs)


@pytest.mark.parametrize("dry_run", [True, False])
def test_nor_beside_one_that_came_and_went(
    closed: Subject, dry_run: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    fs, clock = closed.disk.crash_clone(0, keep="all"), ManualClock(closed.now_us)
    usual = walk.find

    def find(*arguments: Any) -> Any:
        found = usual(*arguments)
        kc.open_table(ROOT, "rw", _fs=fs, _clock=clock).close()
        return found

    monkeypatch.setattr(walk, "find", find)
    with pytest.raises(kc.Locked):
        kc.repair(ROOT, dry_run=dry_run, _fs=fs, _clock=clock)
    assert not fs.exists(TARGET)
    monkeypatch.setattr(walk, "find", usual)
    kc.repair(ROOT, dry_run=dry_run, _fs=fs, _clock=clock)


def test_not_into_itself(closed: Subject) -> None:
    with pytest.raises(kc.InvalidArgument, match="own folder"):
        kc.repair(ROOT, f"{ROOT}/new", _fs=closed.disk)


def test_nothing_to_repair() -> None:
    fs = MemoryFileSystem()
    fs.mkdir("/tables")
    with pytest.raises(kc.TableNotFound):
        kc.repair(ROOT, _fs=fs)
    fs.mkdir(ROOT)
    with pytest.raises(kc.TableNotFound):
        kc.repair(ROOT, _fs=fs)


def test_a_repair_that_fails_leaves_nothing(closed: Subject, seed: int, long: bool) -> None:
    """Whichever call of the file system fails: the damaged table stays, the target is whole or not there."""
    inner = closed.disk.crash_clone(0, keep="all")
    counting = FaultyFileSystem(inner, seed=seed)
    with segments_of(TINY):
        kc.repair(ROOT, dry_run=False, _fs=counting, _clock=ManualClock(closed.now_us))
    rng = random.Random(seed)
    calls = range(1, counting.calls + 1)
    outcomes = set()
    for number in calls if long else rng.sample(calls, FAULTS):
        inner = closed.disk.crash_clone(0, keep="all")
        before = contents(inner)
        crash = rng.random() < 0.5
        fs = FaultyFileSystem(inner, [Rule(nth=number, error="crash" if crash else errno.EIO)], seed=seed)
        try:
            with segments_of(TINY), checking(False):
                kc.repair(ROOT, dry_run=False, _fs=fs, _clock=ManualClock(closed.now_us))
            outcomes.add("made")
        except (OSError, kc.KuduError, SimulatedCrash):
            outcomes.add("failed")
        after = {path: data for path, data in contents(inner).items() if path.startswith(f"{ROOT}/")}
        assert after == before, number
        survivor = inner.crash_clone(seed) if crash else inner
        if survivor.exists(TARGET):
            with kc.open_table(TARGET, _fs=survivor, _clock=ManualClock(closed.now_us + 10)) as made:
                if "made" in outcomes and not made.count():
                    raise AssertionError(f"call {number}: a table without rows")
        with segments_of(TINY):  # and it can be done again
            if not survivor.exists(TARGET):
                kc.repair(ROOT, dry_run=False, _fs=survivor, _clock=ManualClock(closed.now_us + 20))
            left = survivor.listdir(ROOT.rsplit("/", 1)[0])
            assert left == [ROOT.rsplit("/", 1)[1], TARGET.rsplit("/", 1)[1]], f"call {number}: {left}"
    assert "failed" in outcomes


def test_on_a_disk(make: Make, path: Path) -> None:
    """Not a byte, a time or a name of the damaged table changes; a link in it is not followed."""
    table = make()
    table.insert({"k": list(range(100))})
    table.flush()
    table.update({"k": [1, 2], "s": ["new", "new"]})
    wanted = table.scan(order="key").to_table()
    table.close()
    outside = path.parent / "outside"
    outside.mkdir()
    (outside / "000001-00000009.rows").write_bytes(b"x" * 100)
    (path / "tablets" / "00000001" / "link").symlink_to(outside)
    (path / "staging").rmdir()
    (path / "staging").symlink_to(outside)
    (path / "lost").symlink_to(outside)
    (path / "TABLE").write_bytes(b"nothing")
    before, around = everything(path), everything(outside)
    report = kc.repair(path, dry_run=False)
    assert everything(path) == before and everything(outside) == around
    told = (*report.files_used, *(name for name, _ in report.files_unused))
    assert not any("link" in name for name in told)
    with kc.open_table(f"{path}.repaired") as made:
        assert made.scan(order="key").to_table().equals(wanted)
        assert table_file_of(made).uuid != table_file_of(table).uuid
    assert (path.parent / f"{path.name}.repaired" / "repair" / "REPORT").read_text() == f"{report}\n"
