"""Tables on the machine's own disk: the fixtures that all rooms share (``tests/conftest.py``)."""

from __future__ import annotations

import dataclasses
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import kudu_core as kc

SCHEMA = [
    kc.Column("k", pa.int64()),
    kc.Column("a", pa.int64()),
    kc.Column("s", pa.string()),
    kc.Column("must", pa.int32(), nullable=False, default=7),
]
"""A key, two columns that take NULL, and one that does not but has a default."""

Make = Callable[..., kc.Table]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where a test's table is."""
    return tmp_path / "t"


@pytest.fixture
def others() -> Iterator[Path]:
    """A directory that every user may enter and read; pytest's own are private."""
    directory = Path(tempfile.mkdtemp(prefix="kudu-core-test-"))
    directory.chmod(0o755)
    yield directory
    shutil.rmtree(directory)


@pytest.fixture
def make(path: Path) -> Iterator[Make]:
    """``make(schema, key, *, partition_by=(), listener=None, **options)``; closed at the end.

    Maintenance is manual and nothing is fsynced for each write unless a test wants it.
    """
    made: list[kc.Table] = []

    def make_table(
        schema: Any = None,
        key: Any = ("k",),
        *,
        partition_by: Any = (),
        at: Path | None = None,
        **options: Any,
    ) -> kc.Table:
        settings = kc.Options(**{"maintenance": "manual", "durability": "none", **options})
        table = kc.create_table(
            at or path, schema or SCHEMA, list(key), partition_by=partition_by, options=settings
        )
        made.append(table)
        return table

    yield make_table
    for table in made:
        table.close()


@pytest.fixture
def small_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    """Log segments that are full after a few writes, and may be reused at once."""
    import kudu_core.table.lifecycle.open_writer as opening

    usual = opening.log_options
    small = {"segment_bytes": 4096, "first_fill_bytes": 4096, "fill_bytes": 4096, "file_grace_s": 0.0}
    monkeypatch.setattr(opening, "log_options", lambda options: dataclasses.replace(usual(options), **small))


@pytest.fixture
def table(make: Make) -> kc.Table:
    """An empty table of ``SCHEMA``."""
    return make()
