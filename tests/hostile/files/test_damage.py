"""One damaged file of any kind: the right data, or an error that names the file and the place in it.

By default a share of the cases, another one with every ``--seed``; ``--long`` does thousands.
"""

from __future__ import annotations

import os
import random
from pathlib import Path

import pyarrow as pa
import pytest

import kudu_core as kc
from kudu_core.errors import Corruption
from tests.support.clock import ManualClock
from tests.support.faults import ROOT, TINY, Stage, segments_of
from tests.support.hostile.damage import (
    Damage,
    Subject,
    check_reader,
    check_verify,
    check_writer,
    contents,
    in_place,
    kind_of,
    subject,
    whole_file,
)

pytestmark = pytest.mark.timeout(7200)  # --long takes its time

KINDS = ("TABLE", "LOCK", "COMMITTED", "MANIFEST", "log", "spare", "rows", "delta")
CASES, LONG_CASES = 4, 1500


@pytest.fixture(scope="module", params=["closed", "killed"])
def table(request: pytest.FixtureRequest, seed: int) -> Subject:
    return subject(request.param, seed)


def damages(table: Subject, kind: str, rng: random.Random, long: bool) -> list[Damage]:
    paths = [path for path in table.files if kind_of(path) == kind]
    assert paths, f"the table has no file of the kind {kind}"
    found = [damage for path in paths for damage in whole_file(table, path)]
    found = found if long else rng.sample(found, min(CASES // 2, len(found)))
    drawn = (in_place(table, rng.choice(paths), rng) for _ in range(LONG_CASES if long else CASES))
    return [*found, *(damage for damage in drawn if damage is not None)]


@pytest.mark.parametrize("kind", KINDS)
def test_damage(table: Subject, kind: str, seed: int, long: bool) -> None:
    rng = random.Random(seed * 1_000 + KINDS.index(kind))
    outcomes = set()
    for damage in damages(table, kind, rng, long):
        for check in (check_reader, check_writer, check_verify):
            try:
                outcomes.add(check(table, table.damaged(damage), damage, seed))
            except BaseException as error:
                error.add_note(f"{table.name} table, {check.__name__}, {damage}; --seed={seed}")
                raise
    if kind not in ("LOCK", "COMMITTED", "spare"):  # those may be anything: nobody trusts them
        assert outcomes - {"right"}, "no damage was found at all"


@pytest.fixture
def closed(seed: int) -> Subject:
    return subject("closed", seed)


def refused(table: Subject, damage: Damage, mode: str) -> Corruption:
    stage = Stage(table.damaged(damage), table.history, 0, ManualClock(table.now_us))
    with segments_of(TINY), pytest.raises(Corruption) as error:
        stage.open(mode).scan().to_table()
    return error.value


@pytest.mark.parametrize("mode", ["r", "rw"])
def test_an_older_copy_of_TABLE(closed: Subject, mode: str) -> None:
    """It would issue an epoch, and with it file names, a second time."""
    path = f"{ROOT}/TABLE"
    for files in closed.older[:-1]:  # the last is of the newest epoch: it lacks no more than the clean end
        error = refused(closed, Damage(path, "older", files[path]), mode)
        assert error.path == path and "older copy" in error.reason


def test_an_older_copy_of_a_manifest(closed: Subject) -> None:
    """What a reader may not do is to show the table without its last ingest as if nothing had happened."""
    files = closed.older[-2]  # as of the last clean close: no CHECKPOINT of a later life has seen more
    for path in (p for p in closed.files if kind_of(p) == "MANIFEST"):
        error = refused(closed, Damage(path, "older", files[path]), "r")
        assert error.path == path


@pytest.mark.parametrize("mode", ["r", "rw"])
@pytest.mark.parametrize("kind", ["rows", "delta"])
def test_a_file_that_is_gone(closed: Subject, kind: str, mode: str) -> None:
    for path in (p for p in closed.files if kind_of(p) == kind):
        assert refused_anywhere(closed, path, mode).path == path


def refused_anywhere(table: Subject, path: str, mode: str) -> Corruption:
    """Reads at every time: only some of them need an UNDO file."""
    stage = Stage(table.damaged(Damage(path, "missing", None)), table.history, 0, ManualClock(table.now_us))
    with segments_of(TINY), pytest.raises(Corruption, match="missing") as error:
        opened = stage.open(mode)
        for timestamp in (None, *table.history.writes):
            opened.scan(at=timestamp).to_table()
            opened.get_many([key for (key,) in table.history.model.state()], at=timestamp)
    return error.value


@pytest.mark.parametrize("where", ["first", "middle"])
def test_the_header_of_a_segment_before_the_last(closed: Subject, where: str) -> None:
    """A reader takes a foreign header for recycling, and must see that nobody recycles."""
    logs = [path for path in closed.files if kind_of(path) == "log"]
    path = logs[0] if where == "first" else logs[1]
    data = bytearray(closed.files[path])
    data[60] ^= 1
    for mode in ("r", "rw"):
        assert refused(closed, Damage(path, "header", bytes(data)), mode).path == path


def test_a_damaged_version_is_damage(closed: Subject) -> None:
    """Not a table from the future: the user is not told to install another release."""
    for path in (p for p in closed.files if kind_of(p) in ("TABLE", "MANIFEST")):
        data = bytearray(closed.files[path])
        data[8] ^= 2
        for mode in ("r", "rw"):
            assert refused(closed, Damage(path, "version", bytes(data)), mode).path == path


def test_unknown_flags_of_a_manifest(closed: Subject) -> None:
    import struct

    from kudu_core._ext.base.crc32c import crc32c
    from kudu_core.tablet.store.manifest_format import HEADER

    path = next(p for p in closed.files if kind_of(p) == "MANIFEST")
    data = bytearray(closed.files[path])
    data[10] = 1
    struct.pack_into("<I", data, HEADER.size - 8, crc32c(bytes(data[: HEADER.size - 8])))
    fs = closed.damaged(Damage(path, "flags", bytes(data)))
    before = contents(fs)
    for mode in ("r", "rw"):
        with pytest.raises(kc.NotSupported, match="flags 1"):
            Stage(fs, closed.history, 0, ManualClock(closed.now_us)).open(mode)
    assert contents(fs) == before


@pytest.mark.parametrize("what", ["folder", "link", "pipe"])
def test_something_else_in_the_place_of_a_copy(tmp_path: Path, what: str) -> None:
    """Nothing depends on the copies of TABLE and manifests: where they cannot be written, nothing happens."""
    path = tmp_path / "t"
    schema = pa.schema([("k", pa.int64())])
    kc.create_table(path, schema, "k").close()
    copies = [path / "TABLE.copy", path / "tablets" / "00000001" / "MANIFEST.copy"]
    table = kc.open_table(path, "rw", options={"maintenance": "manual"})
    with table:
        for number in range(3):  # the first edit of an epoch makes the copy anew, the others extend it
            for copy in copies:
                copy.rmdir() if copy.is_dir() else copy.unlink(missing_ok=True)
                if what == "folder":
                    copy.mkdir()
                elif what == "link":
                    copy.symlink_to(tmp_path / "elsewhere")
                else:
                    os.mkfifo(copy)
            table.insert([{"k": number}])
            table.flush()
            table.alter(add=[kc.Column(f"c{number}", pa.int64())])
    with kc.open_table(path, "rw") as table:
        assert table.count() == 3
        table.verify()
    assert not (tmp_path / "elsewhere").exists()
