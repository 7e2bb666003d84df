"""A stored column that is read as one of another type.

Its pages are decoded, cast and encoded as plain ones when they are loaded, before the cache has them; bounds
of pages and of the whole are cast with them.  So whoever reads pages, or asks zone maps, knows nothing of it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from kudu_core._ext.base.status import PageError
from kudu_core._ext.pages import blocks, encode
from kudu_core.cfile.columns.reader import ColumnReader, uncached
from kudu_core.cfile.columns.specs import index_layout
from kudu_core.cfile.columns.zone import Zone
from kudu_core.common.types.recasting import readable, recast, recast_bounds
from kudu_core.common.types.widening import same_cells

if TYPE_CHECKING:
    from kudu_core.common.types.types import ColumnType


class RecastReader(ColumnReader):
    """Reads the values of a column as another type has them.  Thread safe."""

    def __init__(self, stored: ColumnReader, type_: ColumnType) -> None:
        """``type_``: that of ``stored`` is readable as it."""
        self.__dict__.update(stored.__dict__)
        self._stored = stored
        self._from = stored.spec.type
        self.spec = replace(stored.spec, type=type_)
        self.zone = self._zone(stored.zone)
        self.width = type_.width
        self._zones = self._zone_table = self._index = None

    def _zone(self, zone: Zone) -> Zone:
        ends = zone.minimum, zone.maximum
        low, high = (None if raw is None else self._bounds(raw).tobytes() for raw in ends)
        return replace(zone, minimum=low, maximum=high)

    def _bounds(self, raw: Any) -> Any:
        return recast_bounds(self._from, self.spec.type, np.frombuffer(raw, np.uint8))

    # ---- what is loaded ----

    def index(self) -> Any:
        index = self._index
        if index is None:
            given = self._stored.index()
            index = np.empty(len(given), index_layout(self.spec.type.width))
            for name in given.dtype.names:
                if name in ("low", "high"):
                    cells = np.ascontiguousarray(given[name]).reshape(-1)
                    index[name] = self._bounds(cells.view(np.uint8)).reshape(index[name].shape)
                else:
                    index[name] = given[name]
            self._nulls, self._sizes = self._stored._nulls, self._stored._sizes
            self._offsets = self._stored._offsets
            self._index = index
        return index

    def fetched(self, number: int) -> Any:
        return self._page(number, self._stored.fetched(number))

    def opened(self, number: int, data: bytes) -> Any:
        return self._page(number, self._stored.opened(number, data))

    def checked(self, number: int, data: bytes) -> Any:
        return self._page(number, self._stored.checked(number, data))

    def _page(self, number: int, payload: Any) -> bytes:
        """The payload of a page with the cells of the new type."""
        rows, width, type_ = self.page_rows(number), self._from.width, self.spec.type
        cells = np.empty(rows * width, np.uint8)
        validity = np.zeros((rows + 7) // 8, np.uint8) if self._stored._nulls[number] else None
        try:
            blocks.decode_fixed(payload, width, cells, validity, 0, rows, 0)
        except PageError as error:
            self._blame(number, error)
        cells = recast(self._from, type_, cells)
        made: bytes = encode.encode_fixed(cells, type_.width, type_.kind, validity, form="plain")
        return made

    # ---- the same, otherwise ----

    def locate(self) -> None:
        self._stored.locate()
        if not self._offsets:
            self.index()

    def uncached(self) -> ColumnReader:
        other = RecastReader(self._stored.uncached(), self.spec.type)
        other.file = uncached(self.file)
        return other

    def layout(self) -> dict[str, Any]:
        return self._stored.layout()

    def verify(self) -> None:
        self._stored.verify()


def read_as(column: ColumnReader, type_: ColumnType) -> ColumnReader:
    """The column as one of that type; ``Corruption`` where it can be none."""
    stored = column.spec.type
    if stored == type_ or same_cells(stored, type_):
        return column
    if not readable(stored, type_) or column.words is not None:
        column.file.damaged(
            column.file.footer_extent.offset, f"footer: column {column.spec.id} is {stored}, not {type_}"
        )
    return RecastReader(column, type_)


__all__ = ["read_as"]
