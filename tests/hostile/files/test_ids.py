"""Ids and names in TABLE, MANIFEST and log that lie although every checksum is good: such a table opens or is
refused, may be repaired or not; it leaves the world outside and the data files of its tablets alone."""

from __future__ import annotations

import json
import os
import random
import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import kudu_core as kc
from kudu_core.table.stored import table_state
from kudu_core.tablet.store import manifest_format as form
from kudu_core.tablet.store import records
from kudu_core.wal import format as wal
from tests.support.hostile.forge import log_records, with_edits, with_record
from tests.support.hostile.lies import (
    OPTIONS,
    Lied,
    data_of,
    log_lies,
    make,
    manifest_lies,
    table_lies,
    table_of,
    with_text,
)
from tests.support.hostile.links import SCHEMA

CASES, LONG_CASES = 6, 500


@pytest.fixture(scope="module", params=["closed", "killed"])
def sound(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("sound") / "t"
    make(path, closed=request.param == "closed")
    return path


@pytest.mark.parametrize("where", [table_lies, manifest_lies, log_lies], ids=lambda f: f.__name__)
def test_ids_that_lie(tmp_path: Path, sound: Path, where: Any, seed: int, long: bool) -> None:
    place = Lied(tmp_path, sound)
    place.fresh()
    cases = list(where(place.path))
    assert len(cases) > 100, len(cases)
    random.Random(seed).shuffle(cases)
    for what, files in cases[: LONG_CASES if long else CASES]:
        place.fresh()
        for file, data in files.items():
            file.write_bytes(data)
        place.judge(what)
    assert place.outcomes["Corruption"] and place.outcomes["_repair went well"], place.outcomes


# ---- files that are sound, elsewhere


def test_a_manifest_of_another_tablet(tmp_path: Path, sound: Path) -> None:
    place = Lied(tmp_path, sound)
    place.fresh()
    one, two = (place.path / "tablets" / f"{i:08d}" for i in (1, 2))
    for name in ("MANIFEST", "MANIFEST.copy"):
        shutil.copy(two / name, one / name)
    with pytest.raises(kc.Corruption, match="another table or tablet"):
        kc.open_table(place.path, "rw")
    place.judge("the manifest of tablet 2 in the folder of tablet 1")


def test_a_folder_of_another_tablet(tmp_path: Path, sound: Path) -> None:
    place = Lied(tmp_path, sound)
    place.fresh()
    one, two = (place.path / "tablets" / f"{i:08d}" for i in (1, 2))
    one.rename(place.path / "tablets" / "x")
    two.rename(one)
    (place.path / "tablets" / "x").rename(two)
    with pytest.raises(kc.Corruption, match="another table or tablet"):
        kc.open_table(place.path, "rw")
    place.judge("tablets 1 and 2 exchanged")


# ---- what would be let go of on the word of a lie


def opened_and_swept(place: Lied) -> None:
    before = data_of(place.path)
    with suppress(kc.Corruption), kc.open_table(place.path, "rw") as table:
        table.compact(full=True)
        table.gc()
        raise AssertionError("such a table opens")
    assert data_of(place.path) == before


def ingests(path: Path) -> Iterator[tuple[Path, int, dict[str, Any], bytes]]:
    """The INGEST records of a log: segment, place, text, payload."""
    for segment in sorted(path.glob("wal/*.log")):
        data = segment.read_bytes()
        for at, length in log_records(data) if wal.unpack_segment_header(data[:64]) else ():
            if wal.RECORD_HEADER.unpack_from(data, at)[6] == wal.RECORD_KIND_INGEST:
                payload = data[at + wal.RECORD_HEADER.size : at + length]
                yield segment, at, records.decode_extra(payload, "", 0), payload


@pytest.mark.parametrize("what", ["rowset", "file"])
def test_an_ingest_takes_nothings_place(tmp_path: Path, what: str) -> None:
    """A record that nobody has installed brings a rowset, or a file, that there is: the other would go."""
    (tmp_path / "made").mkdir()
    made = tmp_path / "made" / "t"
    table = kc.create_table(made, SCHEMA, "k", options=OPTIONS)
    table.insert({"k": list(range(30)), "v": ["x"] * 30})
    before = [(made / "tablets" / "00000001" / name).read_bytes() for name in ("MANIFEST", "MANIFEST.copy")]
    table.insert({"k": list(range(30, 60)), "v": ["x"] * 30})
    place = Lied(tmp_path, made)
    place.fresh()
    table.close()
    for name, data in zip(("MANIFEST", "MANIFEST.copy"), before, strict=True):
        (place.path / "tablets" / "00000001" / name).write_bytes(data)
    (_, _, first, _), (segment, at, second, payload) = ingests(place.path)
    (known,), (rowset,) = (one["parts"]["1"]["rowsets"] for one in (first, second))
    assert known["id"] != rowset["id"]
    if what == "rowset":
        rowset["id"] = known["id"]
    else:
        rowset["base"] = known["base"]
    segment.write_bytes(with_record(segment.read_bytes(), at, with_text(payload, second)))
    with pytest.raises(kc.Corruption, match="of which one is there already"):
        kc.open_table(place.path, "rw")
    opened_and_swept(place)


def test_a_file_of_two_rowsets(tmp_path: Path, sound: Path) -> None:
    """When the one is merged, its file goes, and would be the other's."""
    place = Lied(tmp_path, sound)
    place.fresh()
    manifest = place.path / "tablets" / "00000001" / "MANIFEST"
    data = manifest.read_bytes()
    edits = [(e.offset, e.number, e.epoch, list(e.lines)) for e in form.scan_edits(data)[0]]
    at, number, epoch, lines = edits[-1]
    known = next(line for _, _, _, told in edits for line in told if "base" in line)
    lines = [*lines, {**known, "id": 7_777, "redo": [], "undo": []}]
    manifest.write_bytes(with_edits(data, [*edits[:-1], (at, number, epoch, lines)]))
    with pytest.raises(kc.Corruption, match="two rowsets have the same file"):
        kc.open_table(place.path, "rw")
    opened_and_swept(place)


def test_a_TABLE_that_leaves_out_a_tablet(tmp_path: Path) -> None:
    """Its id is below those that are given out, as if it had been dropped and purged; but what it holds is
    not behind the horizon.  It is kept in `lost/`."""
    (tmp_path / "made").mkdir()
    made = tmp_path / "made" / "t"
    with kc.create_table(made, SCHEMA, "k", options=OPTIONS) as table:
        table.insert({"k": list(range(30)), "v": ["x"] * 30})
        table.flush()
        horizon = table.insert({"k": list(range(30, 60)), "v": ["x"] * 30}).timestamp - 1
    place = Lied(tmp_path, made)
    for known in (0, 1, horizon):
        place.fresh()
        value = json.loads((place.path / "TABLE").read_bytes()[table_state.HEADER.size :])
        value.update(tablets=[[2, 0, value["applied_ts"], None]], next_tablet=3, edits=[], horizon=known)
        (place.path / "TABLE").write_bytes(table_of(value))
        before = data_of(place.path)
        with kc.open_table(place.path, "rw") as table:
            assert table.count() == 0
        assert data_of(place.path) == before, f"horizon {known}"
        assert [name for name in os.listdir(place.path / "lost") if name.endswith("-00000001-tablet")]
