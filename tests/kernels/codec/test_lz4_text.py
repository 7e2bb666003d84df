"""Which text of a sample is taken: what occurs often, once each."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from kudu_core._ext.codec.lz4_text import choose_text


def hashed(piece: bytes) -> int:
    """Different pieces of the same hash count together."""
    return int.from_bytes(piece, "little") * 0xCF1BBCDCB7A56463 % (1 << 64) >> 47


def chosen(sample: bytes, size: int, segment: int) -> bytes:
    """In plain Python."""
    pieces = [hashed(sample[at : at + 8]) for at in range(len(sample) - 7)]
    counts = Counter(pieces)
    parts, window = size // segment, segment - 7
    out = b""
    for number in range(parts):
        begin, end = len(sample) * number // parts, len(sample) * (number + 1) // parts - 7
        inside = {at: set(pieces[at : at + window]) for at in range(begin, end - window + 1)}
        best = max(inside, key=lambda at: sum(counts[piece] for piece in inside[at]))
        for piece in inside[best]:
            counts[piece] = 0
        out += sample[best : best + segment]
    return out


@pytest.mark.parametrize("segment", [8, 20, 64, 128])
def test_it_is_what_plain_python_takes(segment: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    words = [rng.bytes(3).hex().encode() for _ in range(40)]
    sample = b" ".join(words[k] for k in rng.integers(0, 40, 600).tolist())
    for parts in (1, 2, 7, len(sample) // segment):
        size = parts * segment
        assert choose_text(sample, size, segment) == chosen(sample, size, segment)


def test_all_of_it() -> None:
    sample = bytes(range(200)) * 3
    assert choose_text(sample, 600, 100) == sample


def test_wrong_arguments() -> None:
    for size, segment in ((0, 64), (-64, 64), (100, 64), (1024, 64), (64, 7), (258, 129), (64, 0)):
        with pytest.raises(ValueError):
            choose_text(bytes(1000), size, segment)
