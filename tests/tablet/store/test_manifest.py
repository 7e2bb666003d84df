"""MANIFEST: an append that a power cut tore is the end of the edits, everything else is ``Corruption``."""

from __future__ import annotations

import errno
import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from kudu_core.cfile.columns.statistics import StatisticsRef, pack
from kudu_core.cfile.columns.zone import Zone
from kudu_core.errors import Corruption, NotSupported, Poisoned
from kudu_core.rowset.rows.meta import ColumnsRef, DeltaRef, FileRef, NumbersByColumn, RowSetMeta
from kudu_core.tablet.store import manifest as manifests
from kudu_core.tablet.store import manifest_format as form
from kudu_core.tablet.store.edits import Edit, TabletState
from kudu_core.tablet.store.manifest import Manifest, read_manifest
from tests.support.fs.faulty import Call, Rule
from tests.support.fs.memory import MemoryFileSystem
from tests.support.fs.slow import LATE_S, SOON_S, Disk, Thread

UUID = bytes(range(16))
PATH = "/t/MANIFEST"


def nothing(*_: object) -> None:
    return None


def meta(number: int, **changes: object) -> RowSetMeta:
    zone = Zone(b"\1" * 8, b"\2" * 8, 0, 0, 10)
    found = RowSetMeta(
        number,
        FileRef(f"000001-{number:08d}.rows", 1000 + number, number * 7919),
        10,
        b"a%d" % number,
        b"b%d" % number,
        number,
        number,
        number,
        statistics=pack(10, {1: (100, zone), 2: (50, Zone(None, None, 10, 0, 10))}),
    )
    return replace(found, **changes)  # type: ignore[arg-type]


def opened(
    fs: MemoryFileSystem | Disk,
    state: TabletState | None = None,
    epoch: int = 1,
    *,
    poison: Callable[[BaseException], None] = nothing,
    check_poisoned: Callable[[], None] = nothing,
) -> Manifest:
    return Manifest(
        fs,
        "/t",
        UUID,
        1,
        epoch,
        state or TabletState(),
        fence=nothing,
        poison=poison,
        check_poisoned=check_poisoned,
    )


def begun() -> tuple[MemoryFileSystem, Manifest]:
    fs = MemoryFileSystem()
    fs.mkdir("/t")
    fs.sync_dir("/")
    manifest = opened(fs)
    manifest.create()
    return fs, manifest


def read(fs: MemoryFileSystem) -> TabletState:
    return read_manifest(fs, PATH, UUID, 1)[0]


def of_bytes(data: bytes) -> TabletState:
    fs = MemoryFileSystem()
    fs.mkdir("/t")
    fs.replace_file(PATH, data)
    return read(fs)


def some_edits(manifest: Manifest, count: int, *, sync: bool = True) -> list[TabletState]:
    """The state after each of them."""
    states = [manifest.state]
    for number in range(1, count + 1):
        manifest.append(Edit(add=(meta(number),), inserts_durable=number, next_file=number + 1))
        if sync:
            manifest.sync()
        states.append(manifest.state)
    return states


def test_edits_come_back() -> None:
    fs, manifest = begun()
    states = some_edits(manifest, 3)
    delta = DeltaRef(FileRef("000001-00000009.delta", 5, 6), 3, 4, 5, None, 1, {1: 2, 2: 2, 7: 3})
    columns = ColumnsRef(FileRef("000001-00000010.rows", 7, 8), (2,), StatisticsRef(900, 60, 3, ((2, 2),)))
    changed = meta(2, redo=(delta,), undo=(delta,), replaced=(columns,), durable=9)
    manifest.append(Edit(add=(changed,), remove=(1,), horizon=4))
    assert read(fs) == manifest.state != states[-1]
    assert read(fs).mark == 9 and list(read(fs).rowsets) == [2, 3]
    assert read(fs).rowsets[2] == changed
    assert read(fs).retired == {meta(1).base.name}
    manifest.renew()
    assert read(fs) == manifest.state


def test_updates_of_many_columns_are_one_run() -> None:
    delta = DeltaRef(FileRef("000001-00000009.delta", 5, 6), 3, 4, 5, None, 1, dict.fromkeys(range(1000), 3))
    value = delta.to_json()
    assert value["updates"] == [[0, 999, 3]]
    found = DeltaRef.from_json(value)
    assert isinstance(found.updates, NumbersByColumn) and found == delta
    assert 999 in found.updates and 1000 not in found.updates and found.updates[500] == 3
    for hostile in ([[0, 2**31 - 1, 1]], [[5, 4, 1]], [[0, 3, 1], [3, 4, 1]], [[-1, 0, 1]], [[0, 1, 2**32]]):
        with pytest.raises(ValueError):
            DeltaRef.from_json({**value, "updates": hostile})


def test_an_edit_of_many_frames(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lines lie across frames; an edit is there when its last frame is, and no sooner."""
    monkeypatch.setattr(form, "MAX_FRAME_BYTES", 64)
    fs, manifest = begun()
    manifest.append(Edit(add=tuple(map(meta, range(1, 20)))))
    manifest.sync()
    whole = fs.read_bytes(PATH, 1 << 20)
    assert len(form.scan_edits(whole)[0]) == 2
    assert read(fs) == manifest.state
    first = form.scan_edits(whole)[0][1]
    for cut in range(first.offset, first.end, 24):
        assert of_bytes(whole[:cut]).number == 1
    # A frame of it lost, those behind it there: of an edit whose fsync nobody waited for.
    zeros = whole[: first.offset + 112] + bytes(112) + whole[first.offset + 224 :]
    assert of_bytes(zeros).number == 1


def test_no_entry_is_longer_than_a_reader_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Refused before anything is written: the manifest goes on."""
    fs, manifest = begun()
    some_edits(manifest, 1)
    before = fs.read_bytes(PATH, 1 << 20)
    monkeypatch.setattr(form, "MAX_LINE_BYTES", 2000)
    redo = tuple(
        DeltaRef(FileRef(f"000001-{n:08d}.delta", 5, 6), 3, 4, 5, None, 1, {1: 3}) for n in range(100, 120)
    )
    with pytest.raises(NotSupported, match="compact the table"):
        manifest.append(Edit(add=(meta(1, redo=redo),)))
    assert fs.read_bytes(PATH, 1 << 20) == before
    manifest.append(Edit(add=(meta(2),)))
    assert read(fs) == manifest.state


def test_every_flipped_bit_is_found(seed: int, long: bool) -> None:
    """Of an edit that is durable, also of the last one: nothing of it looks like what a power cut leaves."""
    fs, manifest = begun()
    some_edits(manifest, 3)
    data = fs.read_bytes(PATH, 1 << 20)
    rng = random.Random(seed)
    for at in range(len(data)):
        for bit in range(8) if long else (rng.randrange(8),):
            damaged = bytearray(data)
            damaged[at] ^= 1 << bit
            with pytest.raises((Corruption, NotSupported)):
                of_bytes(bytes(damaged))
                pytest.fail(f"bit {bit} of byte {at}")


def test_a_number_of_one_is_no_hole() -> None:
    """One bit makes eight zero bytes of the smallest number: no sign of a power cut for that."""
    fs, _ = begun()
    data = bytearray(fs.read_bytes(PATH, 1 << 20))
    data[form.HEADER.size + 8] ^= 1
    with pytest.raises(Corruption):
        of_bytes(bytes(data))


@pytest.mark.parametrize("page", [4096, 64])
def test_whatever_a_power_cut_leaves_is_read(
    page: int, monkeypatch: pytest.MonkeyPatch, seed: int, long: bool
) -> None:
    """No legal state is called damage, none shows an edit without those before it, or loses a synced one.

    Also with pages so small that each frame has some."""
    from tests.support.fs import powercut

    monkeypatch.setattr(powercut, "_PAGE_BYTES", page)
    monkeypatch.setattr(form, "_PAGE_BYTES", page)
    rng = random.Random(seed)
    torn = 0
    for _ in range(3000 if long else 300):
        monkeypatch.setattr(form, "MAX_FRAME_BYTES", rng.choice((1 << 20, 64, 512)))
        fs, manifest = begun()
        synced = rng.randrange(4)
        states = some_edits(manifest, synced)
        for number in range(10, 10 + rng.randrange(1, 4)):
            manifest.append(Edit(add=tuple(meta(number * 100 + n) for n in range(rng.choice((1, 9))))))
            states.append(manifest.state)
        left = read(fs.crash_clone(rng))
        assert left in states and left.number >= synced + 1, f"--seed={seed}"
        torn += left != states[-1]
    assert torn > 20


def test_an_edit_behind_a_missing_one() -> None:
    """Zeros where an edit was, and behind them one that was written after its fsync."""
    fs, manifest = begun()
    some_edits(manifest, 3)
    data = fs.read_bytes(PATH, 1 << 20)
    edits, bad = form.scan_edits(data)
    assert [e.number for e in edits] == [1, 2, 3, 4] and not bad
    hole = data[: edits[2].offset] + bytes(edits[2].end - edits[2].offset) + data[edits[2].end :]
    with pytest.raises(Corruption, match=r"edit 3 is damaged: edit 4 .* written after its fsync"):
        of_bytes(hole)
    # Whoever mends it finds what is left, and where something is missing.
    found, missing = form.scan_edits(hole)
    assert [e.number for e in found] == [1, 2, 4] and missing == [(edits[2].offset, edits[2].end)]
    assert found[2].lines == edits[3].lines
    # Were it not for the fsync, a power cut might have left just that.
    fs, manifest = begun()
    some_edits(manifest, 3, sync=False)
    data = fs.read_bytes(PATH, 1 << 20)
    hole = data[: edits[2].offset] + bytes(edits[2].end - edits[2].offset) + data[edits[2].end :]
    assert of_bytes(hole).number == 2


def test_a_damaged_length_hides_nothing() -> None:
    fs, manifest = begun()
    some_edits(manifest, 3)
    data = bytearray(fs.read_bytes(PATH, 1 << 20))
    second = form.scan_edits(bytes(data))[0][1]
    data[second.offset + 4 : second.offset + 8] = b"\xf8\xff\xff\x7f"
    with pytest.raises(Corruption, match="edit 2"):
        of_bytes(bytes(data))
    assert [e.number for e in form.scan_edits(bytes(data))[0]] == [1, 3, 4]


def _swapped(data: bytes) -> bytes:
    one, two = form.scan_edits(data)[0][1:3]
    return data[: one.offset] + data[two.offset : two.end] + data[one.offset : one.end] + data[two.end :]


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "no edit": lambda data: data[: form.HEADER.size],
    "a torn first edit": lambda data: data[: form.HEADER.size + 60],
    "garbage": lambda data: data + b"x" * 64,
    "the last edit again": lambda data: data + data[form.scan_edits(data)[0][-1].offset :],
    "edits swapped": _swapped,
    "an edit cut out": lambda data: (
        data[: form.scan_edits(data)[0][1].offset] + data[form.scan_edits(data)[0][1].end :]
    ),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_what_no_power_cut_leaves(name: str) -> None:
    fs, manifest = begun()
    some_edits(manifest, 3)
    with pytest.raises(Corruption):
        of_bytes(DAMAGES[name](fs.read_bytes(PATH, 1 << 20)))


def test_zeros_at_the_end_are_none() -> None:
    fs, manifest = begun()
    states = some_edits(manifest, 2)
    for zeros in (1, 8, 100, 5000):
        assert of_bytes(fs.read_bytes(PATH, 1 << 20) + bytes(zeros)) == states[-1]


def test_reading_costs_what_the_edits_change(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not a copy of all rowsets for each edit."""
    fs, manifest = begun()
    for number in range(1, 400):
        manifest.append(Edit(add=(meta(number),)))
    made = []
    monkeypatch.setattr(manifests, "TabletState", lambda *a, **k: made.append(1) or TabletState(*a, **k))
    assert len(read(fs).rowsets) == 399
    assert len(made) < 5


def test_an_older_life_s_edit_is_ignored() -> None:
    """A writer that was fenced may still append to the file that it has open."""
    fs, manifest = begun()
    states = some_edits(manifest, 2)
    later = opened(fs, states[-1], epoch=2)
    later.append(Edit(add=(meta(7),)))
    data = fs.read_bytes(PATH, 1 << 20)
    stale = form.frames(form.Header(UUID, 1), len(data), 4, 1, 3, form.lines_of([{"I": 99}]))
    assert of_bytes(data + b"".join(stale)) == later.state


def synced(call: Call) -> bool:
    return call.op == "sync" and call.path == PATH


def begun_on(disk: Disk, **options: Any) -> Manifest:
    """With an edit that is not synced."""
    disk.mkdir("/t")
    manifest = opened(disk, **options)
    manifest.create()
    manifest.append(Edit(inserts_durable=1))
    return manifest


def test_what_is_being_synced_stays_open(disk: Disk) -> None:
    """Closed under its fsync, a manifest poisoned the whole table: a purge may come beside a merge."""
    failures: list[BaseException] = []
    manifest = begun_on(disk, poison=failures.append)
    with disk.held(synced, manifest.sync):
        closing = Thread(manifest.close)
        closing.join(SOON_S)
        assert not closing.answer
    closing.join(LATE_S)
    assert closing.answer == [None] and not failures
    assert manifest.durable_number == manifest.state.number


def test_w8_who_waited_for_an_fsync_that_failed_runs_no_second_one(disk: Disk) -> None:
    failures: list[BaseException] = []

    def check_poisoned() -> None:
        if failures:
            raise Poisoned(str(failures[0]))

    manifest = begun_on(disk, poison=failures.append, check_poisoned=check_poisoned)
    before, number = disk.counts["sync"], manifest.durable_number
    disk.rules = [Rule(ops={"sync"}, nth=1, error=errno.EIO)]
    with disk.held(synced, manifest.sync):
        second = Thread(manifest.sync)
        second.join(SOON_S)
        assert not second.answer
    second.join(LATE_S)
    assert isinstance(second.answer[0], Poisoned) and len(failures) == 1
    assert (disk.counts["sync"] - before, manifest.durable_number) == (1, number)
