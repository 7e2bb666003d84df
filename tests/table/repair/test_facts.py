"""The rule of a repair: what follows from facts about keys (``table/repair/facts.py``)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from kudu_core.common.rows.keys import EncodedKeys
from kudu_core.common.rows.rowblock import ColumnBuffers
from kudu_core.common.schema.declare import declare
from kudu_core.table.repair.facts import (
    ABSENT,
    CHANGE,
    GONE,
    IMAGE,
    LOST,
    MAYBE,
    OLDER,
    PRESENT,
    Facts,
    MissingFacts,
    judge,
)

SCHEMA = declare(pa.schema([("k", pa.int64()), ("a", pa.int64()), ("b", pa.string())]), "k")
K, A, B = SCHEMA.columns
UNKNOWN = ...
"""In place of a cell."""


def column(stored: Any, cells: Sequence[Any]) -> ColumnBuffers:
    values = [None if cell is UNKNOWN else cell for cell in cells]
    return ColumnBuffers.from_arrow(pa.array(values, stored.type.arrow), stored.type)


def facts(kind: int, *told: tuple[Any, ...], **more: Any) -> Facts:
    """``told``: (key, time) of an ABSENT, with a and b of the others."""
    block = column(K, [one[0] for one in told])
    keys = EncodedKeys.from_columns([(K, block)], len(told))
    times = np.array([one[1] for one in told], np.uint64)
    columns, known = {}, {}
    if kind != ABSENT:
        for place, stored in ((2, A), (3, B)):
            cells = [one[place] for one in told]
            columns[stored.id] = column(stored, cells)
            known[stored.id] = np.array([cell is not UNKNOWN for cell in cells])
    return Facts(kind, keys, times, columns, known, **more)


def verdict(*parts: Facts, **missing: Any) -> tuple[int, Any, Any, int]:
    """Of the one key: the verdict, its cells, changes put aside."""
    found = judge(SCHEMA, parts, MissingFacts(**missing))
    assert len(found) == 1
    cells = [found.columns[c.id].to_arrow(c.type)[0].as_py() for c in (A, B)]
    return int(found.verdict[0]), cells[0], cells[1], int(found.aside[0])


IMAGE_AT_5 = facts(IMAGE, (1, 5, 10, "x"))


@pytest.mark.parametrize(
    ("parts", "wanted"),
    [
        ([IMAGE_AT_5], (PRESENT, 10, "x", 0)),
        ([IMAGE_AT_5, facts(IMAGE, (1, 7, 20, "y"))], (PRESENT, 20, "y", 0)),
        ([facts(IMAGE, (1, 7, 20, "y")), IMAGE_AT_5], (PRESENT, 20, "y", 0)),
        ([IMAGE_AT_5, facts(ABSENT, (1, 6))], (GONE, None, None, 0)),
        ([IMAGE_AT_5, facts(ABSENT, (1, 4))], (PRESENT, 10, "x", 0)),
        ([IMAGE_AT_5, facts(CHANGE, (1, 6, 11, UNKNOWN))], (PRESENT, 11, "x", 0)),
        ([IMAGE_AT_5, facts(CHANGE, (1, 6, 11, UNKNOWN), (1, 8, 12, UNKNOWN), (1, 7, UNKNOWN, None))],
         (PRESENT, 12, None, 0)),
        ([IMAGE_AT_5, facts(CHANGE, (1, 4, 11, UNKNOWN))], (PRESENT, 10, "x", 0)),
        ([IMAGE_AT_5, facts(CHANGE, (1, 5, 11, UNKNOWN)), facts(IMAGE, (1, 5, 12, "z"), newest=True)],
         (PRESENT, 12, "z", 0)),
        # A change of a row that is nowhere is of one that is gone since.
        ([facts(CHANGE, (1, 6, 11, UNKNOWN))], (GONE, None, None, 0)),
        ([facts(ABSENT, (1, 3)), facts(CHANGE, (1, 6, 11, UNKNOWN))], (GONE, None, None, 0)),
    ],
)  # fmt: skip
def test_when_nothing_is_missing(parts: list[Facts], wanted: tuple[Any, ...]) -> None:
    assert verdict(*parts, mark=100) == wanted


@pytest.mark.parametrize(
    ("parts", "wanted"),
    [
        # A cell is not known: the row as it was before, if that is known, and nothing laid over it.
        ([facts(IMAGE, (1, 9, 10, UNKNOWN))], (LOST, 10, None, 0)),
        ([facts(IMAGE, (1, 9, 10, UNKNOWN)), IMAGE_AT_5], (OLDER, 10, "x", 0)),
        ([facts(IMAGE, (1, 9, 30, UNKNOWN)), IMAGE_AT_5, facts(CHANGE, (1, 12, 31, UNKNOWN))],
         (OLDER, 10, "x", 1)),
        # Unless a later change says what it is.
        ([facts(IMAGE, (1, 9, 30, UNKNOWN)), IMAGE_AT_5, facts(CHANGE, (1, 12, UNKNOWN, "n"))],
         (PRESENT, 30, "n", 0)),
        # There was none before: no older row is given in its place.
        ([facts(IMAGE, (1, 9, 30, UNKNOWN)), IMAGE_AT_5, facts(ABSENT, (1, 7))], (LOST, 30, None, 0)),
        # What a file's state was made of is of the same time.
        ([facts(IMAGE, (1, 9, 30, UNKNOWN), newest=True), facts(IMAGE, (1, 9, 10, "x"))],
         (OLDER, 10, "x", 0)),
        ([facts(IMAGE, (1, 9, 30, UNKNOWN), newest=True), IMAGE_AT_5, facts(CHANGE, (1, 9, 30, UNKNOWN))],
         (OLDER, 30, "x", 0)),
        ([facts(IMAGE, (1, 9, 30, UNKNOWN), newest=True), IMAGE_AT_5, facts(ABSENT, (1, 9))],
         (LOST, 30, None, 0)),
        # Between them others may be missing.
        ([facts(IMAGE, (1, 9, 30, UNKNOWN)), facts(IMAGE, (1, 5, 10, "x"), closed=True),
          facts(CHANGE, (1, 7, 11, UNKNOWN))], (OLDER, 10, "x", 1)),
        ([facts(IMAGE, (1, 9, 30, UNKNOWN)), IMAGE_AT_5, facts(CHANGE, (1, 7, 11, UNKNOWN))],
         (OLDER, 11, "x", 0)),
    ],
)  # fmt: skip
def test_cells_that_are_not_known(parts: list[Facts], wanted: tuple[Any, ...]) -> None:
    assert verdict(*parts) == wanted


@pytest.mark.parametrize(
    ("parts", "wanted"),
    [
        ([IMAGE_AT_5], (PRESENT, 10, "x", 0)),
        # Something may have come between: a row is never put together from two times.
        ([IMAGE_AT_5, facts(CHANGE, (1, 30, 11, UNKNOWN))], (OLDER, 10, "x", 1)),
        ([IMAGE_AT_5, facts(CHANGE, (1, 7, 8, UNKNOWN), (1, 30, 11, UNKNOWN))], (OLDER, 8, "x", 1)),
        # But whole states and changes that set everything are what they are.
        ([IMAGE_AT_5, facts(CHANGE, (1, 30, 11, "n"))], (PRESENT, 11, "n", 0)),
        ([IMAGE_AT_5, facts(CHANGE, (1, 30, 11, UNKNOWN), (1, 31, UNKNOWN, "n"))], (PRESENT, 11, "n", 0)),
        ([IMAGE_AT_5, facts(IMAGE, (1, 30, 11, "n"))], (PRESENT, 11, "n", 0)),
        ([IMAGE_AT_5, facts(ABSENT, (1, 30))], (GONE, None, None, 0)),
        # Files hold all that was done before 19.
        ([facts(IMAGE, (1, 19, 10, "x")), facts(CHANGE, (1, 30, 11, UNKNOWN))], (PRESENT, 11, "x", 0)),
        ([facts(IMAGE, (1, 18, 10, "x")), facts(CHANGE, (1, 30, 11, UNKNOWN))], (OLDER, 10, "x", 1)),
        ([IMAGE_AT_5, facts(CHANGE, (1, 19, 11, UNKNOWN))], (PRESENT, 11, "x", 0)),
        # It was inserted in the gap.
        ([facts(CHANGE, (1, 30, 11, UNKNOWN))], (LOST, 11, None, 0)),
    ],
)
def test_records_lost_before_20(parts: list[Facts], wanted: tuple[Any, ...]) -> None:
    assert verdict(*parts, gaps=(20,)) == wanted


def test_two_gaps() -> None:
    parts = [IMAGE_AT_5, facts(CHANGE, (1, 25, 11, UNKNOWN), (1, 35, UNKNOWN, "n"))]
    assert verdict(*parts, gaps=(20, 30)) == (OLDER, 10, "x", 2)
    assert verdict(*parts, gaps=(30,)) == (OLDER, 11, "x", 1)


def test_doubts() -> None:
    doubtful = facts(IMAGE, (1, 5, 10, "x"), doubtful=np.array([True]))
    assert verdict(doubtful) == (MAYBE, 10, "x", 0)
    # What is changed later was there.
    assert verdict(doubtful, facts(CHANGE, (1, 7, 11, UNKNOWN))) == (PRESENT, 11, "x", 0)
    assert verdict(doubtful, facts(ABSENT, (1, 7))) == (GONE, None, None, 0)


def test_changes_without_a_row_where_stores_are_missing() -> None:
    change = facts(CHANGE, (1, 6, 11, UNKNOWN))
    key = change.keys[0]
    for holes, wanted in (
        (((None, None),), LOST),
        (((key, key),), LOST),
        (((b"", key),), LOST),
        (((key + b"\\0", None),), GONE),
        (((None, b""),), GONE),
    ):
        assert verdict(change, mark=100, holes=holes)[0] == wanted, holes


def test_many_keys_in_one_look() -> None:
    """Each key for itself, in the order of keys."""
    image = facts(IMAGE, *((k, 5, k, f"{k}") for k in range(100)))
    change = facts(CHANGE, *((k, 6 + k % 3, -k, UNKNOWN) for k in range(0, 100, 2)))
    absent = facts(ABSENT, *((k, 7) for k in range(0, 100, 5)))
    found = judge(SCHEMA, [absent, change, image], MissingFacts(mark=100))
    assert found.verdict.tolist() == [GONE if k % 5 == 0 else PRESENT for k in range(100)]
    values = found.columns[A.id].to_arrow(A.type).to_pylist()
    assert values == [None if k % 5 == 0 else -k if k % 2 == 0 else k for k in range(100)]


def test_nothing() -> None:
    assert len(judge(SCHEMA, [], MissingFacts())) == 0


def test_an_insert_that_is_older_than_a_column() -> None:
    """It has the column's default, which later changes and states take the place of; a deletion has none."""
    later = replace(SCHEMA.by_id[B.id], read_default="d")
    schema = replace(SCHEMA, columns=(K, A, later))
    old = facts(IMAGE, *((k, 5, k, UNKNOWN) for k in range(4)))
    del old.columns[B.id], old.known[B.id]
    newer = facts(IMAGE, (3, 6, 30, "y"))
    parts = [old, facts(CHANGE, (0, 7, UNKNOWN, "x"), (1, 7, 10, UNKNOWN)), facts(ABSENT, (2, 7)), newer]
    found = judge(schema, parts, MissingFacts(mark=100))
    assert found.verdict.tolist() == [PRESENT, PRESENT, GONE, PRESENT]
    assert found.columns[A.id].to_arrow(A.type).to_pylist() == [0, 10, None, 30]
    assert found.columns[B.id].to_arrow(B.type).to_pylist() == ["x", "d", None, "y"]
