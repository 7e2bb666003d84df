"""Encoded keys as kernels hold them and as lists; and keys of the shapes that kernels meet."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import numpy.typing as npt

U8 = npt.NDArray[np.uint8]
I64 = npt.NDArray[np.int64]

SIZES = [0, 1, 2, 3, 31, 32, 33, 40, 100, 300]
"""How many keys a test draws."""


def pack(made: list[bytes], start: int = 0) -> tuple[U8, I64]:
    """Keys whose offsets begin at ``start``, with a byte behind the last."""
    offsets = np.zeros(len(made) + 1, np.int64)
    np.cumsum([len(key) for key in made], out=offsets[1:])
    return np.frombuffer(b"\xaa" * start + b"".join(made) + b"\xbb" * (start & 1), np.uint8), offsets + start


def unpack(data: U8, offsets: I64) -> list[bytes]:
    return [data[lower:upper].tobytes() for lower, upper in pairwise(offsets)]


def random_keys(rng: np.random.Generator, count: int) -> list[bytes]:
    """Keys of one of the shapes that a sort meets."""
    shape = int(rng.integers(8))
    if shape == 0:
        made = [bytes(rng.integers(0, 2, int(rng.integers(0, 14)), np.uint8)) for _ in range(count)]
    elif shape == 1:
        times = rng.integers(0, 2 ** int(rng.integers(1, 50)), count)
        made = [b"host-%05d\0\0" % rng.integers(1000) + int(time).to_bytes(8, "big") for time in times]
    elif shape == 2:
        made = [int(v).to_bytes(8, "big") for v in rng.integers(0, 2**64, count, np.uint64)]
    elif shape == 3:  # long common beginnings, differences far behind, one the beginning of the other
        begin = bytes(rng.integers(0, 256, int(rng.integers(0, 200)), np.uint8))
        ends = rng.integers(0, (90, 2), (count, 2)).tolist()
        made = [begin + b"\0" * zeros + b"x" * tail for zeros, tail in ends]
    elif shape == 4:  # bits that differ everywhere: more than 64
        made = [rng.bytes(40) for _ in range(count)]
        made = [made[int(i)] + b"!" * int(i % 2) for i in rng.integers(0, max(count // 2, 1), count)]
    elif shape == 5:  # every second bit
        made = [bytes(b & 0x55 for b in rng.bytes(20)) for _ in range(count)]
    elif shape == 6:
        made = [b"a" * int(size) for size in rng.integers(0, 700, count)]
    else:
        made = [b"same"] * count
    order = int(rng.integers(4))
    if order == 0:
        made.sort()
    elif order == 1:
        made.sort(reverse=True)
    return made
