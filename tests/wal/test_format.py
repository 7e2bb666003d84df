"""docs/format.md says what the structs of the log are, and a small log is those bytes."""

from __future__ import annotations

import re
import struct
from pathlib import Path

import pytest

from kudu_core._ext.base.crc32c import crc32c
from kudu_core.errors import NotSupported
from kudu_core.wal import RECORD_KIND_WRITE, format
from tests.support.cases.wal import UUID, create, read, segments, write
from tests.support.clock import ManualClock

DOCS = Path(__file__).parents[2] / "docs"


def section(name: str) -> str:
    for part in re.split(r"^#+ ", (DOCS / "format-log.md").read_text(), flags=re.MULTILINE):
        if part.startswith(name + "\n"):
            return part
    raise AssertionError(f"docs/format-log.md has no section {name}")


def table(name: str, number: int = 0) -> list[tuple[int, int, str]]:
    part = re.split(r"^\| offset \| width .*\n", section(name), flags=re.MULTILINE)[1 + number]
    rows = re.findall(r"^\| (\d+) \| (\d+) \| `(\w+)` \|", part.split("\n\n")[0], flags=re.MULTILINE)
    return [(int(offset), int(width), field) for offset, width, field in rows]


def widths(layout: struct.Struct) -> list[int]:
    """Bytes of each field; a run of pad bytes is one."""
    result = []
    for count, code in re.findall(r"(\d*)([a-zA-Z])", layout.format):
        if code in "sx":
            result.append(int(count))
        else:
            result += [struct.calcsize("<" + code)] * int(count or 1)
    return result


@pytest.mark.parametrize(
    ("name", "number", "layout"),
    [
        ("Log segment header", 0, format.SEGMENT_HEADER),
        ("Log record", 0, format.RECORD_HEADER),
        ("CHECKPOINT payload", 0, format.CHECKPOINT_HEAD),
        ("CHECKPOINT payload", 1, format.CHECKPOINT_ENTRY),
        ("COMMITTED slot", 0, format.COMMITTED_SLOT),
    ],
)
def test_tables_are_the_structs(name: str, number: int, layout: struct.Struct) -> None:
    rows = table(name, number)
    assert [width for _, width, _ in rows] == widths(layout)
    ends = [offset + width for offset, width, _ in rows]
    assert [offset for offset, _, _ in rows] == [0, *ends[:-1]]
    assert ends[-1] == layout.size


def field(data: bytes, name: str, wanted: str, base: int = 0) -> int:
    for offset, width, found in table(name):
        if found == wanted:
            return int.from_bytes(data[base + offset : base + offset + width], "little")
    raise AssertionError(wanted)


def test_a_log_is_what_the_document_says(tmp_path: Path) -> None:
    """Read with nothing but the document's tables and CRC rules."""
    log = create(tmp_path, epoch=3, clock=ManualClock(1_600_000_000_000_000))
    ts = write(log, b"hello")
    log.wait_visible(ts)
    second = log.append(RECORD_KIND_WRITE, 9, [b"wor", b"ld"])
    log.applied(second)
    log.wait_visible(second)
    log.checkpoint(ts, {4: 2, 1: 7}, {4: 11})
    log.close()
    (path,) = segments(tmp_path)
    assert path.name == "00000003-0000000001.log"
    data = path.read_bytes()
    header, record = "Log segment header", "Log record"
    assert data[:8] == b"KUDUWAL\n"
    assert [field(data, header, f) for f in ("version", "epoch", "seq", "prev_ts", "prev_lsn")] == [
        1,
        3,
        1,
        0,
        0,
    ]
    assert data[16:32] == UUID
    assert field(data, header, "crc") == crc32c(data[:12] + bytes(4) + data[16:64])
    at = 64
    wanted = [(45, 1, ts, 0, 1, 1), (45, 2, second, 1, 9, 1), (104, 3, second + 1, 2, 0, 4)]
    names = ("length", "lsn", "ts", "synced_lsn", "schema_version", "kind")
    for values in wanted:
        assert tuple(field(data, record, name, at) for name in names) == values
        end = at + (values[0] + 7) // 8 * 8
        plain = data[at : at + 4] + bytes(4) + data[at + 8 : at + 40]
        covered = data[at + 40 : end] + UUID + struct.pack("<QQ", 3, 1) + plain
        assert field(data, record, "crc", at) == crc32c(covered)
        at = end
    assert not any(data[at:])
    assert ts == 1_600_000_000_000_000 << 12
    assert data[at - 64 : at] == struct.pack("<QII6Q", ts, 2, 0, 1, 7, 0, 4, 2, 11)
    slots = (tmp_path / "COMMITTED").read_bytes()
    newest = max((0, 512), key=lambda base: field(slots, "COMMITTED slot", "counter", base))
    assert field(slots, "COMMITTED slot", "ts", newest) == second + 1
    assert field(slots, "COMMITTED slot", "lsn", newest) == 3
    assert field(slots, "COMMITTED slot", "epoch", newest) == 3
    assert field(slots, "COMMITTED slot", "counter", newest) % 2 == newest // 512
    assert field(slots, "COMMITTED slot", "crc", newest) == crc32c(UUID + slots[newest : newest + 32])


def test_zeros_are_never_a_record() -> None:
    salt = format.segment_salt(bytes(16), 0, 0)
    for size in (40, 48, 4096):
        assert not format.record_is_sound(salt, memoryview(bytes(size)))


def test_a_newer_version_is_not_taken_for_damage(tmp_path: Path) -> None:
    log = create(tmp_path)
    log.close()
    (path,) = segments(tmp_path)
    data = bytearray(path.read_bytes())
    data[8] = 2
    data[12:16] = crc32c(bytes(data[:12]) + bytes(4) + bytes(data[16:64])).to_bytes(4, "little")
    path.write_bytes(data)
    with pytest.raises(NotSupported, match="version 2"):
        read(tmp_path)


def test_a_torn_slot_leaves_the_other() -> None:
    old = format.Committed(6, 60, 600, 2)
    new = format.Committed(7, 70, 700, 2)
    file = bytearray(1024)
    for slot in (old, new):
        packed = slot.pack(UUID)
        file[slot.offset() : slot.offset() + len(packed)] = packed
    assert format.unpack_committed(file, UUID) == new
    for at in range(512, 512 + 36):
        torn = bytearray(file)
        torn[at] ^= 0x10
        assert format.unpack_committed(torn, UUID) == old
    assert format.unpack_committed(file, bytes(16)) == format.NOTHING_COMMITTED
    assert format.unpack_committed(b"", UUID) == format.NOTHING_COMMITTED
    stale = format.Committed(100, 999, 9999, 1).pack(UUID)
    file[: len(stale)] = stale
    assert format.unpack_committed(file, UUID) == new, "a stale writer's slot"


@pytest.mark.parametrize("edits", [{}, {3: 9}, {5: 1, 2: 2**40, 2**33: 0}])
def test_checkpoints_round_trip(edits: dict[int, int]) -> None:
    told = format.Checkpoint(77, edits, {tablet: 10 * edit for tablet, edit in edits.items()})
    payload = told.pack()
    assert format.unpack_checkpoint(payload) == told
    for size in range(len(payload)):
        assert format.unpack_checkpoint(payload[:size]) is None
