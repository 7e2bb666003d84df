"""CRC-32C: the same number from the instruction, from the tables and bit by bit, in one call or in pieces."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pytest

from kudu_core._ext.base import crc32c as kernel
from kudu_core._ext.base.crc32c import crc32c
from tests.support.oracles.base import crc32c as oracle

FIRST_SEED = int(os.environ.get("KUDU_CORE_SEED", "0"))


@pytest.fixture(params=[True, False], ids=["instruction", "tables"])
def body(request: pytest.FixtureRequest) -> Iterator[None]:
    """Both bodies of the kernel, where the machine can run both."""
    if kernel._choose(request.param) != request.param:
        pytest.skip("this machine has no such instruction")
    yield
    kernel._choose(True)


@pytest.mark.usefixtures("body")
@pytest.mark.parametrize(
    "data, crc",
    [
        (b"", 0),
        (b"123456789", 0xE3069283),
        (b"\0" * 32, 0x8A9136AA),  # RFC 3720, B.4
        (b"\xff" * 32, 0x62A8AB43),
        (bytes(range(32)), 0x46DD794E),
        (bytes(range(31, -1, -1)), 0x113FDB5C),
    ],
)
def test_published_values(data: bytes, crc: int) -> None:
    assert crc32c(data) == crc
    assert oracle.crc32c(data) == crc


@pytest.mark.usefixtures("body")
def test_agrees_with_oracle_at_every_length_and_address() -> None:
    rng = np.random.default_rng(FIRST_SEED)
    data = rng.bytes(2_000)
    expected = [0]  # of the first n bytes
    for byte in data:
        expected.append(oracle.crc32c(bytes((byte,)), expected[-1]))
    view = memoryview(data)
    assert [crc32c(view[:size]) for size in range(len(data) + 1)] == expected
    for start in range(9):
        assert crc32c(view[start:1700]) == oracle.crc32c(data[start:1700])


@pytest.mark.usefixtures("body")
@pytest.mark.parametrize("size", [767, 768, 4_095, 4_096, 24_575, 24_576, 24_577, 49_152, 60_001])
def test_pieces_join(size: int) -> None:
    """``value`` goes on where a call left off: lengths around the strides of the three streams."""
    rng = np.random.default_rng(FIRST_SEED)
    data = rng.bytes(size)
    whole = crc32c(data)
    assert whole == oracle.crc32c(data)
    for cut in (0, 1, 7, 8, 255, size // 3, size - 1, size):
        assert crc32c(data[cut:], crc32c(data[:cut])) == whole
    assert crc32c(b"", whole) == whole


def test_both_bodies_agree_on_much() -> None:
    rng = np.random.default_rng(FIRST_SEED)
    data = rng.bytes(3_000_001)
    fast = crc32c(data, 12345)
    try:
        kernel._choose(False)
        assert crc32c(data, 12345) == fast
    finally:
        kernel._choose(True)


def test_takes_any_contiguous_bytes() -> None:
    data = bytes(range(256)) * 4
    expected = crc32c(data)
    words = np.frombuffer(data, "<u8")
    for given in (bytearray(data), memoryview(data), words, words.reshape(2, -1), pa.py_buffer(data)):
        assert crc32c(given) == expected
    growing = bytearray(data)
    crc32c(growing)
    growing += b"x"  # a buffer that was not released forbids this
    for refused in ("text", 5, memoryview(data)[::2]):
        with pytest.raises((TypeError, BufferError)):
            crc32c(refused)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        crc32c(None)  # type: ignore[arg-type]


@pytest.mark.parametrize("value", [-1, 2**32])
def test_a_value_that_is_no_crc_is_refused(value: int) -> None:
    with pytest.raises(OverflowError):
        crc32c(b"x", value)


def test_runs_beside_itself() -> None:
    rng = np.random.default_rng(FIRST_SEED)
    data = rng.bytes(1_000_000)
    results: list[int] = []
    threads = [threading.Thread(target=lambda: results.append(crc32c(data))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [crc32c(data)] * 4
