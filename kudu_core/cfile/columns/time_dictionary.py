"""A dictionary of times: a file's times are often few, one for each call that wrote, and lie far apart.

The times at which rows were inserted, and those of changes, are uint64 of which 34 bits or more differ
within a file of hours; where ten calls made its million changes, four bits say which.  So a column of these
roles may be stored as strings with a dictionary are: codes, and the words, which are the times as
little-endian bytes, ascending as numbers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from kudu_core._ext.pages import blocks
from kudu_core.cfile.columns.specs import DICTIONARY_WORDS, code_width
from kudu_core.cfile.pages.page import BLOCK_ROWS
from kudu_core.common.rows.allocation import allocate
from kudu_core.common.rows.rowblock import ColumnBuffers
from kudu_core.common.run.ordering import distinct

if TYPE_CHECKING:
    U64 = npt.NDArray[np.uint64]

WIDTH = 8
_ROLES = ("insert_time", "timestamp")
_WORD_BYTES = WIDTH + 4  # with its offset
_FIXED_BYTES = 64  # of a section, about
_MOST_FRACTION = 0.8
"""Codes and words must stay below this share of the times, or they only cost a step."""
_SAMPLES, _ALL_DIFFER = 4096, 0.98
_MOST_ROWS = (1 << 31) // WIDTH - 1  # offsets are int32


def may_have_words(role: str, width: int) -> bool:
    """Whether a column of this role, and of cells of this width, may be stored with a dictionary."""
    return not width or (role in _ROLES and width == WIDTH)


def build_time_dictionary(column: ColumnBuffers, role: str) -> tuple[ColumnBuffers, ColumnBuffers] | None:
    """Codes and words of a column of times; None of another role, or where a dictionary does not pay."""
    if role not in _ROLES or not 2 <= column.length <= _MOST_ROWS:
        return None
    times = column.values.view("<u8")
    without = _packed_bits(times) // 8
    if _MOST_FRACTION * without <= _FIXED_BYTES + 2 * _WORD_BYTES:
        return None
    sample = times[:: max(1, len(times) // _SAMPLES)]
    seen = len(distinct(sample))
    if seen > _ALL_DIFFER * len(sample):
        return None
    # The kernel's memory is that of so many words.
    most = DICTIONARY_WORDS if 2 * seen > len(sample) else min(4 * seen + 256, DICTIONARY_WORDS)
    # As strings: the kernel hashes them and gives up where they are many; their order is another one.
    ends = np.arange(0, WIDTH * len(times) + 1, WIDTH, dtype=np.int32)
    built = blocks.dictionary_build(ends, column.values, None, most, WIDTH * most)
    if built is None:
        return None
    ordinals, _, data = built
    words = data.view("<u8")
    order = np.argsort(words)
    ranks = np.empty(len(words), f"<u{code_width(len(words))}")
    ranks[order] = np.arange(len(words), dtype=ranks.dtype)
    codes = ranks[ordinals]
    if _FIXED_BYTES + len(words) * _WORD_BYTES + _packed_bits(codes) // 8 > _MOST_FRACTION * without:
        return None
    offsets = np.arange(0, WIDTH * len(words) + 1, WIDTH, dtype=np.int32)
    return (
        ColumnBuffers(ranks.itemsize, len(codes), codes.view(np.uint8), None, None),
        ColumnBuffers(0, len(words), words[order].astype("<u8").view(np.uint8), offsets, None),
    )


def _packed_bits(numbers: npt.NDArray[np.unsignedinteger]) -> int:
    """About how many bits they take as mini-blocks, each of as many bits as it has differences."""
    whole = len(numbers) // BLOCK_ROWS * BLOCK_ROWS
    full = numbers[:whole].reshape(-1, BLOCK_ROWS)
    spans: list[int] = (full.max(axis=1) - full.min(axis=1)).tolist()
    bits = BLOCK_ROWS * sum(span.bit_length() for span in spans)
    rest = numbers[whole:]
    return bits + (len(rest) * int(rest.max() - rest.min()).bit_length() if len(rest) else 0)


def is_time_dictionary(words: ColumnBuffers) -> bool:
    """Whether words that were read are times that rise."""
    assert words.offsets is not None
    if bool((np.diff(words.offsets) != WIDTH).any()):
        return False
    times = words.values.view("<u8")
    return bool((times[1:] > times[:-1]).all())


def times_of(codes: ColumnBuffers, words: ColumnBuffers) -> ColumnBuffers:
    """The times that the codes say, which are those of words."""
    out = allocate(WIDTH * codes.length)
    ordinals = codes.values.view(f"<u{codes.width}")
    # The codes are checked; another mode would make a copy of what goes out.
    np.take(words.values.view("<u8"), ordinals, out=out.view("<u8"), mode="clip")
    return ColumnBuffers(WIDTH, codes.length, out, None, codes.validity)


__all__ = ["build_time_dictionary", "is_time_dictionary", "may_have_words", "times_of"]
