"""LZ4 blocks: as the format has them, packed and unpacked with a text before them, whatever the bytes are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kudu_core._ext.codec.lz4 import Lz4Packer, unpack
from tests.support.cases.texts import text
from tests.support.oracles.codec import lz4 as oracle

LZ4 = pa.Codec("lz4_raw")
LEAST_TEXT, MOST_TEXT = 20, 65_535


def words(seed: int, size: int) -> bytes:
    return " ".join(text(seed, 200, size // 100 + 2)).encode()[:size]


def payloads(seed: int) -> list[bytes]:
    """Of every size near an edge, and of what packs well, somewhat and not at all."""
    rng = np.random.default_rng(seed)
    few = rng.integers(0, 3, 40_000, np.uint8).tobytes()
    found = [words(1, size) for size in (0, 1, 5, 15, 16, 17, 19, 20, 21, 33, 300, 8191, 8192, 70_000)]
    found += [few[:size] for size in (19, 20, 21, 22, 64, 5000, 40_000)]
    found += [bytes(size) for size in (19, 20, 40, 4096, 200_000)]
    found += [rng.bytes(size) for size in (20, 400, 9000, 66_000)]
    found += [b"abc" * 700, b"abcdefg" * 900, words(1, 400) * 30, rng.bytes(3000) + words(1, 3000)]
    return found


@pytest.mark.parametrize("size", [LEAST_TEXT, 21, 1000, 57_344, MOST_TEXT])
def test_what_is_packed_is_unpacked(size: int, seed: int) -> None:
    before = words(1, size)
    packer = Lz4Packer(before)
    assert packer.text == before
    for found in (payloads(seed), payloads(seed)[::-1], payloads(seed)[:1], []):
        packed = packer.pack(found)
        assert len(packed) == len(found)
        for payload, stored in zip(found, packed, strict=True):
            assert unpack(stored, len(payload), before) == payload
            assert oracle.unpack(stored, len(payload), before) == payload
            assert len(stored) <= len(payload) + len(payload) // 255 + 16
            check_format(stored, len(payload), size)


def check_format(stored: bytes, size: int, before: int) -> None:
    """The last match begins 12 bytes before the end, and ends five before it."""
    for begin, distance, length in oracle.matches(stored):
        assert 4 <= length <= size - 5 - begin
        assert begin <= size - 12
        assert 0 < distance <= min(begin + before, 65_535)


@given(data=st.data())
def test_any_text_and_any_payload(data: st.DataObject) -> None:
    some = st.lists(
        st.sampled_from([b"a", b"ab", b"word ", b"another one ", bytes(9), b"x" * 30]), max_size=60
    )
    pieces = st.one_of(st.binary(max_size=200), some.map(b"".join))
    before = data.draw(st.one_of(st.binary(min_size=LEAST_TEXT, max_size=300), some.map(b"".join)))
    if len(before) < LEAST_TEXT:
        before = before.ljust(LEAST_TEXT, b"-")
    found = data.draw(st.lists(pieces, max_size=5))
    for payload, stored in zip(found, Lz4Packer(before).pack(found), strict=True):
        assert unpack(stored, len(payload), before) == payload == oracle.unpack(stored, len(payload), before)
        check_format(stored, len(payload), len(before))


def test_a_block_without_a_text_is_anybody_s() -> None:
    """What others pack is unpacked, and what is packed beside a text that has nothing of it, by others."""
    for payload in payloads(3):
        stored = LZ4.compress(payload, asbytes=True)
        if payload:
            assert unpack(stored, len(payload)) == payload
    strange = Lz4Packer(bytes(range(128, 256)))
    found = [payload for payload in payloads(3) if payload.isascii() and 0 not in payload and payload]
    for payload, stored in zip(found, strange.pack(found), strict=True):
        assert LZ4.decompress(stored, decompressed_size=len(payload), asbytes=True) == payload


def test_a_text_makes_short_blocks_small() -> None:
    """Half of what they take without it; matches run from the text no further than its end."""
    before = words(5, 57_344)
    found = [words(5, 200_000)[at : at + 8192] for at in range(60_000, 190_000, 8192)]
    with_text = sum(map(len, Lz4Packer(before).pack(found)))
    assert with_text < 0.6 * sum(len(LZ4.compress(payload, asbytes=True)) for payload in found)


def test_matches_reach_from_the_text_into_the_block() -> None:
    """Written by hand: no packer of ours makes these."""
    before = b"0123456789"
    # Three literals, then ten bytes from four bytes before the block: it goes on with the block's own begin.
    assert (
        unpack(b"\x36abc\x07\x00\x10d", 14, before)
        == b"abc6789abc678d"
        == oracle.unpack(b"\x36abc\x07\x00\x10d", 14, before)
    )
    # A match at once, longer than the text and over itself.
    assert unpack(b"\x0f\x01\x00\x05\x10z", 25, before) == b"9" * 24 + b"z"
    long = b"\x0f\x03\x00\xff\xff\x03\x10z"
    assert unpack(long, 533, before) == oracle.unpack(long, 533, before)


def same(stored: bytes, raw_bytes: int, before: bytes) -> None:
    """The kernel and the oracle agree on what these bytes are."""
    wanted: Any = None
    try:
        wanted = oracle.unpack(stored, raw_bytes, before)
    except ValueError:
        with pytest.raises(ValueError):
            unpack(stored, raw_bytes, before)
        return
    assert unpack(stored, raw_bytes, before) == wanted


def test_damaged_blocks(seed: int, long: bool) -> None:
    """Every byte of a short block is changed, and what is left of a longer one is cut."""
    rng = np.random.default_rng(seed)
    before = words(7, 3000)
    for payload in (words(7, 120), words(8, 700), bytes(300), b"ab" * 90 + words(7, 90)):
        stored = Lz4Packer(before).pack([payload])[0]
        same(stored, len(payload), before)
        for cut in range(len(stored)):
            same(stored[:cut], len(payload), before)
        for other in (0, 1, len(payload) - 1, len(payload) + 1, len(payload) + 40):
            same(stored, other, before)
        for other_text in (b"", before[:7], before[1:]):
            same(stored, len(payload), other_text)
        for at in range(len(stored)):
            for value in {0, 1, 15, 16, 0xF0, 255, stored[at] ^ 1, int(rng.integers(0, 256))}:
                broken = bytearray(stored)
                broken[at] = value
                same(bytes(broken), len(payload), before)
    for _ in range(20_000 if long else 1000):
        same(
            rng.bytes(int(rng.integers(0, 60))), int(rng.integers(0, 300)), before[: int(rng.integers(0, 50))]
        )


def test_no_memory_is_taken_for_a_lie() -> None:
    for size in (-1, 1 << 50, 255 * 6 + 1):
        with pytest.raises(ValueError):
            unpack(b"\x0f\x01\x00\xff\xff\x00", size)
    with pytest.raises(ValueError):
        unpack(b"", 0)


def test_wrong_arguments() -> None:
    for size in (0, LEAST_TEXT - 1, MOST_TEXT + 1):
        with pytest.raises(ValueError):
            Lz4Packer(bytes(size))
    wrong: Any
    for wrong in (None, "text"):
        with pytest.raises(TypeError):
            Lz4Packer(wrong)
    packer = Lz4Packer(words(1, 100))
    for wrong in (None, [None], ["text"], [b"abc", bytearray(b"abc")]):
        with pytest.raises(TypeError):
            packer.pack(wrong)
    for wrong in (None, bytearray(9)):
        with pytest.raises(TypeError):
            unpack(b"\x10a", 1, wrong)
