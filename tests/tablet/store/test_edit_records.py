"""Edits of tablets as records of the log: what is written is read, in order, and nothing else is believed
(protocol B7)."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from kudu_core.errors import Corruption
from kudu_core.rowset.rows.meta import DeltaRef, FileRef, RowSetMeta
from kudu_core.tablet.store import records
from kudu_core.tablet.store.edit_records import (
    OWN_TS,
    LoggedEdits,
    edit_member,
    edit_payload,
    edits_of,
    stamped,
)
from kudu_core.tablet.store.edits import Edit, TabletState, with_edit
from kudu_core.wal import RECORD_KIND_EDIT, RECORD_KIND_INGEST, Record


def rowset(number: int, ts: int = 50, redo: tuple[DeltaRef, ...] = ()) -> RowSetMeta:
    base = FileRef(f"000002-{number:08d}.rows", 1000, 7)
    return RowSetMeta(number, base, 10, b"a", b"z", ts, ts, ts, redo=redo)


def delta(number: int, ts: int, record_ts: int | None) -> DeltaRef:
    return DeltaRef(FileRef(f"000002-{number:08d}.delta", 100, 9), 3, ts, ts, record_ts, 1, {4: 3})


def record(payload: bytes, kind: int = RECORD_KIND_EDIT, ts: int = 900, lsn: int = 5) -> Record:
    return Record(lsn, ts, kind, 0, memoryview(payload), 0)


def ingest(edits: dict[str, object], ts: int = 900) -> Record:
    payload = records.Payload((), [], {"edits": edits, "parts": {}})
    return record(b"".join(map(bytes, records.encode(payload))), RECORD_KIND_INGEST, ts)


EDITS = [
    Edit(add=(rowset(1), rowset(2, 60)), inserts_durable=60, next_file=3, next_rowset=3),
    Edit(remove=(1,), add=(replace(rowset(2, 60), redo=(delta(5, 70, None),), durable=70),), horizon=20),
    Edit(remove=(2,)),
]


def test_an_edit_is_what_its_record_says() -> None:
    for number, edit in enumerate(EDITS, 1):
        payload = edit_payload(17, number, edit)
        assert len(payload) % 8 == 0
        (found,) = edits_of(record(payload))
        assert found == (17, number, edit)


def test_edits_add_up_on_top_of_a_snapshot() -> None:
    state = TabletState()
    for edit in EDITS[:1]:
        state = replace(with_edit(state, edit), number=1)
    for known in (0, 1):
        logged = LoggedEdits({17: state} if known else {})
        for number, edit in enumerate(EDITS, 1):
            logged.add(record(edit_payload(17, number, edit)))
        found = logged.state_of(17, 9)
        assert (found.number, found.epoch, found.rowsets) == (3, 9, {})
        assert found.inserts_durable == 60 and found.horizon == 20 and found.mark == 70
        assert found.retired == {"000002-00000001.rows", "000002-00000002.rows", "000002-00000005.delta"}
    assert LoggedEdits({17: state}).state_of(17, 9) == replace(state, epoch=9)
    assert LoggedEdits({}).state_of(3, 9) == TabletState(epoch=9)


@pytest.mark.parametrize("order", [(1, 3), (2, 3), (1, 2, 2, 4)])
def test_a_gap_is_damage(order: tuple[int, ...]) -> None:
    logged = LoggedEdits({})
    with pytest.raises(Corruption, match=r"edit \d of tablet 17 follows edit \d"):
        for number in order:
            logged.add(record(edit_payload(17, number, Edit(horizon=number))))


def test_what_removes_nothing_is_damage() -> None:
    logged = LoggedEdits({})
    with pytest.raises(Corruption, match="removes rowset 8, which is not there"):
        logged.add(record(edit_payload(17, 1, Edit(remove=(8,)))))


def test_an_ingest_says_the_edits_of_all_its_tablets_at_its_own_time() -> None:
    changed = replace(rowset(2, 60), redo=(delta(5, 70, None), delta(6, OWN_TS, OWN_TS)), durable=OWN_TS)
    edits = {
        3: Edit(add=(rowset(1, OWN_TS),), ingests_durable=OWN_TS),
        4: Edit(add=(changed,), ingests_durable=OWN_TS, mark=OWN_TS),
    }
    told = ingest({str(i): edit_member(7 + i, edit) for i, edit in edits.items()}, ts=900)
    found = {one.tablet_id: one for one in edits_of(told)}
    assert (found[3].number, found[4].number) == (10, 11)
    new = found[3].edit.add[0]
    assert (new.insert_ts, new.max_insert_ts, new.durable) == (900, 900, 900)
    assert found[3].edit.ingests_durable == found[4].edit.mark == 900
    other = found[4].edit.add[0]
    assert [(d.min_ts, d.max_ts, d.record_ts) for d in other.redo] == [(70, 70, None), (900, 900, 900)]
    assert other.insert_ts == 60 and other.durable == 900, "times that are not its own stay"
    assert stamped(EDITS[1], 900) == EDITS[1]


def test_an_ingest_without_edits_says_none() -> None:
    payload = records.Payload((), [], {"parts": {}})
    told = record(b"".join(map(bytes, records.encode(payload))), RECORD_KIND_INGEST)
    assert list(edits_of(told)) == []


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"short",
        bytes(16),
        edit_payload(17, 1, EDITS[0])[:16],
        edit_payload(0, 1, EDITS[2]),
        edit_payload(17, 0, EDITS[2]),
        edit_payload(17, 1, EDITS[0])[:-30],
        edit_payload(17, 1, EDITS[2]) + b"[]\n",
        edit_payload(17, 1, EDITS[2]) + b'{"retired": ["000001-00000001.rows"]}\n',
        (17).to_bytes(8, "little") + (1).to_bytes(8, "little") + b'{"checkpoint": true}\n',
    ],
)
def test_what_no_writer_writes_is_damage(payload: bytes) -> None:
    with pytest.raises(Corruption, match="log record 5"):
        list(edits_of(record(payload)))


@pytest.mark.parametrize("told", [{"x": [1, []]}, {"3": [1]}, {"3": [0, [{}]]}, {"3": [1, []]}, {"3": 7}])
def test_an_ingest_that_says_nonsense_is_damage(told: dict[str, object]) -> None:
    with pytest.raises(Corruption, match="log record 5"):
        list(edits_of(ingest(told)))


def test_bytes_at_random_are_damage_or_an_edit() -> None:
    rng = random.Random(1)
    good = edit_payload(17, 1, EDITS[1])
    for _ in range(500):
        turned = bytearray(good)
        for _ in range(rng.randrange(1, 4)):
            turned[rng.randrange(len(turned))] = rng.randrange(256)
        try:
            for one in edits_of(record(bytes(turned))):
                assert one.tablet_id > 0 and one.number > 0
        except Corruption as error:
            assert "log record 5" in str(error)
