"""The tablets of an open table: by partition, by time, and replaced as a whole."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest

from kudu_core.errors import SnapshotTooOld
from kudu_core.table.opened.tablets import NEWEST, Tablets


@dataclass
class Tablet:
    """As far as a list of tablets asks."""

    id: int
    ordinal: int
    created_ts: int = 0
    dropped_ts: int | None = None
    manifest: Any = None

    @property
    def partition(self) -> Any:
        return SimpleNamespace(ordinal=self.ordinal)

    def is_there(self, snapshot: int) -> bool:
        return self.created_ts <= snapshot and (self.dropped_ts is None or snapshot < self.dropped_ts)


class Partitions:
    """Ranges of one partition each."""

    def __init__(self, count: int, live: tuple[bool, ...] | None = None) -> None:
        self.first_ordinals = range(count)
        self.former: tuple[Partitions, ...] = ()
        self.live = live
        self.asked = 0

    def kept_for(self, ordinals: Any) -> Partitions:
        return self

    def scheme_of(self, ordinal: int) -> Partitions:
        return self

    def with_live(self, live: list[bool]) -> Partitions:
        self.asked += 1
        return Partitions(len(live), tuple(live))


def tablets(*given: Tablet, partitions: Partitions | None = None) -> Tablets:
    some: Any = given
    known: Any = partitions or Partitions(3)
    return Tablets(some, known)


def test_they_come_in_the_order_of_their_ids() -> None:
    made = tablets(Tablet(7, 1), Tablet(2, 2), Tablet(4, 0))
    assert [t.id for t in made] == [2, 4, 7] and made[1].id == 4 and len(made) == 3


def test_a_partition_has_the_tablet_of_the_time_that_is_asked_for() -> None:
    old, new = Tablet(1, 0, 0, 50), Tablet(5, 0, 50)
    made = tablets(old, new, Tablet(2, 1))
    assert made.of_ordinal(0) is made.of_ordinal(0, NEWEST) is made.of_ordinal(0, 50) is new
    assert made.of_ordinal(0, 49) is made.of_ordinal(0, 0) is old
    assert made.of_ordinal(1, 3).id == 2


def test_a_tablet_that_was_purged_is_too_old_to_be_read() -> None:
    made = tablets(Tablet(1, 0, 0, 50), Tablet(5, 0, 50), Tablet(2, 1))
    left = made.without({1})
    assert left.of_ordinal(0).id == 5
    for ordinal, snapshot in ((0, 49), (2, NEWEST)):
        with pytest.raises(SnapshotTooOld, match=f"partition {ordinal} was dropped"):
            left.of_ordinal(ordinal, snapshot)


def test_changes_make_others_and_leave_these_as_they_are() -> None:
    before = Partitions(3)
    made = tablets(Tablet(1, 0), Tablet(2, 1), partitions=before)
    after: Any = Partitions(3)
    third: Any = Tablet(3, 2, 60)
    more = made.with_new([third], after)
    less = more.without({1})
    assert [[t.id for t in some] for some in (made, more, less)] == [[1, 2], [1, 2, 3], [2, 3]]
    assert made.partitions is before and more.partitions is less.partitions is after
    with pytest.raises(SnapshotTooOld):
        made.of_ordinal(2)


def test_the_partitions_of_a_time_are_those_that_had_tablets() -> None:
    known = Partitions(3)
    made = tablets(Tablet(1, 0, 0, 50), Tablet(2, 1), Tablet(3, 2, 70), partitions=known)
    assert made.partitions_at(NEWEST) is made.partitions_at(70) is known
    live = {at: made.partitions_at(at).live for at in (0, 49, 50, 69)}  # type: ignore[attr-defined]
    assert live == {
        0: (True, True, False),
        49: (True, True, False),
        50: (False, True, False),
        69: (False, True, False),
    }
    assert known.asked == 2, "one for each time between two changes"
    assert made.partitions_at(20) is made.partitions_at(30)


def test_a_dropped_range_is_a_change_that_snapshots_may_look_behind() -> None:
    known = Partitions(2)
    made = tablets(Tablet(1, 0, 0, 50), Tablet(2, 1), partitions=known)
    before: Any = made.partitions_at(49)
    assert made.partitions_at(50) is known and before.live == (True, True)


def test_what_manifests_have_on_disk_is_said_of_those_that_have_one() -> None:
    made = tablets(Tablet(1, 0, manifest=SimpleNamespace(proven_number=8)), Tablet(2, 1))
    assert made.proven_edits() == {1: 8}
