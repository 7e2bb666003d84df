"""Rows in the partition that their number names.  PySpark has a call for it since 4.1."""

from __future__ import annotations

from functools import lru_cache

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F


def placed(df: DataFrame, partitions: int, number: Column) -> DataFrame:
    """The rows of a frame by a number from 0 to ``partitions`` - 1, that of the partition where each goes."""
    if hasattr(df, "repartitionById"):
        return df.repartitionById(partitions, number.cast("int"))
    # Spark hashes what it partitions by: so by numbers whose hashes are the partitions.
    hashed = F.expr(f"array({', '.join(map(str, hashed_to(partitions)))})")
    return df.repartition(partitions, F.element_at(hashed, number.cast("int") + F.lit(1)))


@lru_cache(maxsize=16)
def hashed_to(partitions: int) -> tuple[int, ...]:
    """An int for each partition that Spark's hash puts there, by the number of the partition."""
    found: dict[int, int] = {}
    candidate = 0
    while len(found) < partitions:
        found.setdefault(hash_of(candidate) % partitions, candidate)
        candidate += 1
    return tuple(found[number] for number in range(partitions))


def hash_of(number: int) -> int:
    """Spark's ``hash`` of one int: Murmur3, 32 bits, seed 42, as a signed number."""
    key = _rotated(number * 0xCC9E2D51, 15) * 0x1B873593
    found = (_rotated((42 ^ key) & _MASK, 13) * 5 + 0xE6546B64) & _MASK
    found ^= 4  # bytes
    found = ((found ^ found >> 16) * 0x85EBCA6B) & _MASK
    found = ((found ^ found >> 13) * 0xC2B2AE35) & _MASK
    found ^= found >> 16
    return found - (1 << 32) if found >> 31 else found


_MASK = (1 << 32) - 1


def _rotated(word: int, bits: int) -> int:
    word &= _MASK
    return (word << bits | word >> (32 - bits)) & _MASK


__all__ = ["hash_of", "hashed_to", "placed"]
