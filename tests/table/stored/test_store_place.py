"""TABLE of a table in an object store, and the snapshots that it names."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from kudu_core.errors import Corruption, NotSupported
from kudu_core.table.lifecycle.in_store.put_ids import new_id, put_id_of
from kudu_core.table.stored.store_place import SnapshotRef, StorePlace
from kudu_core.table.stored.table_state import IN_STORE, TableState, parse_state
from kudu_core.tablet.store.edits import TabletState
from kudu_core.tablet.store.manifest import parse_snapshot, snapshot_bytes
from tests.support.objects.memory import MemoryObjectStore
from tests.support.objects.tables import created


def stored() -> bytes:
    memory = MemoryObjectStore()
    created(memory, tablets=2).close()
    return memory.objects["TABLE"].data


PLACE = StorePlace(
    bytes(range(16)), 7, (b"x" * 16, 70, 9), 60, {1: SnapshotRef("000002-00000001.manifest", 100, 5, 3)}
)


def test_what_is_written_is_read() -> None:
    state = parse_state(stored(), "TABLE", in_store=True)
    changed = replace(state, place=PLACE, clean_end=12)
    data = changed.to_bytes()
    assert parse_state(data, "TABLE", in_store=True) == changed
    assert put_id_of("TABLE", data) == PLACE.put_id
    assert parse_state(stored(), "TABLE", in_store=True).edits == {}


def test_each_kind_of_place_reads_its_own() -> None:
    state = parse_state(stored(), "TABLE", in_store=True)
    with pytest.raises(NotSupported, match="format version 2"):
        parse_state(state.to_bytes(), "TABLE")
    folder: TableState = replace(state, place=None)
    with pytest.raises(Corruption):
        parse_state(folder.to_bytes(), "TABLE", in_store=True)


def broken(change: Callable[[dict[str, Any]], object]) -> bytes:
    value = json.loads(bytes(IN_STORE.body("TABLE", stored())))
    value |= PLACE.to_json()
    change(value)
    return IN_STORE.around(json.dumps(value).encode())


@pytest.mark.parametrize(
    "change",
    [
        lambda v: v.pop("put_id"),
        lambda v: v.update(put_id="00"),
        lambda v: v.update(put_id=7),
        lambda v: v.update(log_first=0),
        lambda v: v.update(log_prev=["00" * 16, 1]),
        lambda v: v.update(log_prev=["zz" * 16, 1, 1]),
        lambda v: v.update(through=-1),
        lambda v: v.update(snapshots=[[1, "../x.manifest", 10, 1, 1]]),
        lambda v: v.update(snapshots=[[1, "000002-00000001.rows", 10, 1, 1]]),
        lambda v: v.update(snapshots=[[1, "000002-00000001.manifest", 0, 1, 1]]),
        lambda v: v.update(snapshots=[[1, "000002-00000001.manifest", 1 << 40, 1, 1]]),
        lambda v: v.update(snapshots=[[1, "000002-00000001.manifest", 10, 1, 0]]),
        lambda v: v.update(snapshots=2 * [[1, "000002-00000001.manifest", 10, 1, 1]]),
        lambda v: v.update(snapshots={"1": []}),
    ],
)
def test_what_no_writer_writes_is_damage(change: Callable[[dict[str, Any]], object]) -> None:
    with pytest.raises(Corruption, match="broken contents"):
        parse_state(broken(change), "TABLE", in_store=True)


def test_a_snapshot_holds_a_state_and_nothing_else() -> None:
    uuid = bytes(range(16))
    state = TabletState(inserts_durable=5, mark=9, next_file=4, next_rowset=2, epoch=3, number=8)
    data = snapshot_bytes(state, uuid, 17)
    assert parse_snapshot(data, "x", uuid, 17) == state
    for other in (data + bytes(8), data[:-1], data + data):
        with pytest.raises(Corruption):
            parse_snapshot(other, "x", uuid, 17)
    with pytest.raises(Corruption, match="another table or tablet"):
        parse_snapshot(data, "x", uuid, 18)
    for at in range(len(data)):
        turned = bytearray(data)
        turned[at] ^= 1
        with pytest.raises((Corruption, NotSupported)):
            parse_snapshot(bytes(turned), "x", uuid, 17)


def test_ids_of_puts() -> None:
    assert len({new_id() for _ in range(100)}) == 100 and len(new_id()) == 16
    assert put_id_of("LEASE", b"{}") is None and put_id_of("TABLE", b"nothing") is None
    assert put_id_of("log/00000000000000000001", b"short") is None
    assert put_id_of("tablets/00000001/000002-00000001.rows", bytes(200)) is None
    one, other = put_id_of("00000001/BACKUP", b"1"), put_id_of("00000001/BACKUP", b"2")
    assert one is not None and len(one) == 16 and one != other
