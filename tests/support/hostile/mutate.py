"""Bytes that lie: structured mutations of real artefacts."""

from __future__ import annotations

import random
from collections.abc import Sequence

WORDS = (0, 1, 7, 8, 0x7F, 0x80, 0xFF, 0x7FFF, 0x8000, 0xFFFF, 2**31 - 1, 2**31, 2**32 - 1, 2**63, 2**64 - 1)


def mutated(data: bytes, others: Sequence[bytes], rng: random.Random) -> bytes:
    """One to three changes: bits, bytes, words of every width, cuts, growth, pieces moved or borrowed."""
    out = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        _change(out, others, rng)
    return bytes(out)


def _change(out: bytearray, others: Sequence[bytes], rng: random.Random) -> None:
    kind = rng.random()
    at = rng.randrange(len(out)) if out else 0
    if not out or kind > 0.97:
        out += rng.randbytes(rng.choice((1, 8, 100)))
    elif kind < 0.25:
        out[at] ^= 1 << rng.randrange(8)
    elif kind < 0.5:
        out[at] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))
    elif kind < 0.8:
        width = rng.choice((1, 2, 4, 8))
        at -= at % rng.choice((1, width))
        old = int.from_bytes(out[at : at + width], "little")
        new = rng.choice((*WORDS, old + 1, old - 1, old * 2, old ^ 0xFF, len(out), len(out) - at))
        word = (new % (1 << 8 * width)).to_bytes(width, "little")
        out[at : at + width] = word[: len(out) - at]
    elif kind < 0.86:
        del out[at:]
    elif kind < 0.9:
        del out[at : at + rng.choice((1, 8, 64))]
    elif kind < 0.94:
        other = rng.choice(others) if others else bytes(out)
        first = rng.randrange(len(other)) if other else 0
        piece = other[first : first + rng.choice((4, 16, 64))]
        out[at : at + len(piece)] = piece
    else:
        last = min(len(out), at + rng.choice((1, 4, 64)))
        out[at:last] = bytes((rng.choice((0, 0xFF)),)) * (last - at)
