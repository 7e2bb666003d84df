"""Sorted dictionaries agree with their oracle and refuse broken codes."""

from __future__ import annotations

import numpy as np
import pytest

from kudu_core._ext.base.status import PageError
from kudu_core._ext.pages import dictionary
from tests.support.oracles.pages import dictionary as oracle


def packed(cells: list[bytes | None]) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    offsets = np.zeros(len(cells) + 1, np.int32)
    np.cumsum([len(c or b"") for c in cells], out=offsets[1:])
    data = np.frombuffer(b"".join(c or b"" for c in cells), np.uint8)
    valid = np.array([c is not None for c in cells], bool)
    return offsets, data, None if valid.all() else np.packbits(valid, bitorder="little")


def unpacked(offsets: np.ndarray, data: np.ndarray) -> list[bytes]:
    raw = bytes(data)
    return [raw[a:b] for a, b in zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True)]


@pytest.mark.parametrize("words", [1, 3, 300, 70_000])
@pytest.mark.parametrize("nulls", [0.0, 0.3])
def test_build_and_expand_agree_with_oracle(words: int, nulls: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    pool = [rng.bytes(int(n)).replace(b"a", b"\0") for n in rng.integers(0, 12, words)]
    rows = min(16_384, 4 * words) if words < 70_000 else 100_000
    cells: list[bytes | None] = [
        None if rng.random() < nulls else pool[i] for i in rng.integers(0, words, rows).tolist()
    ]
    offsets, data, validity = packed(cells)
    codes, listed = oracle.build(cells)
    built = dictionary.dictionary_build(offsets, data, validity, 1 << 20)
    assert built is not None
    got, word_offsets, word_data = built
    assert got.tolist() == codes
    assert unpacked(word_offsets, word_data) == listed
    width = got.dtype.itemsize
    out_offsets, out_data = dictionary.dictionary_expand(
        got.view(np.uint8), width, word_offsets, word_data, validity
    )
    valid = [c is not None for c in cells]
    assert unpacked(out_offsets, out_data) == oracle.expand(codes, valid, listed)


def test_too_many_words_or_bytes_give_none() -> None:
    offsets, data, validity = packed([b"a", b"bb", b"ccc"])
    assert dictionary.dictionary_build(offsets, data, validity, 2) is None
    assert dictionary.dictionary_build(offsets, data, validity, 3, 5) is None
    assert dictionary.dictionary_build(offsets, data, validity, 3, 6) is not None


def test_a_code_without_a_word_is_refused() -> None:
    with pytest.raises(PageError):
        dictionary.dictionary_expand(
            np.array([0, 2], np.uint8), 1, np.array([0, 1, 2], np.int32), np.frombuffer(b"ab", np.uint8)
        )
