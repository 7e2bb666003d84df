"""The rows of a call by their tablets: found, made room for and laid; tablets and stores are stand-ins."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kudu_core._ext.few.call_rows import FewRows
from kudu_core._ext.few.payload import payload_of_rows

KEYS = [b"a", b"b", b"c", b"d"]
CELLS: list[list[Any]] = [[key * 8, b"x"] for key in KEYS]
IDS, WIDTHS = (1, 2), (8, 0)
UPDATE, INSERT = 2, 1


class Store:
    """Keys by row; a dead row is in ``dead``."""

    def __init__(self, keys: list[bytes], dead: tuple[int, ...] = (), version: int = 7) -> None:
        self.keys, self.dead = keys, dead
        self.schema = SimpleNamespace(version=version)
        self.calls: list[tuple[Any, ...]] = []

    def lives(self, row: int) -> bool:
        return row not in self.dead

    def reserve_insert_few(self, *arguments: Any) -> None:
        self.calls.append(("reserve new", *arguments))

    def reserve_change_few(self, *arguments: Any) -> None:
        self.calls.append(("reserve", *arguments))

    def insert_few(self, *arguments: Any) -> None:
        self.calls.append(("new", *arguments))

    def change_few(self, *arguments: Any) -> None:
        self.calls.append(("change", *arguments))


class Points:
    def __init__(self, stores: tuple[Store, ...]) -> None:
        self.stores = stores

    def find(self, key: bytes, _hash: int) -> list[tuple[int, int]]:
        return [(i, store.keys.index(key)) for i, store in enumerate(self.stores) if key in store.keys]


def tablet(number: int, *stores: Store) -> Any:
    view = SimpleNamespace(active=stores[0], stores=stores, points=Points(stores))
    return SimpleNamespace(id=number, view=view, newest_applied=0, home_of=stores.__getitem__)


def test_one_tablet() -> None:
    active, older = Store([b"z", b"b"]), Store([b"a", b"y", b"d"])
    some = tablet(5, active, older)
    rows = FewRows(KEYS, CELLS, [some], None)
    assert rows.locate(7)
    assert (rows.absent, rows.present) == ([2], [0, 1, 3])
    payload = rows.payload(IDS, WIDTHS, [(UPDATE, rows.present), (INSERT, rows.absent)])
    changed = [CELLS[i] for i in (0, 1, 3)]
    sections = [(UPDATE, changed, [0, 0, 0]), (INSERT, [CELLS[2]], [0])]
    assert payload == payload_of_rows(IDS, WIDTHS, (5,), sections)
    rows.reserve(UPDATE, IDS, WIDTHS, True, True)
    assert rows.stores == [active, older, active]
    rows.put(90, UPDATE, IDS)
    assert some.newest_applied == 90
    assert active.calls == [
        ("reserve new", [b"c"], [CELLS[2]]),
        ("reserve", UPDATE, IDS, WIDTHS, [CELLS[1]]),
        ("new", 90, [b"c"], [CELLS[2]]),
        ("change", 90, UPDATE, [1], IDS, [CELLS[1]]),
    ]
    assert older.calls == [
        ("reserve", UPDATE, IDS, WIDTHS, [CELLS[0], CELLS[3]]),
        ("change", 90, UPDATE, [0, 2], IDS, [CELLS[0], CELLS[3]]),
    ]


def test_several_tablets() -> None:
    first, second = tablet(3, Store([b"d"])), tablet(4, Store([b"a"]))
    rows = FewRows(KEYS, CELLS, [first, second], [[1, 3], [0, 2]])
    assert rows.locate(7)
    assert (rows.absent, rows.present) == ([1, 2], [0, 3])
    payload = rows.payload(IDS, WIDTHS, [(UPDATE, []), (INSERT, rows.absent)])
    sections = [(INSERT, [CELLS[1], CELLS[2]], [0, 1])]
    assert payload == payload_of_rows(IDS, WIDTHS, (3, 4), sections)
    rows.reserve(UPDATE, IDS, WIDTHS, True, False)
    rows.put(9, UPDATE, IDS)
    assert rows.stores == [first.view.active, second.view.active]
    assert first.view.active.calls[1:] == [("new", 9, [b"b"], [CELLS[1]])]
    assert second.view.active.calls[1:] == [("new", 9, [b"c"], [CELLS[2]])]
    assert (first.newest_applied, second.newest_applied) == (9, 9)


def test_without_inserts_nothing_is_new() -> None:
    some = tablet(3, Store([b"d"]))
    rows = FewRows(KEYS, CELLS, [some], None)
    assert rows.locate(7)
    rows.reserve(UPDATE, IDS, WIDTHS, False, True)
    rows.put(9, UPDATE, IDS)
    assert [call[0] for call in some.view.active.calls] == ["reserve", "change"]


def test_what_the_general_path_must_find() -> None:
    assert not FewRows(KEYS, CELLS, [tablet(3, Store([], version=8))], None).locate(7)
    assert not FewRows(KEYS, CELLS, [tablet(3, Store([b"a"], dead=(0,)))], None).locate(7)
    in_older = FewRows(KEYS, CELLS, [tablet(3, Store([]), Store([b"a"], dead=(0,)))], None)
    assert in_older.locate(7) and in_older.absent == [0, 1, 2, 3]


def test_wrong_arguments() -> None:
    with pytest.raises(ValueError, match="4 keys and cells of 3 rows"):
        FewRows(KEYS, CELLS[:3], [tablet(3, Store([]))], None)
    for places in (None, [[0], [1], [2, 3]]):
        with pytest.raises(ValueError, match="2 tablets"):
            FewRows(KEYS, CELLS, [tablet(3, Store([])), tablet(4, Store([]))], places)
