"""A row whose pages have to be read: the system is asked for all of them before the first is waited for."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kudu_core._ext.files.cached_pages import CachedPages
from kudu_core._ext.files.page_loader import PageLoader
from kudu_core._ext.pages import blocks
from kudu_core._ext.row.column import PointColumn
from kudu_core._ext.row.file import PointFile
from kudu_core._ext.row.shape import RowShape
from tests.kernels.row.test_file import TAGS, bitmap

ROWS = 1024
COLUMNS = 4
SHAPE = RowShape(
    "abcd", list(range(COLUMNS)), [TAGS["unsigned"]] * COLUMNS, [bytes] * COLUMNS, [None] * COLUMNS
)


class Fetcher:
    """Notes what it is told; ``cold``: the system has no page of its file in memory."""

    def __init__(self, name: str, told: list[Any], cold: bool) -> None:
        self.name, self.told, self.cold = name, told, cold

    def ask(self, number: int, if_cold: bool) -> bool:
        self.told.append(("ask", self.name, if_cold))
        return self.cold or not if_cold

    def fetch(self, number: int) -> bytes:
        self.told.append(("fetch", self.name))
        return page()


class Column:
    def __init__(self, place: int, fetcher: Fetcher | None) -> None:
        self.place, self.fetcher = place, fetcher

    def places(self) -> list[int]:
        return [self.place]

    def fetched(self, number: int) -> bytes:
        return page()

    def ask(self, number: int) -> None:
        """There is nobody to be asked."""


class FarColumn(Column):
    """Of a file in a store, which has no descriptor."""

    def __init__(self, place: int, told: list[Any]) -> None:
        super().__init__(place, None)
        self.told = told

    def ask(self, number: int) -> bool:  # type: ignore[override]
        self.told.append(("ask", self.place, number))
        return True

    def fetched(self, number: int) -> bytes:
        self.told.append(("fetch", self.place))
        return page()


class Holds:
    watched = True


def page() -> bytes:
    values = np.arange(ROWS, dtype=np.uint32).view(np.uint8)
    return bytes(blocks.encode_fixed(values, 4, 0, bitmap(np.ones(ROWS, bool))))


@pytest.mark.parametrize(
    ("cold", "cached", "general", "wanted"),
    [
        (True, "", "", ["a", "b", "c", "d"]),
        (False, "", "", ["a"]),
        (True, "ab", "", ["c", "d"]),
        (True, "", "a", ["b", "c", "d"]),
        (True, "abcd", "", []),
    ],
)
def test_the_first_page_tells_whether_the_others_are_asked_for(
    cold: bool, cached: str, general: str, wanted: list[str]
) -> None:
    cache = CachedPages(1 << 20)
    reader = cache.attach(b"file")
    told: list[Any] = []
    columns = {}
    for i, name in enumerate("abcd"):
        if name in cached:
            cache.put(reader.token, i, page())
        fetcher = None if name in general else Fetcher(name, told, cold)
        columns[i] = PointColumn(PageLoader(Column(i, fetcher), Holds(), reader), 1, 4, page_bits=10)
    file = PointFile(ROWS, columns, None, None, None, None)
    assert file.row(7, SHAPE) == dict.fromkeys("abcd", 7)
    asked = [("ask", name, name == wanted[0]) for name in wanted]
    fetched = [("fetch", name) for name in "abcd" if name not in cached + general]
    assert [what for what in told if what[0] == "ask"] == asked
    assert [what for what in told if what[0] == "fetch"] == fetched
    assert told[: len(asked)] == asked, "before any of them is waited for"
    told.clear()
    assert file.row(8, SHAPE) == dict.fromkeys("abcd", 8)
    assert told == [], "the pages are held"


def test_pages_of_a_file_in_a_store_are_all_asked_for_before_one_is_waited_for() -> None:
    cache = CachedPages(1 << 20)
    reader = cache.attach(b"file")
    told: list[Any] = []
    columns = {
        i: PointColumn(PageLoader(FarColumn(i, told), Holds(), reader), 1, 4, page_bits=10)
        for i in range(COLUMNS)
    }
    file = PointFile(ROWS, columns, None, None, None, None)
    assert file.row(7, SHAPE) == dict.fromkeys("abcd", 7)
    assert told == [*[("ask", i, 0) for i in range(4)], *[("fetch", i) for i in range(4)]]


def test_a_single_page_is_not_asked_for() -> None:
    """It is read at once."""
    cache = CachedPages(1 << 20)
    told: list[Any] = []
    column = Column(0, Fetcher("a", told, True))
    found = PointColumn(PageLoader(column, Holds(), cache.attach(b"file")), 1, 4, page_bits=10)
    file = PointFile(ROWS, {0: found}, None, None, None, None)
    assert file.row(7, SHAPE) == {"a": 7, "b": None, "c": None, "d": None}
    assert told == [("fetch", "a")]
