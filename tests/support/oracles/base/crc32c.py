"""What ``_ext.base.crc32c`` means, bit by bit.  Slow on purpose."""

from __future__ import annotations

POLYNOMIAL = 0x82F63B78  # Castagnoli's, lowest bit first


def crc32c(data: bytes, value: int = 0) -> int:
    crc = ~value & 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (POLYNOMIAL if crc & 1 else 0)
    return ~crc & 0xFFFFFFFF
