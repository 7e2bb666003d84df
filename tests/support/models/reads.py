"""All ways to read a table of ``tests.support.models.history`` at one time, beside what was there."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow.compute as pc

import kudu_core as kc
from tests.support.models.history import VALUES
from tests.support.models.model import State, difference

Row = dict[str, Any]


def check_reads(
    table: kc.Table, at: int | kc.Snapshot | None, state: State, keys: Sequence[int], rng: random.Random
) -> None:
    """A random projection and predicate by scans in both orders, counts, and point reads of some ``keys``."""
    rows = {key[0]: dict(zip(VALUES, row, strict=True)) | {"k": key[0]} for key, row in state.items()}
    names = rng.sample(["k", *VALUES], rng.randint(1, 4))
    if "k" not in names:
        names.append("k")
    where, matches = _predicate(rng, keys)
    wanted = {k: {n: row[n] for n in names} for k, row in rows.items() if matches(row)}
    for order in ("any", "key"):
        scan = table.scan(names, where, at=at, order=order)
        found = scan.to_table().to_pylist()
        what = f"{order} order of {names} where {where}"
        _same({row["k"]: row for row in found}, wanted, what)
        assert len(found) == len(wanted), f"{what}: a key came twice"
        if order == "key":
            assert [row["k"] for row in found] == sorted(wanted)
        assert scan.count() == len(wanted)
    assert table.count(at=at) == len(rows)
    some = rng.sample(list(keys), min(12, len(keys)))
    many = table.get_many(some, names, at).to_pylist()
    for key, row in zip(some, many, strict=True):
        assert row.pop("_found") == (key in rows), key
        if key in rows:
            assert row == {n: rows[key][n] for n in names}
    for key in some[:4]:
        assert table.get(key, names, at) == ({n: rows[key][n] for n in names} if key in rows else None)


def _predicate(rng: random.Random, keys: Sequence[int]) -> tuple[Any, Callable[[Row], bool]]:
    bound = rng.randrange(-(10**6), 10**6)
    lower, upper = keys[len(keys) // 4], keys[len(keys) // 2]
    predicates: list[tuple[Any, Callable[[Row], bool]]] = [
        (None, lambda row: True),
        ([("a", "<", bound)], lambda row: row["a"] is not None and row["a"] < bound),
        ([("k", ">=", lower), ("k", "<", upper)], lambda row: lower <= row["k"] < upper),
        (pc.field("b").is_null(), lambda row: row["b"] is None),
    ]
    return rng.choice(predicates)


def _same(found: dict[int, Row], wanted: dict[int, Row], what: str) -> None:
    def cells(rows: dict[int, Row]) -> State:
        return {(key,): tuple(row.items()) for key, row in rows.items()}

    if found != wanted:
        told = [{k: dict(sorted(row.items())) for k, row in rows.items()} for rows in (found, wanted)]
        raise AssertionError(f"{what}: {difference(cells(told[0]), cells(told[1]))}")
