"""An answer rests on nothing that a crash may take back (protocol W4), or that others change meanwhile."""

from __future__ import annotations

import pyarrow.compute as pc
import pytest

import kudu_core as kc
from tests.support.fs.faulty import Call
from tests.support.fs.slow import LATE_S, SOON_S, Disk, Thread, create, log_sync, rows


@pytest.mark.parametrize("ingest", [False, True])
def test_w4_a_refusal_waits_for_the_record_it_rests_on(disk: Disk, ingest: bool) -> None:
    table = create(disk, ingest_threshold_rows=3)
    data = rows(10, 14 if ingest else 11)
    with disk.held(log_sync, lambda: table.insert(rows(10, 11))):
        other = Thread(lambda: table.insert(data))
        other.join(SOON_S)
        assert other.is_alive(), "the row that refuses it is not durable"
    other.join(LATE_S)
    assert isinstance(other.answer[0], kc.RowErrors)


def test_w4_nothing_to_delete_waits_for_the_delete_that_left_nothing(disk: Disk) -> None:
    table = create(disk)
    table.insert(rows(0, 5))
    with disk.held(log_sync, lambda: table.delete(where=pc.field("k") < 3)):
        other = Thread(lambda: table.delete(where=pc.field("k") < 3))
        other.join(SOON_S)
        assert other.is_alive()
    other.join(LATE_S)
    assert other.answer[0].counts == (0, 0, 0, 0)  # type: ignore[attr-defined]


def test_w4_an_ingest_that_ignores_all_waits(disk: Disk) -> None:
    table = create(disk, ingest_threshold_rows=3)
    table.insert(rows(10, 12))
    with disk.held(log_sync, lambda: table.insert(rows(12, 13))):
        other = Thread(lambda: table.insert(rows(10, 13), on_conflict="ignore"))
        other.join(SOON_S)
        assert other.is_alive()
    other.join(LATE_S)
    assert other.answer[0].ignored == 3  # type: ignore[attr-defined]


def test_g3_a_key_that_came_to_nothing_is_decided_again(disk: Disk) -> None:
    """Insert and delete of a key leave nothing to conflict with, but somebody inserted it meanwhile."""
    table = create(disk, ingest_threshold_rows=3)
    done: list[int] = []

    def meanwhile(call: Call) -> None:
        if not done and call.op == "create" and "/staging/" in call.path:
            done.append(1)
            table.insert(rows(50, 51))

    disk.see = meanwhile
    operations = {"k": [50, 50, 1, 2], "a": [0] * 4, "_op": ["insert", "delete", "insert", "insert"]}
    with pytest.raises(kc.RowErrors):
        table.apply(operations)
    assert done and table.count() == 1
