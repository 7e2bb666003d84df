"""Each public docstring shows in a line or two what a user would do first with it; here they all run.

An example knows ``kc``, ``pa``, ``pc``, ``stock`` (a table open for writing, of three rows), ``path`` (where
nothing is yet) and ``folder`` (the same, for backups).  Those of ``kudu_core.spark`` run in tests/spark.
"""

from __future__ import annotations

import doctest
import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import kudu_core as kc

MOST_LINES = 6
"""Of an example, with what it prints."""
WALKS = ("PartitionSchema.", "Unreplayed.")
"""Results whose methods the walks call; users read what they say."""
PARSER = doctest.DocTestParser()


def public() -> Iterator[tuple[str, Any]]:
    """Functions and classes of the package, and their methods; what has no docstring says nothing.

    Errors are raised and not called, and a property is read: their docstrings need no example.
    """
    for name in kc.__all__:
        thing = getattr(kc, name)
        if inspect.isclass(thing) and issubclass(thing, Exception):
            continue
        yield name, thing
        for method in dir(thing) if inspect.isclass(thing) else ():
            value = inspect.getattr_static(thing, method)
            if isinstance(value, staticmethod) or inspect.isfunction(value):
                of_walks = f"{name}.".startswith(WALKS)
                if not method.startswith("_") and not of_walks and getattr(thing, method).__doc__:
                    yield f"{name}.{method}", getattr(thing, method)


PUBLIC = dict(public())


@pytest.fixture
def known(tmp_path: Path) -> Iterator[dict[str, Any]]:
    schema = pa.schema([("id", pa.int64()), ("name", pa.string()), ("price", pa.float64())])
    with kc.create_table(tmp_path / "stock", schema, "id", options={"maintenance": "manual"}) as stock:
        names, prices = ["pen", "ink", "pad"], [1.5, 4.0, 2.5]
        stock.insert({"id": [1, 2, 3], "name": names, "price": prices})
        yield {
            "kc": kc, "pa": pa, "pc": pc, "stock": stock,
            "path": str(tmp_path / "new"), "folder": str(tmp_path / "backups"),
        }  # fmt: skip


@pytest.mark.parametrize("name", PUBLIC)
def test_an_example_runs(name: str, known: dict[str, Any]) -> None:
    text = inspect.getdoc(PUBLIC[name]) or ""
    example = PARSER.get_doctest(text, known, name, None, 0)
    assert example.examples, f"{name} has no example: what would a user do first with it?"
    lines = sum(len(e.source.splitlines()) + len(e.want.splitlines()) for e in example.examples)
    assert lines <= MOST_LINES, f"{name}: an example of {lines} lines"
    told: list[str] = []
    failed = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE).run(example, out=told.append)
    assert not failed.failed, "".join(told)
