"""Random cases of tables that have a shape: few rows, fat cells, 2,000 columns, 64 tablets."""

from __future__ import annotations

import random
from typing import Any

from tests.support.differential.cases import Case, Col
from tests.support.differential.drawing import KEY_TYPES, Hashes, Maker, Ranges

Cell = Any
FAT_BYTES = (1_000, 10_000, 65_536, 100_000, 300_000)
COLUMNS = 2_000
TABLETS = 64


class FewRows(Maker):
    """Three keys, and every step about them."""

    def _key_columns(self) -> tuple[Col, ...]:
        return (Col("k0", self.rng.choice(KEY_TYPES), nullable=False),)

    def _partitions(self, names: tuple[str, ...]) -> tuple[Hashes, Ranges]:
        self.pools = {name: pool[:3] if name in names else pool for name, pool in self.pools.items()}
        return (), ()


class FatCells(Maker):
    """Two columns of cells up to 300 KB beside numbers."""

    def _key_columns(self) -> tuple[Col, ...]:
        return (Col("k0", "int32", nullable=False),)

    def _value_columns(self) -> tuple[Col, ...]:
        return (Col("v0", "string"), Col("v1", "int64"), Col("v2", "binary"), self._value_column(3))

    def _partitions(self, names: tuple[str, ...]) -> tuple[Hashes, Ranges]:
        sizes = [self.rng.choice(FAT_BYTES) + self.rng.randrange(3) for _ in range(6)]
        # Some that a codec makes small, some that none does.
        texts = [chr(97 + i) * size if i % 2 else self._text(size) for i, size in enumerate(sizes)]
        self.pools["v0"] = [*texts, "", "short"]
        self.pools["v2"] = [text.encode()[::-1] for text in self.pools["v0"]]
        return (), ()

    def _text(self, size: int) -> str:
        return self.rng.randbytes(-(-size // 2)).hex()[:size]

    def _count(self) -> int:
        return self.rng.choice((0, 1, 1, 2, 3, 5, 12))


class ManyColumns(Maker):
    """2,000 columns of numbers and words; most calls name few of them."""

    def _key_columns(self) -> tuple[Col, ...]:
        return (Col("k0", "int64", nullable=False),)

    def _value_columns(self) -> tuple[Col, ...]:
        types = ("int64", "int32", "float64", "bool", "string")
        return tuple(Col(f"v{i}", types[i % 7 if i % 7 < 5 else 0]) for i in range(COLUMNS - 1))

    def _partitions(self, names: tuple[str, ...]) -> tuple[Hashes, Ranges]:
        return (), ()

    def _given(self, op: str) -> tuple[str, ...]:
        if op.startswith("delete"):
            return self.made.key
        values = [column.name for column in self.made.values]
        few = self.rng.choice((1, 2, 20, len(values)))
        return (*self.made.key, *self.rng.sample(values, few))

    def _count(self) -> int:
        return self.rng.choice((0, 1, 1, 2, 3, 12))


class ManyTablets(Maker):
    """Partitions of a hash: most calls meet many of them, most of which hold little."""

    def _partitions(self, names: tuple[str, ...]) -> tuple[Hashes, Ranges]:
        return ((names, TABLETS),), ()


SHAPED: dict[str, tuple[type[Maker], int]] = {
    "few rows": (FewRows, 40),
    "fat cells": (FatCells, 25),
    "2,000 columns": (ManyColumns, 8),
    "64 tablets": (ManyTablets, 15),
}
"""With the steps of a short run."""


def shaped_case(shape: str, seed: int, steps: int) -> Case:
    """The case of a seed."""
    return SHAPED[shape][0](random.Random(f"{shape} {seed}")).case(steps)
