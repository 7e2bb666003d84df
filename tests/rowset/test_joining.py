"""Joining the histories of a key's copies, against the states; and what a full compaction picks."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import pytest

from kudu_core.cfile.columns.statistics import StatisticsBlock, pack
from kudu_core.cfile.columns.zone import Zone
from kudu_core.rowset.history.joining import NEVER, Copies, Joined, LifetimeTurns, Unjoinable, join
from kudu_core.rowset.rows.meta import ColumnsRef, DeltaRef, FileRef, RowSetMeta
from kudu_core.tablet.maintain.full_policy import full_merges, overlapping_groups
from kudu_core.tablet.maintain.merge_policy import MAX_INPUTS


@dataclass
class Copy:
    """Lifetimes of one copy, [start, end), in order; the last one may have no end."""

    lives: list[tuple[int, int | None]]

    def lives_at(self, time: int) -> bool:
        return any(start <= time and (end is None or time < end) for start, end in self.lives)


def random_key(rng: random.Random) -> list[Copy]:
    """Lifetimes one after the other, each in one of the copies."""
    copies = [Copy([]) for _ in range(rng.randint(1, 4))]
    time = 0
    for life in range(rng.randint(len(copies), 7)):
        start = time + rng.randint(1, 3)
        end = start + rng.randint(1, 4)
        mine = copies[life] if life < len(copies) else rng.choice(copies)
        if mine.lives and mine.lives[-1][1] is None:
            raise AssertionError
        mine.lives.append((start, end))
        time = end
    if rng.random() < 0.6:
        last = max(copies, key=lambda copy: copy.lives[-1][0])
        last.lives[-1] = (last.lives[-1][0], None)
    rng.shuffle(copies)
    return copies


def arrays(keys: list[list[Copy]], horizon: int) -> tuple[Copies, LifetimeTurns]:
    key, inserted, deleted = [], [], []
    turn_copy, turn_time, turn_ended = [], [], []
    for number, copies in enumerate(keys):
        for copy in copies:
            for (_, end), (start, _) in zip(copy.lives[:-1], copy.lives[1:], strict=True):
                assert end is not None
                for time, ended in ((start, False), (end, True)):
                    if time > horizon:
                        turn_copy.append(len(key))
                        turn_time.append(time)
                        turn_ended.append(ended)
            key.append(number)
            inserted.append(copy.lives[0][0])
            deleted.append(copy.lives[-1][1] or 0)
    return (
        Copies(np.array(key, np.int64), np.array(inserted, np.uint64), np.array(deleted, np.uint64)),
        LifetimeTurns(
            np.array(turn_copy, np.int64), np.array(turn_time, np.uint64), np.array(turn_ended, bool)
        ),
    )


def alive_by(joined: Joined, copies: Copies, turns: LifetimeTurns, key: int, time: int) -> bool:
    """What a reader makes of the joined row: UNDO above ``time``, newest first, then the insert time."""
    if joined.last[key] < 0:
        return False
    alive = not (joined.deleted[key] != NEVER and int(joined.deleted[key]) <= time)
    undo = [(int(t), False) for k, t in zip(*joined.begun, strict=True) if k == key]
    undo += [(int(t), True) for c, t in zip(*joined.ended, strict=True) if copies.key[c] == key]
    told = set(joined.told.tolist())
    for number, copy in enumerate(turns.copy.tolist()):
        if copies.key[copy] == key and number not in told:
            undo.append((int(turns.timestamps[number]), bool(turns.ended[number])))
    times = [t for t, _ in undo]
    assert len(times) == len(set(times)), "one record for each turn"
    for ts, present in sorted(undo, reverse=True):
        if ts > time:
            alive = present
    return alive and int(joined.inserted[key]) <= time


def test_the_joined_row_lives_when_one_of_the_copies_does(seed: int, long: bool) -> None:
    for run in range(3000 if long else 300):
        rng = random.Random(f"{seed}-{run}")
        keys = [random_key(rng) for _ in range(rng.randint(1, 5))]
        end = 60
        horizon = rng.randint(0, 40)
        copies, turns = arrays(keys, horizon)
        joined = join(copies, turns, horizon)
        for number, mine in enumerate(keys):
            first = int(np.searchsorted(copies.key, number))
            for time in range(horizon, end):
                wanted = any(copy.lives_at(time) for copy in mine)
                found = alive_by(joined, copies, turns, number, time)
                assert found == wanted, (run, number, time)
            left = any(copy.lives_at(time) for copy in mine for time in range(horizon, end))
            assert (joined.last[number] >= 0) == left
            if left:
                last = mine[int(joined.last[number]) - first]
                assert last.lives[-1] == max(life for copy in mine for life in copy.lives)


def test_history_below_the_horizon_may_contradict_itself() -> None:
    """A copy whose UNDO has gone seems to have lived while another one did."""
    whole = Copy([(10, None)])
    other = Copy([(20, 30)])
    copies, turns = arrays([[whole, other]], 50)
    joined = join(copies, turns, 50)
    assert joined.last.tolist() == [0] and joined.inserted.tolist() == [10] and not len(joined.begun[0])
    with pytest.raises(Unjoinable, match="begins while another one lives, at 20"):
        join(*arrays([[whole, other]], 15), 15)
    with pytest.raises(Unjoinable, match="lives in two rowsets at 25"):
        join(*arrays([[whole, Copy([(20, None)])]], 25), 25)


def test_two_changes_at_one_time_are_refused() -> None:
    with pytest.raises(Unjoinable, match="at 20"):
        join(*arrays([[Copy([(10, 20)]), Copy([(20, None)])]], 5), 5)
    with pytest.raises(Unjoinable) as caught:
        join(*arrays([[Copy([(1, 2)]), Copy([(3, 4)])], [Copy([(5, None)]), Copy([(6, None)])]], 0), 0)
    assert caught.value.key == 1


# ---- what a full compaction merges ----


COLUMNS = frozenset({1, 2, 3})


def meta(
    number: int, low: int, high: int, size: int, dead: int = 0, updated: int = 0, anew: tuple[int, ...] = ()
) -> RowSetMeta:
    """Three columns of a fifth of ``size`` each; ``anew``: those in another file, where they take as much."""
    redo: tuple[DeltaRef, ...] = ()
    if dead or updated:
        updates = {updated: 9} if updated else {}
        redo = (DeltaRef(FileRef(f"{number}.delta", 0, 0), 9, 5, 9, None, dead, updates),)
    columns = ColumnsRef(FileRef(f"{number}.more.rows", size // 5 * len(anew), 0), anew, told(anew, size))
    return RowSetMeta(
        number,
        FileRef(f"{number}.rows", size, 0),
        1000,
        bytes([low]),
        bytes([high]),
        1,
        1,
        1,
        redo,
        replaced=(columns,) if anew else (),
        statistics=told(COLUMNS, size),
    )


def told(columns: Iterable[int], size: int) -> StatisticsBlock:
    return pack(1000, {i: (size // 5, Zone(None, None, 0, 0, 1000)) for i in columns})


def test_groups_overlap_nowhere() -> None:
    metas = [meta(1, 0, 9, 1), meta(2, 20, 30, 1), meta(3, 9, 12, 1), meta(4, 40, 41, 1), meta(5, 25, 26, 1)]
    groups = [[m.id for m in group] for group in overlapping_groups(metas)]
    assert groups == [[1, 3], [2, 5], [4]]
    assert list(overlapping_groups([])) == []


@pytest.mark.parametrize(
    ("metas", "wanted"),
    [
        ([], []),
        ([meta(1, 0, 9, 100)], []),
        ([meta(1, 0, 9, 10)], []),  # small and alone
        ([meta(1, 0, 9, 100), meta(2, 10, 19, 90)], []),  # as they are to be
        ([meta(1, 0, 9, 100), meta(2, 9, 19, 90)], [(1, 2)]),
        ([meta(1, 0, 9, 10), meta(2, 10, 19, 20), meta(3, 20, 29, 100)], [(1, 2)]),
        ([meta(1, 0, 9, 10), meta(2, 10, 19, 100), meta(3, 20, 29, 10)], []),  # small, but apart
        ([meta(1, 0, 9, 100, dead=3)], [(1,)]),
        ([meta(1, 0, 9, 10, dead=3)], [(1,)]),
        # Cells that stand anew elsewhere: 3 of 8 fifths no one reads; 2 of 7 with the third of them to come.
        ([meta(1, 0, 9, 100, anew=(2, 3))], []),
        ([meta(1, 0, 9, 100, anew=(2, 3), updated=1)], [(1,)]),
        ([meta(1, 0, 9, 100, updated=1)], []),
        ([meta(1, 0, 9, 100), meta(2, 5, 6, 1), meta(3, 7, 19, 40), meta(4, 20, 21, 5)], [(1, 2, 3, 4)]),
        # Disjoint groups are not merged all at one time.
        (
            [m for i in range(20) for m in (meta(i, 4 * i, 4 * i + 2, 100), meta(50 + i, 4 * i, 4 * i, 100))],
            [tuple(n for i in part for n in (i, 50 + i)) for part in (range(8), range(8, 16), range(16, 20))],
        ),
    ],
)  # fmt: skip
def test_what_a_full_compaction_merges(metas: list[RowSetMeta], wanted: list[tuple[int, ...]]) -> None:
    assert list(full_merges(metas, 100, 7, COLUMNS)) == wanted
    assert list(full_merges(metas[::-1], 100, 7, COLUMNS)) == wanted


def test_very_many_are_merged_in_parts() -> None:
    small = [meta(i, 0, 9, 10) for i in range(600)]
    found = list(full_merges(small, 100, 7, COLUMNS))
    assert [n for ids in found for n in ids] == list(range(600))
    assert max(len(ids) for ids in found) == MAX_INPUTS
    large = [meta(i, 0, 9, 100) for i in range(600)]  # of which parts would become no fewer
    assert [len(ids) for ids in full_merges(large, 100, 7, COLUMNS)] == [600]


def test_dead_rows_that_somebody_may_see_are_no_reason() -> None:
    assert list(full_merges([meta(1, 0, 9, 100, dead=3)], 100, 4, COLUMNS)) == []


def test_cells_of_dropped_columns_are_a_reason() -> None:
    assert list(full_merges([meta(1, 0, 9, 100)], 100, 4, {2, 3})) == []
    assert list(full_merges([meta(1, 0, 9, 100)], 100, 4, {3})) == [(1,)]
    assert meta(1, 0, 9, 100, anew=(1,)).stale_bytes({2, 3}) == 40  # old and new ones
