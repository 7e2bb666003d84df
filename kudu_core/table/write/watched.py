"""A write that shows how far it is."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from kudu_core.common.run.measure.work import LongWork

if TYPE_CHECKING:
    from kudu_core.table.opened.engine import Engine

T = TypeVar("T")


def watched(engine: Engine, progress: Any, write: Callable[..., T], data: Any, **arguments: Any) -> T:
    """``write(data, **arguments)`` as a work of which ``progress`` is told."""
    total = getattr(data, "num_rows", None)
    if total is None and isinstance(data, list):
        total = len(data)
    with LongWork("ingest", engine.tell, total=total if isinstance(total, int) else None, progress=progress):
        return write(data, **arguments)


__all__ = ["watched"]
