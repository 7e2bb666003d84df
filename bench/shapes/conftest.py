"""A shape in every engine.

Timed, a shape has its full size and is measured beside its peers; run as a test it is small, and is there for
the answers.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from bench.shapes import peers
from bench.shapes.operations import Asked
from bench.shapes.shapes import Shape
from bench.shapes.timing import QUICK, Effort

NEEDED = {"RocksDB": "rocksdict", "DuckDB": "duckdb"}


class Engines(dict[str, Any]):
    """Each made when it is asked for, with all rows, and what shall be in its cache in its cache."""

    def __init__(self, shape: Shape, folder: Path, timed: bool) -> None:
        super().__init__()
        self.shape, self.folder, self.timed = shape, folder, timed
        self.asked = Asked(shape)

    def __missing__(self, name: str) -> Any:
        engine = peers.ENGINES[name](self.folder / name, self.shape)
        self[name] = engine
        engine.fill()
        if self.timed and not self.shape.cache_part:
            engine.warm()
        return engine

    def close(self) -> None:
        for engine in self.values():
            engine.close()
        shutil.rmtree(self.folder)


@pytest.fixture(scope="session")
def effort(timed: bool) -> Effort:
    return Effort() if timed else QUICK


def installed(names: tuple[str, ...], timed: bool) -> list[str]:
    """The peers that are there; when times are taken, all have to be."""
    if timed:
        return list(names)
    import importlib.util

    return [n for n in names if n not in NEEDED or importlib.util.find_spec(NEEDED[n]) is not None]
