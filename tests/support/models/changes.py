"""Protocol N14: a state and the changes since it give every later state."""

from __future__ import annotations

import random
from typing import Any

import pyarrow.compute as pc

import kudu_core as kc
from tests.support.models.history import VALUES, History
from tests.support.models.model import State, difference


def image(row: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(row[name] for name in VALUES)


def check_changes(table: kc.Table, history: History, since: int, until: int) -> int:
    """Every state in ``(since, until]`` by replay of the changes, and the net changes; returns how many."""
    state: State = dict(history.past.at(since))
    times = [t for t in history.writes if since < t <= until]
    rows = table.changes(since, until, images="both").to_pylist()
    at = 0
    for time in times:
        while at < len(rows) and rows[at]["_timestamp"] <= time:
            row = rows[at]
            key, op, before = (row["k"],), row["_op"], row["_before"]
            assert row["_timestamp"] == time, "a change between two writes"
            if op == "insert":
                assert key not in state and before is None, row
            else:
                assert before is not None and before["k"] == row["k"], row
                assert image(before) == state[key], (row, state[key])
            if op == "delete":
                assert image(row) == (None,) * len(VALUES), row
                del state[key]
            else:
                state[key] = image(row)
            at += 1
        wanted = history.past.at(time)
        assert state == wanted, f"after the changes through {time}: {difference(state, wanted)}"
    assert at == len(rows), f"changes after the last write: {rows[at:]}"
    assert rows == sorted(rows, key=lambda r: r["_timestamp"])
    _check_net(table, history, since, until)
    return len(rows)


def _check_net(table: kc.Table, history: History, since: int, until: int) -> None:
    old, new = history.past.at(since), history.past.at(until)
    wanted = {}
    for key in old.keys() | new.keys():
        if old.get(key) != new.get(key):
            wanted[key] = (old.get(key), new.get(key))
    found = {}
    for row in table.changes(since, until, images="both", net=True).to_pylist():
        key, before = (row["k"],), row["_before"]
        after = None if row["_op"] == "delete" else image(row)
        assert key not in found, f"{key} came twice"
        assert (row["_op"] == "insert") == (before is None)
        assert since < row["_timestamp"] <= until
        found[key] = (None if before is None else image(before), after)
    assert found == wanted


def check_pairs(table: kc.Table, history: History, rng: random.Random, pairs: int) -> int:
    """``check_changes`` between random writes, and projections and predicates on one of them."""
    times = [0, *history.writes]
    count = 0
    for _ in range(pairs):
        since, until = sorted(rng.choice(times) for _ in range(2))
        count += check_changes(table, history, since, until)
    since = rng.choice(times)
    bound = rng.randrange(-(10**6), 10**6)
    some = table.changes(since, columns=["a", "k"], where=pc.field("a") > bound, images="both")
    every = table.changes(since, images="both").to_pylist()
    wanted = [
        {"_op": r["_op"], "_timestamp": r["_timestamp"], "a": r["a"], "k": r["k"]}
        for r in every
        if (value := (r["_before"] if r["_op"] == "delete" else r)["a"]) is not None and value > bound
    ]
    found = [{name: value for name, value in r.items() if name != "_before"} for r in some.to_pylist()]
    assert sorted(found, key=str) == sorted(wanted, key=str)
    return count
