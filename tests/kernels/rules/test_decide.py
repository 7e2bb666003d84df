"""The row rules agree with a dict, row by row and as the one change that is left per key."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest

from kudu_core._ext.rules import decide
from tests.support.oracles.rules import decide as oracle

FIRST_SEED = int(os.environ.get("KUDU_CORE_SEED", "0"))
REFUSED = 5
CODES = {
    decide.OK: "ok",
    decide.ALREADY_PRESENT: "already_present",
    decide.NOT_FOUND: "not_found",
    decide.NULL_IN_REQUIRED: "null_in_required",
    decide.IGNORED: "ignored",
    REFUSED: "refused",
}


class Batch:
    """The state arrays of a batch, and the groups of its keys in order of first appearance."""

    def __init__(self, store: dict[int, oracle.Row], calls: list[list[int]], ncols: int) -> None:
        self.ncols = ncols
        self.groups: dict[int, int] = {}
        for keys in calls:
            for key in keys:
                self.groups.setdefault(key, len(self.groups))
        g = len(self.groups)
        self.was_live = np.array([key in store for key in self.groups], np.uint8)
        self.live = self.was_live.copy()
        self.touched = np.zeros(g, np.uint8)
        self.source = np.full(g * ncols, -1, np.int64)
        self.key_row = np.full(g, -1, np.int64)
        self.base = 0

    def call(
        self, keys: list[int], op: Any, given: list[int], status: Any = None, required: bool = False
    ) -> Any:
        gid = np.array([self.groups[key] for key in keys], np.int32)
        codes = np.full(len(keys), 99, np.uint8)
        counts = decide.decide(
            gid,
            op,
            status,
            np.array(given, np.uint8),
            required,
            self.base,
            self.live,
            self.touched,
            self.source,
            self.key_row,
            codes,
        )
        self.base += len(keys)
        return counts, [CODES[int(code)] for code in codes]

    def net(self) -> list[int]:
        g = len(self.groups)
        kinds = decide.net(self.was_live, self.live, self.touched, self.source, g, self.ncols)
        return [int(kind) for kind in kinds]


def one(
    store: bool, *ops: int, given: tuple[int, ...] = (1, 1), ncols: int = 2
) -> tuple[list[str], int, list[int]]:
    """Codes of the operations on one key, the net change and its sources."""
    batch = Batch({1: (0,) * ncols} if store else {}, [[1]], ncols)
    codes = [batch.call([1], op, list(given))[1][0] for op in ops]
    return codes, batch.net()[0], batch.source.tolist()


def test_batches_agree_with_a_dict(long: bool) -> None:
    """Random operations, keys repeated within and across the calls of a batch; and what ``net``
    and the sources say turns the store before the batch into the store after it."""
    for seed in range(FIRST_SEED, FIRST_SEED + (20_000 if long else 400)):
        print(f"seed {seed}")
        rng = np.random.default_rng(seed)
        ncols = int(rng.choice([0, 1, 2, 5, 70]))
        key_count = int(rng.integers(1, 12))
        before: dict[int, oracle.Row] = {
            key: tuple(("old", key, c) for c in range(ncols))
            for key in range(key_count)
            if rng.random() < 0.5
        }
        calls = [
            rng.integers(0, key_count, int(rng.integers(0, 25))).tolist()
            for _ in range(int(rng.integers(1, 5)))
        ]
        after = dict(before)
        batch = Batch(before, calls, ncols)
        key_of_row: list[int] = []
        for keys in calls:
            given = (rng.random(ncols) < rng.choice([0.0, 0.3, 1.0])).astype(int).tolist()
            required = bool(rng.random() < 0.2)
            ops = rng.integers(0, 8, len(keys)).astype(np.uint8)
            single = bool(rng.random() < 0.5)
            if single:
                ops[:] = rng.integers(0, 8)
            refused = rng.random(len(keys)) < 0.1
            status = np.where(refused, REFUSED, 0).astype(np.uint8)
            base = batch.base
            values = [{c: base + i for c in range(ncols) if given[c]} for i in range(len(keys))]
            expected = oracle.apply_call(
                after, keys, [oracle.OPS[op] for op in ops], values, refused.tolist(), ncols, required
            )
            op = int(ops[0]) if single and len(keys) else ops
            counts, codes = batch.call(keys, op, given, status if refused.any() else None, required)
            assert codes == expected.codes
            assert counts == (
                expected.inserted,
                expected.updated,
                expected.deleted,
                expected.ignored,
                expected.errors,
            )
            key_of_row += keys
        net_makes(batch, before, after, key_of_row, ncols)


def net_makes(
    batch: Batch,
    before: dict[int, oracle.Row],
    after: dict[int, oracle.Row],
    key_of_row: list[int],
    ncols: int,
) -> None:
    """What ``net`` and the sources say turns the store before the batch into the store after it."""
    kinds = batch.net()
    changed = dict(before)
    for key, group in batch.groups.items():
        assert bool(batch.live[group]) == (key in after)
        sources = batch.source[group * ncols : (group + 1) * ncols].tolist()
        if kinds[group] in (decide.NET_INSERT, decide.NET_UPDATE):
            old = before.get(key)
            assert kinds[group] == (decide.NET_INSERT if old is None else decide.NET_UPDATE)
            assert old is not None or -1 not in sources
            changed[key] = tuple(
                oracle.DEFAULT if s == -2 else s if s >= 0 else (old or ())[c] for c, s in enumerate(sources)
            )
            assert key_of_row[batch.key_row[group]] == key
        elif kinds[group] == decide.NET_DELETE:
            del changed[key]
            assert key_of_row[batch.key_row[group]] == key
    assert changed == after
    words = decide.patterns(np.array(kinds, np.uint8), batch.source, len(kinds), ncols)
    assert words.shape == (len(kinds), (ncols + 63) // 64)
    for group, kind in enumerate(kinds):
        columns = [c for c in range(ncols) if int(words[group, c // 64]) >> (c % 64) & 1]
        changes = [c for c in range(ncols) if batch.source[group * ncols + c] != -1]
        assert columns == (changes if kind == decide.NET_UPDATE else [])


def test_insert_then_delete_of_an_absent_key_is_nothing() -> None:
    assert one(False, decide.CALL_INSERT, decide.CALL_DELETE)[:2] == (["ok", "ok"], decide.NET_NOTHING)


def test_delete_then_insert_of_a_live_key_is_an_update_of_all_columns() -> None:
    codes, kind, sources = one(True, decide.CALL_DELETE, decide.CALL_INSERT, given=(1, 0))
    assert (codes, kind, sources) == (["ok", "ok"], decide.NET_UPDATE, [1, -2])


def test_upsert_of_a_live_key_leaves_columns_that_are_not_given() -> None:
    assert one(True, decide.CALL_UPSERT, given=(0, 1)) == (["ok"], decide.NET_UPDATE, [-1, 0])
    assert one(False, decide.CALL_UPSERT, given=(0, 1)) == (["ok"], decide.NET_INSERT, [-2, 0])


def test_upsert_of_key_columns_alone_succeeds_and_changes_nothing() -> None:
    assert one(True, decide.CALL_UPSERT, given=(0, 0)) == (["ok"], decide.NET_NOTHING, [-1, -1])
    assert one(True, decide.CALL_UPSERT, given=(), ncols=0)[:2] == (["ok"], decide.NET_NOTHING)


@pytest.mark.parametrize(
    ("store", "op", "code"),
    [
        (True, decide.CALL_INSERT, "already_present"),
        (True, decide.CALL_INSERT_IGNORE, "ignored"),
        (False, decide.CALL_UPDATE, "not_found"),
        (False, decide.CALL_UPDATE_IGNORE, "ignored"),
        (False, decide.CALL_DELETE, "not_found"),
        (False, decide.CALL_DELETE_IGNORE, "ignored"),
    ],
)
def test_what_fails_leaves_no_trace(store: bool, op: int, code: str) -> None:
    assert one(store, op) == ([code], decide.NET_NOTHING, [-1, -1])


def test_a_missing_required_column_fails_only_rows_that_would_insert() -> None:
    batch = Batch({1: (0,)}, [[1, 2]], 1)
    for op, live, absent in (
        (decide.CALL_UPSERT, "ok", "null_in_required"),
        (decide.CALL_INSERT, "already_present", "null_in_required"),
        (decide.CALL_INSERT_IGNORE, "ignored", "null_in_required"),
        (decide.CALL_UPDATE, "ok", "not_found"),
    ):
        assert batch.call([1, 2], op, [0], required=True)[1] == [live, absent]


def test_what_does_not_fit_is_refused_and_writes_nothing() -> None:
    def run(**other: Any) -> Any:
        arguments: dict[str, Any] = {
            "gid": np.array([0, 1], np.int32),
            "op": 0,
            "row_status": None,
            "given": np.ones(3, np.uint8),
            "required_missing": False,
            "base": 0,
            "live": np.zeros(2, np.uint8),
            "touched": np.zeros(2, np.uint8),
            "source": np.full(6, -1, np.int64),
            "key_row": np.full(2, -1, np.int64),
            "out_code": np.zeros(2, np.uint8),
        }
        return decide.decide(**(arguments | other)), arguments

    assert run()[0] == (2, 0, 0, 0, 0)
    live = np.zeros(2, np.uint8)
    for wrong in (
        {"gid": np.array([0, 2], np.int32)},
        {"gid": np.array([0, -1], np.int32)},
        {"op": 8},
        {"op": -1},
        {"op": np.array([0, 8], np.uint8)},
        {"op": np.zeros(1, np.uint8)},
        {"base": -1},
        {"row_status": np.zeros(1, np.uint8)},
        {"touched": np.zeros(1, np.uint8)},
        {"source": np.zeros(5, np.int64)},
        {"key_row": np.zeros(3, np.int64)},
        {"out_code": np.zeros(1, np.uint8)},
    ):
        with pytest.raises(ValueError):
            run(live=live, **wrong)
        assert not live.any()
    empty = np.zeros(0, np.uint8)
    with pytest.raises(ValueError):
        decide.net(empty, live, live, np.zeros(6, np.int64), 2, 3)
    with pytest.raises(ValueError):
        decide.patterns(live, np.zeros(5, np.int64), 2, 3)
