"""What file systems make of the buffers that they are given."""

from __future__ import annotations

from array import array
from typing import Any

import pytest

from kudu_core.fs import base


@pytest.mark.parametrize(
    "data",
    [
        b"\1\0\2\0",
        array("h", [1, 2]),
        memoryview(b"\1\0\2\0").cast("B", (2, 2)),
        [array("h", [1]), b"", bytearray(b"\2\0")],
    ],
    ids=["bytes", "numbers", "two dimensions", "several"],
)
def test_what_is_written_is_counted_in_bytes(data: Any) -> None:
    """A write that was cut short goes on in the middle of a buffer."""
    views = base.byte_views(data)
    assert all((view.format, view.ndim) == ("B", 1) for view in views)
    assert b"".join(bytes(view[:1]) + bytes(view[1:]) for view in views) == b"\1\0\2\0"
