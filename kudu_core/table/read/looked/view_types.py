"""Whether what was captured for a read has the types that the read knows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kudu_core.common.schema.schema import Schema
    from kudu_core.table.opened.engine import Engine
    from kudu_core.tablet.view.view import View


class Retyped(Exception):
    """The types of columns have changed, or are about to, since a read looked at the schema."""


def check_types(schema: Schema, views: Sequence[View]) -> None:
    if any(view.types_version != schema.cells for view in views):
        raise Retyped


def await_types(engine: Engine) -> None:
    """Until a change of types is over: it holds the mutexes of all tablets."""
    for tablet in engine.tablets:
        with tablet.mutex:
            return


__all__ = ["Retyped", "await_types", "check_types"]
