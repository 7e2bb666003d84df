"""What columns may be called, and their names in messages."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from kudu_core.errors import InvalidArgument, shown

OP_COLUMN = "_op"  # the operation of each row, in calls, jobs, backups and what `changes` reports
RESERVED_PREFIXES = (OP_COLUMN, "_timestamp", "_before")
MAX_NAME_BYTES = 256
_LISTED = 100
"""So many names are listed in a message."""


def is_unicode(value: str) -> bool:
    """Whether UTF-8 can hold a text: it has no lone surrogates."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def checked_name(name: Any) -> str:
    """The name; ``InvalidArgument`` unless a column may have it."""
    if not isinstance(name, str) or not name or "\0" in name:
        raise InvalidArgument(f"a column's name is text that is not empty, without NUL, not {shown(name)}")
    if not is_unicode(name):
        raise InvalidArgument(f"column name {shown(name)} cannot be written as UTF-8")
    size = len(name.encode())
    if size > MAX_NAME_BYTES:
        raise InvalidArgument(
            f"column name {shown(name)} has {size} bytes; at most {MAX_NAME_BYTES} are stored"
        )
    for prefix in RESERVED_PREFIXES:
        if name.startswith(prefix):
            raise InvalidArgument(f"column {shown(name)}: names that begin with {prefix} are reserved")
    return name


def listed_names(names: Sequence[str]) -> str:
    """Names for a message."""
    return ", ".join(names[:_LISTED]) + (f" and {len(names) - _LISTED} more" if len(names) > _LISTED else "")


def first_repeated(names: Iterable[str]) -> str | None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            return name
        seen.add(name)
    return None
