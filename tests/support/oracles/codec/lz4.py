"""LZ4 blocks in plain Python, after lz4's ``doc/lz4_Block_format.md``, with a text before the block."""

from __future__ import annotations


def unpack(stored: bytes, raw_bytes: int, text: bytes = b"") -> bytes:
    """The bytes of a block, exactly so many; ValueError where it has others, or is none."""
    out = bytearray(text)
    at = 0

    def length(most: int) -> int:
        nonlocal at
        found = most
        while most == 15:
            if at == len(stored):
                raise ValueError("a length does not end")
            found += stored[at]
            at += 1
            if stored[at - 1] != 255:
                break
        return found

    while at < len(stored):
        token = stored[at]
        at += 1
        literals = length(token >> 4)
        if at + literals > len(stored):
            raise ValueError("literals behind the end")
        out += stored[at : at + literals]
        at += literals
        if at == len(stored):
            if len(out) - len(text) != raw_bytes:
                raise ValueError(f"{len(out) - len(text)} bytes for {raw_bytes}")
            return bytes(out[len(text) :])
        if at + 2 > len(stored):
            raise ValueError("no distance")
        distance = int.from_bytes(stored[at : at + 2], "little")
        at += 2
        count = length(token & 15) + 4
        if not 0 < distance <= len(out):
            raise ValueError(f"{distance} bytes back of {len(out)}")
        if len(out) - len(text) + count > raw_bytes:
            raise ValueError("too many bytes")
        for _ in range(count):
            out.append(out[-distance])
    raise ValueError("no literals at the end")


def matches(stored: bytes) -> list[tuple[int, int, int]]:
    """(Where it begins, distance, length) of each match of a sound block."""
    found = []
    at = begin = 0
    while True:
        token = stored[at]
        at += 1
        lengths = []
        for part in (token >> 4, token & 15):
            if lengths:
                begin += lengths[0]
                at += lengths[0]
                if at == len(stored):
                    return found
                distance = int.from_bytes(stored[at : at + 2], "little")
                at += 2
            while part >= 15:
                part += stored[at]
                at += 1
                if stored[at - 1] != 255:
                    break
            lengths.append(part)
        found.append((begin, distance, lengths[1] + 4))
        begin += lengths[1] + 4


__all__ = ["matches", "unpack"]
