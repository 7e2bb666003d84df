"""Every call that reads, while the state moves under it: at each of its steps a refresh, or a close, of
another thread; and history that is dropped between the look at the time and the pin.

A call of no named time is answered with a state of between its begin and its end.  What happens to states
meanwhile is never told: neither ``SnapshotTooOld``, nor ``Closed``, nor a missing file, nor fewer rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

import pytest

import kudu_core as kc
from kudu_core.table.opened.pins import Pins
from tests.support.models.overtaken import AT_ONCE, ROWS, WITHOUT_HISTORY, At, Pair

STEPS = 3
"""Steps of a call that the short run tries."""
Call = Callable[[Pair, kc.Table], object]
FOLDERS = count()


def _many(pair: Pair, table: kc.Table) -> object:
    return table.get_many(list(range(100)))["_found"].to_pylist().count(True) + 1


def _backup(pair: Pair, table: kc.Table) -> object:
    return table.backup(pair.path.parent / f"backup{next(FOLDERS)}").total


def _clone(pair: Pair, table: kc.Table) -> object:
    path = pair.path.parent / f"clone{next(FOLDERS)}"
    table.clone(path)
    with kc.open_table(path) as clone:
        return clone.count()


def _snapshot(pair: Pair, table: kc.Table) -> object:
    table.snapshot().close()
    return ROWS


def _dataset(pair: Pair, table: kc.Table) -> object:
    return ROWS if table.to_dataset().schema.names == ["k", "v"] else 0


def _tokens(pair: Pair, table: kc.Table) -> object:
    return sum(token.rows for token in table.scan_tokens(target_rows=10))


# By the name of the method: a call, which answers ROWS.
WHOLE: dict[str, Call] = {
    "get": lambda p, t: ROWS * bool(t.get(1)),
    "get_many": _many,
    "count": lambda p, t: t.count(),
    "scan": lambda p, t: ROWS * bool(t.scan().timestamp),
    "snapshot": _snapshot,
    "to_dataset": _dataset,
    "changes": lambda p, t: ROWS * bool(t.changes().until),
    "scan_tokens": _tokens,
    "change_tokens": lambda p, t: ROWS * len(t.change_tokens(None, net=True)),
    "stats": lambda p, t: t.stats()["rows_stored"].to_pylist()[0],
    "history_of": lambda p, t: ROWS * t.history_of(0).num_rows,
    "history": lambda p, t: ROWS * (t.history().num_columns > 0),
    "metrics": lambda p, t: ROWS * bool(t.metrics()),
    "report": lambda p, t: t.report().data.tablets[0].rows_stored,
    "layout": lambda p, t: ROWS * bool(t.layout()),
    "verify": lambda p, t: ROWS * bool(t.verify().files),
    "backup": _backup,
    "clone": _clone,
    "tags": lambda p, t: ROWS * (t.tags() == {}),
    "indexes": lambda p, t: ROWS * (t.indexes == {}),
    "timestamp": lambda p, t: ROWS * bool(t.timestamp),
    "unreplayed": lambda p, t: ROWS * (t.unreplayed is None),
    "schema": lambda p, t: ROWS * (t.schema.names == ["k", "v"]),
    "primary_key": lambda p, t: ROWS * (t.primary_key == ("k",)),
    "partitions": lambda p, t: ROWS * len(t.partitions.partitions),
    "options": lambda p, t: ROWS * (t.options.file_grace_s == 0),
    "mode": lambda p, t: ROWS * bool(t.mode),
    "ttl": lambda p, t: ROWS * (t.ttl is None),
    "path": lambda p, t: ROWS * (t.path == str(p.path)),
    "refresh": lambda p, t: ROWS * (t.refresh() is None),
}


def _share(pair: Pair, table: kc.Table) -> object:
    return sum(table.scan_token(token).to_table().num_rows for token in table.scan_tokens())


def _change_share(pair: Pair, table: kc.Table) -> object:
    tokens = table.change_tokens(None, net=True)
    return sum(table.change_token(token).to_table().num_rows for token in tokens)


# What is made first and read later, so that its history must be kept.
LAZY: dict[str, Call] = {
    "scan": lambda p, t: t.scan().to_table().num_rows,
    "changes": lambda p, t: t.changes(net=True).to_table().num_rows,
    "scan_token": _share,
    "change_token": _change_share,
    "to_dataset": lambda p, t: t.to_dataset().to_table().num_rows,
    "snapshot": lambda p, t: t.snapshot().scan().count(),
    "lazy": lambda p, t: t.lazy().collect().height,
    "head": lambda p, t: t.head(ROWS).num_rows,
    "to_table": lambda p, t: t.to_table().num_rows,
    "to_pandas": lambda p, t: len(t.to_pandas()),
    "to_polars": lambda p, t: t.to_polars().height,
}
WRITES = {"insert", "upsert", "update", "delete", "apply", "batch", "merge", "modify"}
ELSEWHERE = {"sql"}
"""DuckDB reads a dataset, which is here, and tells what goes wrong in words of its own."""
UPKEEP = {
    "alter", "flush", "compact", "maintain", "gc", "truncate", "repartition", "restore_to", "tag", "untag",
}  # fmt: skip
UPKEEP |= {"create_index", "drop_index"}


def test_every_call_is_here() -> None:
    public = {name for name in dir(kc.Table) if not name.startswith("_")}
    assert public == set(WHOLE) | set(LAZY) | WRITES | UPKEEP | ELSEWHERE | {"close"}


@pytest.fixture
def pair(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Pair]:
    made = Pair(tmp_path / "t", request.param)
    yield made
    made.close()


CASES = [
    *(pytest.param(WITHOUT_HISTORY, call, id=name) for name, call in WHOLE.items()),
    *(pytest.param(AT_ONCE, call, id=f"{name} and read") for name, call in LAZY.items()),
]
calls = pytest.mark.parametrize(("pair", "call"), CASES, indirect=["pair"])


def steps_of(call: Call, pair: Pair, long: bool) -> list[int]:
    with At(None, lambda: None) as whole:
        assert call(pair, pair.reader) == ROWS
    stride = 1 if long else max(1, whole.steps // STEPS)
    return list(range(1, whole.steps + 1, stride))


@calls
def test_a_refresh_beside_it(pair: Pair, call: Call, long: bool) -> None:
    for step in steps_of(call, pair, long):
        with At(step, pair.overtake):
            assert call(pair, pair.reader) == ROWS, step


@calls
def test_files_that_are_replaced_beside_it(pair: Pair, call: Call, long: bool) -> None:
    for step in steps_of(call, pair, long):
        pair.replace()  # the reader has opened none of the files of its state
        pair.reader.refresh()
        with At(step, pair.replace):
            assert call(pair, pair.reader) == ROWS, step


@calls
def test_a_close_beside_it(pair: Pair, call: Call, long: bool) -> None:
    """It is answered, or refused: and everything after it is refused."""
    for step in steps_of(call, pair, long):
        with At(step, pair.reader.close), suppress(kc.Closed):
            assert call(pair, pair.reader) == ROWS, step
        with pytest.raises(kc.Closed):
            pair.reader.count()
        pair.reader = kc.open_table(pair.path)


@pytest.mark.parametrize("name", sorted(set(WHOLE) - {"verify"}))
@pytest.mark.parametrize("pair", [WITHOUT_HISTORY], indirect=True)
def test_history_that_is_dropped_between_the_look_and_the_pin(
    pair: Pair, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the process that writes: a write and a merge come before the snapshot of a moment ago is pinned."""
    pin: Any = Pins.pin
    for at in range(3):
        seen: list[int] = []

        def pinned(pins: Pins, snapshot: int, at: int = at, seen: list[int] = seen) -> Any:
            seen.append(snapshot)
            if len(seen) == at + 1:
                pair.replace()
            return pin(pins, snapshot)

        monkeypatch.setattr(Pins, "pin", pinned)
        assert WHOLE[name](pair, pair.writer) == ROWS
        monkeypatch.setattr(Pins, "pin", pin)
