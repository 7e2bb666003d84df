"""Search in the key columns of a ``.rows`` file where they lie: which rows lie in sets of values.

The kernel ``_ext.search.skipscan`` set up for one open file.  Keys that it cannot search cell by cell (a
decimal, a string without a dictionary in a composite key) have no ``KeySearch``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from kudu_core._ext.keys import keys as key_kernel
from kudu_core._ext.search.skipscan import KeyOrder
from kudu_core.cfile.columns.sought_words import SoughtWords
from kudu_core.common.types.types import TYPE_UNSIGNED
from kudu_core.common.where.sets import closed_ends, places_of

if TYPE_CHECKING:
    from kudu_core.cfile.readers.key_reader import KeyReader
    from kudu_core.common.where.sets import ValueSet

    I64 = npt.NDArray[np.int64]
    U64 = npt.NDArray[np.uint64]


class KeySearch:
    """Thread safe; immutable once made."""

    def __init__(self, keys: KeyReader) -> None:
        """``keys.by_number`` holds, and the file has rows."""
        self._columns = keys.columns
        self._words = [column.sought_words() for column in keys.columns]
        data, offsets = keys.key_index()
        types = [(c.spec.type.kind, c.spec.type.width) for c in self._columns]
        firsts = key_kernel.decode(data, offsets, types)
        order: list[tuple[int, int, U64]] = []
        for column, words, (values, ends) in zip(self._columns, self._words, firsts, strict=True):
            type_ = column.spec.type
            if words is not None:
                assert ends is not None
                codes = key_kernel.lower_bound(words.data, words.offsets, values, ends.astype(np.int64))
                order.append((column.width, 0, codes.astype(np.uint64)))
            else:
                flip = 0 if type_.kind == TYPE_UNSIGNED else 1 << 8 * type_.width - 1
                order.append((column.width, flip, places_of(type_, np.asarray(values))))
        self._order = KeyOrder(keys.rows, order)

    def _load(self, column: int, first: int, last: int) -> list[Any]:
        return self._columns[column].payloads(range(first, last))

    def ranges(
        self, lower: int, upper: int, wanted: Sequence[ValueSet | None], least_run: int
    ) -> tuple[I64, int | None]:
        """The rows of [lower, upper) whose cells lie in the sets, one entry a key column.

        Returns ``(ranges, stop)``: (m, 2) half-open, ascending, apart; None, or the row from which on only
        leading columns were regarded (``KeyOrder.ranges``).  ``PageError`` for damage.
        """
        spans = [
            None if one is None else closed_ends(column.spec.type, one) if words is None else words.spans(one)
            for one, column, words in zip(wanted, self._columns, self._words, strict=True)
        ]
        return self._order.ranges(lower, upper, spans, self._load, least_run)

    def lower_bound(self, key: bytes) -> int | None:
        """How many rows have a smaller encoded key (it may be cut or raised anywhere).

        None where the bytes say it in a way that must be compared as bytes.
        """
        cells: list[int] = []
        at, beyond = 0, False
        for place, (column, words) in enumerate(zip(self._columns, self._words, strict=True)):
            if at >= len(key):
                break
            if words is None:
                width = column.spec.type.width
                cells.append(int.from_bytes(key[at : at + width].ljust(width, b"\0"), "big"))
                at += width
            elif place == len(self._columns) - 1:
                cells.append(int(words.below((key[at:],))[0]))
                at = len(key)
            else:
                word, at = _cell_of_bound(key, at)
                if word is None:
                    return None
                code = int(words.below((word,))[0])
                cells.append(code)
                if at > len(key) or not self._is_word(words, code, word):
                    break  # no key begins so: whatever follows, the bound lies before the next word
        else:
            beyond = at < len(key)
        return self._order.seek(np.array(cells, np.uint64), beyond, self._load)

    @staticmethod
    def _is_word(words: SoughtWords, code: int, word: bytes) -> bool:
        if code == len(words):
            return False
        return words.data[words.offsets[code] : words.offsets[code + 1]].tobytes() == word


def _cell_of_bound(key: bytes, at: int) -> tuple[bytes | None, int]:
    """A string cell that is not the last, unescaped, and where it ends; beyond the key if it is cut.

    None where a byte 00 is followed by what neither ends nor escapes.
    """
    start = at
    while True:
        at = key.find(b"\0", at)
        if at < 0 or at + 1 == len(key):
            cut = key[start:] if at < 0 else key[start:at]
            return cut.replace(b"\0\1", b"\0"), len(key) + 1
        if key[at + 1] == 0:
            return key[start:at].replace(b"\0\1", b"\0"), at + 2
        if key[at + 1] != 1:
            return None, at
        at += 2
