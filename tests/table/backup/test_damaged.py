"""Backups that are damaged, incomplete, forged or newer are refused by name."""

from __future__ import annotations

import json
import random
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import kudu_core as kc
from kudu_core.fs.posix import PosixFileSystem
from kudu_core.table.backup import backup_manifest as form
from tests.support.tables import Make


@pytest.fixture
def chain(make: Make, dst: Path) -> Path:
    """A full backup and two that continue it."""
    table = make(durability="sync", partition_by=kc.HashPartition("k", 2))
    table.insert({"k": list(range(50)), "s": [f"row {i}" for i in range(50)]})
    table.backup(dst)
    for step in range(2):
        table.update({"k": [step, 40], "a": [step, step]})
        table.delete([10 + step])
        table.backup(dst, "last")
    return dst


def files_of(chain: Path) -> list[Path]:
    return sorted(path for path in chain.rglob("*") if path.is_file() and path.name != "LOCK")


def test_damage_is_found_and_named(chain: Path, tmp_path: Path) -> None:
    """Bytes flipped, files cut, files missing: ``Corruption`` names the file, and there is no table."""
    wanted = kc.restore(chain, tmp_path / "sound")
    rows = wanted.scan(order="key").to_pylist()
    wanted.close()
    rng = random.Random(5)
    for path in files_of(chain):
        good = path.read_bytes()
        places = set(rng.sample(range(len(good)), 20)) | {0, len(good) - 1}
        damages = [good[:at] + bytes([good[at] ^ 0x55]) + good[at + 1 :] for at in sorted(places)]
        for damaged in (*damages, good[:-1], good + b"\0", b"", None):
            path.unlink() if damaged is None else path.write_bytes(damaged)
            with pytest.raises((kc.Corruption, kc.NotSupported)) as caught:
                kc.restore(chain, tmp_path / "r")
            assert str(path) in str(caught.value)
            assert sorted(p.name for p in tmp_path.iterdir()) == ["backups", "sound", "t"]
            path.write_bytes(good)
    with kc.restore(chain, tmp_path / "r") as again:
        assert again.scan(order="key").to_pylist() == rows


def test_a_gap_is_refused(chain: Path, tmp_path: Path) -> None:
    first = kc.restore(chain, tmp_path / "a")
    first.close()
    points = [m.timestamp for m in form.read_manifests(PosixFileSystem(), str(chain))]
    shutil.rmtree(chain / "00000002")
    with pytest.raises(kc.Corruption, match=f"backup 3 continues one of {points[1]}, which is not there"):
        kc.restore(chain, tmp_path / "b")
    with kc.restore(chain, tmp_path / "c", at=points[0]) as table:
        assert table.count() == 50
    with kc.open_table(tmp_path / "t") as table:
        with pytest.raises(kc.Corruption, match="a gap"):
            table.backup(chain, "last")
        with pytest.raises(kc.InvalidArgument, match="a gap"):
            table.backup(chain, points[1])
        assert table.backup(chain).number == 4
    with kc.restore(chain, tmp_path / "d") as table:
        assert table.count() == 48


def forge(path: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Rewrite a manifest with a checksum that fits."""
    body = json.loads(path.read_bytes()[form.HEADER.size :])
    change(body)
    path.write_bytes(form.ENVELOPE.around(json.dumps(body).encode()))


def _without_a_column(body: dict[str, Any]) -> None:
    del body["schema"]["columns"][-1]


FORGED: dict[str, Callable[[dict[str, Any]], None]] = {
    "rows": lambda b: b["runs"][0].__setitem__(1, 10**12),
    "total": lambda b: b.__setitem__("total", 3),
    "counts": lambda b: b.__setitem__("counts", [1, 2]),
    "since itself": lambda b: b.__setitem__("since", b["timestamp"]),
    "since nothing": lambda b: b.__setitem__("since", None),
    "a file elsewhere": lambda b: b["runs"][0].__setitem__(0, "../00000001/rows-000001.arrow"),
    "a missing member": lambda b: b.__delitem__("partitions"),
    "another type": lambda b: b.__setitem__("timestamp", "soon"),
    "a column less": _without_a_column,
    "no columns": lambda b: b["schema"].__setitem__("columns", []),
}


@pytest.mark.parametrize("name", FORGED)
def test_a_forged_manifest_is_refused(chain: Path, tmp_path: Path, name: str) -> None:
    """A checksum proves nothing about who wrote the file."""
    forge(chain / "00000003" / "BACKUP", FORGED[name])
    with pytest.raises((kc.Corruption, kc.NotSupported)):
        kc.restore(chain, tmp_path / "r")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["backups", "t"]


def test_a_newer_format_is_refused(chain: Path, tmp_path: Path) -> None:
    path = chain / "00000003" / "BACKUP"
    data = bytearray(path.read_bytes())
    struct.pack_into("<H", data, 8, 2)
    struct.pack_into("<I", data, 16, form.ENVELOPE.crc(2, 0, bytes(data[form.HEADER.size :])))
    path.write_bytes(data)
    with pytest.raises(kc.NotSupported, match="version 2"):
        kc.restore(chain, tmp_path / "r")
