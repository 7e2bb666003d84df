"""What ``_ext.index.bloom`` means, in the fewest words Python allows.  Slow on purpose."""

from __future__ import annotations

SALTS = (
    0x47B6137B, 0x44974D91, 0x8824AD5B, 0xA2B7289D, 0x705495C7, 0x2DF1424B, 0x9EFC4947, 0x5C6BFB31,
)  # fmt: skip


def bits_of(key_hash: int, blocks: int) -> list[int]:
    """The eight bits of a filter, counted from its first byte's lowest bit, that a key sets."""
    high, low = key_hash >> 32, key_hash & 0xFFFFFFFF
    block = (high * blocks) >> 32
    return [256 * block + 32 * word + ((low * salt & 0xFFFFFFFF) >> 27) for word, salt in enumerate(SALTS)]


def build(hashes: list[int], bits_per_key: int) -> bytes:
    blocks = max(1, (len(hashes) * bits_per_key + 255) // 256)
    bits = 0
    for key_hash in hashes:
        for bit in bits_of(key_hash, blocks):
            bits |= 1 << bit
    return bits.to_bytes(32 * blocks, "little")


def probe(filter: bytes, hashes: list[int]) -> list[bool]:
    return [all(filter[b // 8] >> b % 8 & 1 for b in bits_of(h, len(filter) // 32)) for h in hashes]
