"""Which compaction of deltas pays, by what is changed, in how many files, and who reads."""

from __future__ import annotations

import pytest

from kudu_core.rowset.rows.meta import DeltaRef, FileRef, RowSetMeta
from kudu_core.tablet.maintain.delta_policy import MAJOR, MINOR, ColumnUse, delta_choice, major_columns

META = RowSetMeta(1, FileRef("base", 10_000, 0), 1000, b"a", b"z", 5, 5, 5)
READ, UNREAD = ColumnUse(scans=40), ColumnUse(scans=1)
REPLAYED = ColumnUse(scans=40, patched=False)


def files(*updates: dict[int, int]) -> tuple[DeltaRef, ...]:
    """REDO files with so many updates of each column, and as many entries as the most of them."""
    return tuple(
        DeltaRef(FileRef(f"{number}", 100, 0), max(counts.values()), 1, 9, None, 0, counts)
        for number, counts in enumerate(updates)
    )


@pytest.mark.parametrize(
    ("use", "changed", "folded"),
    [
        (READ, 590, False),
        (READ, 600, True),
        (UNREAD, 1990, False),
        (UNREAD, 2000, True),
        (ColumnUse(), 1990, False),
        (REPLAYED, 90, False),
        (REPLAYED, 100, True),
        (ColumnUse(scans=1, patched=False), 500, False),
    ],
)
def test_a_column_is_folded_by_its_reads_and_by_what_changes_cost_them(
    use: ColumnUse, changed: int, folded: bool
) -> None:
    some = files({7: changed // 2}, {7: changed - changed // 2})
    assert major_columns(META, some, {7: use}) == ([7] if folded else [])
    assert delta_choice(META, some, {7: use}) == (MAJOR if folded else None)


def test_only_the_columns_that_pay_are_written_anew() -> None:
    """Rounds of upserts change all columns; one is scanned."""
    rounds = files(*[{2: 50, 3: 50, 4: 50}] * 11)
    assert delta_choice(META, rounds, {3: READ}) is None
    rounds = files(*[{2: 50, 3: 50, 4: 50}] * 12)
    assert delta_choice(META, rounds, {3: READ}) == MAJOR
    assert major_columns(META, rounds, {3: READ, 4: UNREAD}) == [3]


def test_files_are_merged_when_the_newer_ones_hold_as_much_as_the_oldest() -> None:
    assert delta_choice(META, files(*[{2: 10}] * 11)) is None
    assert delta_choice(META, files(*[{2: 10}] * 12)) == MINOR
    merged = {2: 120}
    assert delta_choice(META, files(merged, *[{2: 10}] * 11)) is None
    assert delta_choice(META, files(merged, *[{2: 10}] * 12)) == MINOR
    # However small they are, not so many.
    assert delta_choice(META, files(merged, *[{2: 1}] * 22)) is None
    assert delta_choice(META, files(merged, *[{2: 1}] * 23)) == MINOR


def test_what_rounds_of_upserts_have_written_again_is_a_small_multiple() -> None:
    """Two hundred rounds without a reader: minor ones, counted in entries."""
    sizes: list[int] = []
    written = 0
    for _ in range(200):
        sizes.append(10)
        if delta_choice(META, files(*({2: size} for size in sizes)), {}) is not None:
            written += sum(sizes)
            sizes = [sum(sizes)]
        if sum(sizes) >= 2000:
            sizes.clear()  # folded, since there are more than rows
    assert 0 < written < 6 * 200 * 10


def test_nothing_to_do() -> None:
    assert delta_choice(META, ()) is None
    assert delta_choice(RowSetMeta(1, FileRef("base", 10, 0), 0, b"", b"", 5, 5, 5), files({2: 9})) is None
