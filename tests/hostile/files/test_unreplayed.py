"""A record of the log whose checksum is good and that cannot be replayed: the table says which, opens for
reading at the state before it, and nothing is lost by trying to write."""

from __future__ import annotations

import dataclasses
import json
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import kudu_core as kc
from kudu_core.errors import UnreplayedWarning
from kudu_core.table.report.verify import check_replayed
from kudu_core.tablet.replay.bootstrap import Replay
from kudu_core.tablet.replay.replay_log import Unreplayed, replay_log
from kudu_core.tablet.store import records
from kudu_core.tablet.store.apply import Laying
from kudu_core.wal import format as wal
from kudu_core.wal import read_log
from tests.support.hostile.forge import log_records, with_record
from tests.support.inside import engine_of, rowsets_of, table_file_of

COLUMNS = pa.schema([("k", pa.int64()), ("s", pa.string())])
Rows = list[dict[str, Any]]


def rows_of(table: kc.Table) -> Rows:
    return sorted(table.scan().to_table().to_pylist(), key=lambda row: row["k"])


@dataclasses.dataclass
class Made:
    path: Path
    states: list[Rows]
    """After each of five writes."""
    times: list[int]

    def segment(self) -> Path:
        return sorted((self.path / "wal").glob("*.log"))[-1]

    def forge(self, number: int, change: Callable[[bytes], tuple[bytes, int | None]]) -> int:
        """Change the payload of the write with that number; the byte at which its record begins."""
        data = self.segment().read_bytes()
        for at, length in log_records(data):
            ts = wal.RECORD_HEADER.unpack_from(data, at)[3]
            if ts == self.times[number]:
                body, kind = change(data[at + wal.RECORD_HEADER.size : at + length])
                self.segment().write_bytes(with_record(data, at, body, kind=kind))
                return at
        raise AssertionError("no such record")


@pytest.fixture
def made(tmp_path: Path) -> Made:
    """Rows in files and in memory; the last three writes are an update of all, an insert and a deletion."""
    path = tmp_path / "open"
    states, times = [], []
    with kc.create_table(
        path, COLUMNS, "k", options={"maintenance": "manual", "durability": "none"}
    ) as table:
        for write in (
            lambda: table.insert({"k": [1, 2, 3], "s": ["a", "b", "c"]}),
            lambda: table.insert({"k": [4, 5, 6], "s": ["d", "e", "f"]}),
            lambda: table.update({"k": [1, 2, 4], "s": ["A", "B", "D"]}),
            lambda: table.insert({"k": [7, 8], "s": ["g", "h"]}),
            lambda: table.delete({"k": [2, 7]}),
        ):
            times.append(write().timestamp)
            states.append(rows_of(table))
            if len(times) == 1:
                table.flush()
        shutil.copytree(path, tmp_path / "t")  # killed here
    return Made(tmp_path / "t", states, times)


def payload_of(sections: list[records.Section], extra: Any = None) -> bytes:
    parts = records.encode(records.Payload((1,), sections, extra or {}))
    return b"".join(bytes(memoryview(part).cast("B")) for part in parts)


def duplicate_key(body: bytes) -> tuple[bytes, int | None]:
    """It decodes, and inserts a key that is there."""
    payload = records.decode(memoryview(body), "", 0)
    section = payload.sections[0]
    column = section.block.columns[1]
    values = np.array([4, 5][: column.length], np.int64).view(np.uint8)
    section.block.columns[1] = dataclasses.replace(column, values=values)
    return payload_of(payload.sections), None


def missing_key(body: bytes) -> tuple[bytes, int | None]:
    """It decodes, and changes a key that is nowhere."""
    payload = records.decode(memoryview(body), "", 0)
    for section in payload.sections:
        column = section.block.columns[1]
        values = (np.arange(column.length, dtype=np.int64) + 1000).view(np.uint8)
        section.block.columns[1] = dataclasses.replace(column, values=values)
    return payload_of(payload.sections), None


def no_keys(body: bytes) -> tuple[bytes, int | None]:
    payload = records.decode(memoryview(body), "", 0)
    for section in payload.sections:
        del section.block.columns[1]
    return payload_of(payload.sections), None


def bad_token(body: bytes) -> tuple[bytes, int | None]:
    payload = records.decode(memoryview(body), "", 0)
    return payload_of(payload.sections, {"txn": 7, "counts": [1, 2, 3, 4]}), None


FORGERS: list[tuple[str, int, Callable[[bytes], tuple[bytes, int | None]]]] = [
    ("inserts a key that is there", 3, duplicate_key),
    ("changes a key that is nowhere", 4, missing_key),
    ("rows without key column", 2, no_keys),
    ("token", 2, bad_token),
    ("record payload", 3, lambda body: (body[: len(body) // 2], None)),
    ("record payload", 2, lambda body: (b"", None)),
    ("", 3, lambda body: (b"[]", wal.RECORD_KIND_ALTER)),
    ("", 3, lambda body: (json.dumps({"version": "x"}).encode(), wal.RECORD_KIND_ALTER)),
    ("record payload", 3, lambda body: (b"\xff" * 40, wal.RECORD_KIND_INGEST)),
]


@pytest.mark.parametrize(("reason", "number", "change"), FORGERS)
def test_the_table_says_which_record_and_reads_what_was_before(
    made: Made, reason: str, number: int, change: Callable[[bytes], tuple[bytes, int | None]]
) -> None:
    offset = made.forge(number, change)
    with opened(made) as reader:
        found = reader.unreplayed
        assert found is not None
        assert (found.path, found.offset, found.timestamp) == (
            str(made.segment()),
            offset,
            made.times[number],
        )
        assert reason in found.reason
        assert rows_of(reader) == made.states[number - 1]
        assert reader.timestamp == made.times[number] - 1
        assert reader.get({"k": 5}) == next((r for r in made.states[number - 1] if r["k"] == 5), None)
        for later in (made.times[number], made.times[-1]):
            with pytest.raises(kc.SnapshotInFuture, match=f"log record {found.lsn}, of timestamp"):
                reader.scan(at=later).to_table()
        with pytest.raises(kc.Corruption, match="cannot be replayed"):
            reader.verify()
        reader.refresh()  # warns of nothing new
        assert reader.unreplayed == found
        assert rows_of(reader) == made.states[number - 1]
    before = files_of(made.path)
    said = []
    for _ in range(2):
        with pytest.raises(kc.Corruption, match=r"kudu_core\.repair") as caught:
            kc.open_table(made.path, "rw")
        said.append(caught.value)
        assert f"log record {found.lsn}, of timestamp {found.timestamp}" in str(caught.value)
        assert caught.value.offset == offset and Path(caught.value.path).is_relative_to(made.path / "wal")
        after = files_of(made.path)
        assert {k: v for k, v in after.items() if not moving(k)} == {
            k: v for k, v in before.items() if not moving(k)
        }, "nothing but the epoch has changed"
        assert records_below(made.path) == records_of(before), "every record is there, byte for byte"
    assert [e.reason for e in said] == [said[0].reason] * 2
    assert Path(said[-1].path).exists()
    with opened(made) as reader:
        assert rows_of(reader) == made.states[number - 1]
        with pytest.raises(kc.Corruption):
            check_replayed(engine_of(reader))


def opened(made: Made) -> kc.Table:
    with pytest.warns(UnreplayedWarning, match="cannot be replayed") as told:
        table = kc.open_table(made.path, "r")
    assert len(told) == 1
    assert Path(told[0].filename) == Path(__file__), "it points at the caller"
    return table


def files_of(path: Path) -> dict[str, bytes]:
    return {str(p.relative_to(path)): p.read_bytes() for p in path.rglob("*") if p.is_file()}


def moving(name: str) -> bool:
    """What a new epoch writes: TABLE, the copy of the last segment, COMMITTED; a manifest may be renewed; and
    the copies of both that a repair reads."""
    name = name.removesuffix(".copy")
    return name in ("TABLE", "LOCK") or name.startswith("wal/") or name.endswith("/MANIFEST")


def records_of(files: dict[str, bytes]) -> list[bytes]:
    found = []
    for name in sorted(name for name in files if name.endswith(".log")):
        for at, length in log_records(files[name]):
            found.append(files[name][at + 8 : at + length])  # without what depends on the segment
    return found


def records_below(path: Path) -> list[bytes]:
    return records_of(files_of(path))


def test_an_ingest_that_cannot_be_installed(made: Made) -> None:
    """No reader installs one: it ends before it, as before any that the manifests do not have."""
    body = payload_of([], {"parts": {"1": {"rowsets": 7}}})
    offset = made.forge(4, lambda _: (body, wal.RECORD_KIND_INGEST))
    for _ in range(2):
        with pytest.raises(kc.Corruption, match="ingest record") as caught:
            kc.open_table(made.path, "rw")
        assert caught.value.offset == offset
        with kc.open_table(made.path, "r") as reader:
            assert rows_of(reader) == made.states[3]
            with pytest.raises(kc.Corruption, match="ingest record"):
                reader.verify()


def test_a_reader_that_is_refreshed_past_such_a_record_is_told(made: Made, tmp_path: Path) -> None:
    other = tmp_path / "other"
    shutil.copytree(made.path, other)
    reader = kc.open_table(made.path, "r")
    assert reader.unreplayed is None
    made.forge(4, missing_key)
    with pytest.warns(UnreplayedWarning):
        reader.refresh()
    assert reader.unreplayed is not None
    assert rows_of(reader) == made.states[3]
    shutil.rmtree(made.path / "wal")
    shutil.copytree(other / "wal", made.path / "wal")
    reader.refresh()
    assert reader.unreplayed is None
    assert rows_of(reader) == made.states[4]
    reader.close()


@pytest.mark.parametrize("mode", ["r", "rw"])
@pytest.mark.parametrize("error", [OverflowError("2 GiB"), ValueError("x"), IndexError(), AssertionError()])
def test_no_raw_exception_leaves_an_open(
    made: Made, monkeypatch: pytest.MonkeyPatch, mode: str, error: Exception
) -> None:
    usual, calls = Laying.reserve, 0

    def fail(laying: Laying) -> bool:
        nonlocal calls
        calls += 1
        if calls >= 2:  # of a group, and again of its first record alone
            raise error
        return usual(laying)

    monkeypatch.setattr(Laying, "reserve", fail)
    if mode == "r":
        with opened(made) as reader:
            assert rows_of(reader) == made.states[0], "the first record is in files, the second one failed"
            assert reader.unreplayed is not None and type(error).__name__ in reader.unreplayed.reason
    else:
        with pytest.raises(kc.Corruption, match=type(error).__name__):
            kc.open_table(made.path, "rw")
        calls = -100
        with kc.open_table(made.path, "rw") as table:
            assert rows_of(table) == made.states[4]


@pytest.mark.parametrize("mode", ["r", "rw"])
def test_memory_that_ends_in_replay_is_no_damage(
    made: Made, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    usual, left = Laying.reserve, 3

    def fail(laying: Laying) -> bool:
        nonlocal left
        left -= 1
        if left >= 0:
            raise MemoryError
        return usual(laying)

    monkeypatch.setattr(Laying, "reserve", fail)
    with pytest.raises(kc.MemoryLimit, match="lower memory_limit_bytes"), warnings.catch_warnings():
        kc.open_table(made.path, mode)
    left = 0
    with kc.open_table(made.path, mode) as table:
        assert rows_of(table) == made.states[4]


def test_a_writer_flushes_when_memory_ends_in_replay(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    usual, failed = Laying.reserve, []

    def fail(laying: Laying) -> bool:
        if len(laying._tablet.view.active) and not failed:
            failed.append(laying)
            raise MemoryError
        return usual(laying)

    monkeypatch.setattr(Laying, "reserve", fail)
    with kc.open_table(made.path, "rw") as table:
        assert failed
        assert len(rowsets_of(table)) == 2
        assert rows_of(table) == made.states[4]


def test_an_interrupt_of_an_open_is_an_interrupt(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Laying, "reserve", stop)
    for mode in ("r", "rw"):
        with pytest.raises(KeyboardInterrupt):
            kc.open_table(made.path, mode)


def test_a_repair_can_leave_records_out(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    """``replay_log`` goes on where it is told to, and none of the record is in the tablets."""
    made.forge(3, duplicate_key)
    left_out: list[Unreplayed] = []
    import kudu_core.table.lifecycle.replaying as opening

    def replay(replay: Replay, tail: Any, skip: Any, **named: Any) -> Any:
        def leave_out(found: Unreplayed, record: Any) -> bool:
            assert record.lsn == found.lsn
            left_out.append(found)
            return True

        return replay_log(replay, tail, leave_out, **named)

    monkeypatch.setattr(opening, "replay_log", replay)
    with kc.open_table(made.path, "r") as reader:
        # The deletion of a key that the record would have inserted has nothing to delete either.
        assert len(left_out) == 2
        assert [found.timestamp for found in left_out] == made.times[3:]
        assert reader.unreplayed is None
        assert rows_of(reader) == made.states[2]


def test_the_place_of_every_record_is_known(made: Made) -> None:
    with kc.open_table(made.path, "r") as table:
        uuid = table_file_of(table).uuid
        tail = read_log(engine_of(table).fs, str(made.path / "wal"), uuid)
    try:
        data = made.segment().read_bytes()
        for lsn, (at, _) in enumerate(log_records(data), tail.last_segment().prev_lsn + 1):
            assert tail.place_of(lsn) == (str(made.segment()), at)
        assert tail.place_of(10**9) == (str(made.path / "wal"), 0)
    finally:
        tail.close()
