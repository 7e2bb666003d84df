"""Options of a table for good: which of them change for the handle at once, and which at the next open.

They are stored in TABLE, and an ALTER record says those that changed, so that replay and readers follow.  No
option says how a file or a record is laid out, so each may change; what is fixed when a table is made
(``FIXED``) is no option.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from kudu_core.errors import InvalidArgument
from kudu_core.options import NAMES, Options

if TYPE_CHECKING:
    from kudu_core.table.opened.engine import Engine

AT_NEXT_OPEN = frozenset(
    {
        "durability",
        "group_interval_s",
        "maintenance",
        "maintenance_threads",
        "memory_limit_bytes",
        "page_cache_bytes",
        "scan_threads",
    }
)
"""Log, threads and memory of a handle are set up by these when it is opened."""
AT_ONCE = frozenset(NAMES) - AT_NEXT_OPEN
FIXED = {
    "primary_key": "the key of a table",
    "partition_by": "how a table is partitioned, but for its ranges (add_range, drop_range),",
    "schema": "columns change by add, drop, rename, change and order; the schema as a whole",
    "path": "where a table lies",
    "storage_options": "how a store is reached is given to each open, and",
}
"""What is given to ``create_table`` beside options."""


def options_changed(engine: Engine, given: Options | Mapping[str, Any] | None) -> dict[str, Any]:
    """Which options are to be other than they are, stored or in force here; ``InvalidArgument`` names one
    that there is not, or whose value it cannot have."""
    if given is None:
        return {}
    if isinstance(given, Mapping):
        for name in given:
            if name in FIXED:
                raise InvalidArgument(
                    f"{FIXED[name]} is fixed when it is made: {name!r} is no option to change"
                )
    named = Options().overridden(given)
    stored, here = engine.table_file.state.options, engine.asked_options
    wanted = {name: getattr(named, name) for name in NAMES if name in named.given}
    if engine.in_store and wanted.get("file_grace_s", stored.file_grace_s) != stored.file_grace_s:
        raise InvalidArgument(
            f"file_grace_s is {stored.file_grace_s:g} s, and in a store it is fixed when the table is made: "
            "readers of other processes rely on it"
        )
    return {
        name: value
        for name, value in wanted.items()
        if getattr(stored, name) != value or (name in AT_ONCE and getattr(here, name) != value)
    }


def take_effect(engine: Engine, changed: Mapping[str, Any]) -> None:
    """What can change at once does, of the handle that made the change, whatever it was opened with."""
    now = {name: value for name, value in changed.items() if name in AT_ONCE}
    if not now:
        return
    engine.asked_options = engine.asked_options.replace(**now)
    options = replace(engine.options, **now)
    engine.options = engine.tablet_context.options = options
    engine.memory.set_threshold(options)
    engine.writers.set_retention(options.token_retention_s)
    engine.call_times.slow_s = options.slow_operation_s
    engine.row_writes = None  # the next write makes one, which knows how many rows go to files


__all__ = ["AT_NEXT_OPEN", "AT_ONCE", "options_changed", "take_effect"]
