"""Tags of a table, as TABLE has them: names of times whose history is kept for ever."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from kudu_core.common.format.members import integer, text
from kudu_core.errors import InvalidArgument, shown

MAX_TAGS: Final = 4096
MAX_TAG_BYTES: Final = 255
"""Of a name, as UTF-8."""
TAGS_FLAG: Final = 1
"""In the header of a TABLE with tags: a library that knows none would forget them, and drop their history."""


def tags_to_json(tags: Mapping[str, int]) -> dict[str, Any]:
    """The member of TABLE, where there are tags."""
    return {"tags": [[name, ts] for name, ts in sorted(tags.items())]} if tags else {}


def tags_from_json(value: Any) -> dict[str, int]:
    """Raises what is in ``members.BROKEN``."""
    tags = {_stored(text(name)): integer(ts) for name, ts in value}
    if len(tags) != len(value) or len(tags) > MAX_TAGS:
        raise ValueError(f"{len(value)} tags, of which {len(tags)} have names of their own")
    return tags


def _stored(name: str) -> str:
    if not _is_name(name):
        raise ValueError(f"{name!r:.80} is no name of a tag")
    return name


def _is_name(name: str) -> bool:
    return name.isprintable() and name == name.strip() and 1 <= len(name.encode()) <= MAX_TAG_BYTES


def check_tag(name: Any) -> str:
    """``InvalidArgument`` for what is no name of a tag."""
    if not isinstance(name, str) or not _is_name(name):
        raise InvalidArgument(
            f"{shown(name)} is no name of a tag: that is text of 1 to {MAX_TAG_BYTES} bytes, printable, "
            "without spaces at its ends"
        )
    return name


__all__ = ["MAX_TAGS", "MAX_TAG_BYTES", "TAGS_FLAG", "check_tag", "tags_from_json", "tags_to_json"]
