"""What ``_ext.keys.hashing`` means: two published hashes and Java's bytes of an integer.  Slow on purpose."""

from __future__ import annotations

import mmh3
import xxhash

UNSIGNED, SIGNED, BINARY, DECIMAL = 0, 1, 3, 4


def murmur3(key: bytes) -> int:
    return int(mmh3.hash64(key, 0, signed=False)[0])


def java_bytes(value: int) -> bytes:
    """``java.math.BigInteger.toByteArray``: the shortest big-endian two's complement."""
    bits = (value if value >= 0 else ~value).bit_length()
    return value.to_bytes(bits // 8 + 1, "big", signed=True)


def spark_bytes(kind: int, width: int, cell: int | bytes) -> bytes:
    """What Spark's ``xxhash64`` feeds to XXH64 for a cell.

    It has no unsigned integers: the next wider signed type holds them, decimal(20) in the end.
    """
    if isinstance(cell, bytes):
        return cell
    if kind == DECIMAL or (kind == UNSIGNED and width == 8):
        return java_bytes(cell)
    size = 8 if width >= 8 or (kind == UNSIGNED and width == 4) else 4
    return cell.to_bytes(size, "little", signed=True)


def chain(data: bytes, seed: int) -> int:
    return int(xxhash.xxh64_intdigest(data, seed))


def bucket(key_hash: int, buckets: int) -> int:
    signed = key_hash - (1 << 64) if key_hash >> 63 else key_hash
    return signed % buckets
