"""The sorted dictionary of a column, to find codes in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from kudu_core._ext.keys import keys as key_kernel

if TYPE_CHECKING:
    from kudu_core.common.rows.rowblock import ColumnBuffers
    from kudu_core.common.where.sets import ValueSet

    I64 = npt.NDArray[np.int64]
    U64 = npt.NDArray[np.uint64]


class SoughtWords:
    """Immutable."""

    def __init__(self, dictionary: ColumnBuffers) -> None:
        assert dictionary.offsets is not None
        self.data = dictionary.values
        self.offsets = dictionary.offsets.astype(np.int64)

    def below(self, words: Sequence[bytes]) -> I64:
        """How many words of the dictionary are below each."""
        probe = np.frombuffer(b"".join(words) or b"\0", np.uint8)
        ends = np.cumsum([0, *map(len, words)], dtype=np.int64)
        found: I64 = key_kernel.lower_bound(self.data, self.offsets, probe, ends)
        return found

    def spans(self, wanted: ValueSet) -> U64:
        """The words of a set as intervals of codes, (n, 2), both ends included."""
        pairs = wanted.intervals
        if not pairs:
            return np.empty((0, 2), np.uint64)
        first = self.below([low for low, _ in pairs])
        ends = self.below([high for _, high in pairs if high is not None])
        if pairs[-1][1] is None:
            ends = np.append(ends, len(self))
        some = first < ends
        return np.stack([first[some], ends[some] - 1], axis=1).astype(np.uint64)

    def __len__(self) -> int:
        return len(self.offsets) - 1
