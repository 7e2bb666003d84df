"""``history_of``: its versions are what every moment of a timeline has of their key."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import pyarrow as pa

from tests.support.models.model import Cell, Key, Timeline


class Version(NamedTuple):
    """One row of ``history_of``: when it began and ended, what began it, and the columns but for the key."""

    begins: int | None
    ends: int | None
    op: str | None
    row: tuple[Cell, ...]


def versions_of(table: pa.Table, rows: Sequence[tuple[Cell, ...]]) -> list[Version]:
    """The versions of an answer whose columns but for the key hold these cells."""
    head = (table[name].to_pylist() for name in ("_valid_from", "_valid_to", "_op"))
    return [Version(*told, row) for *told, row in zip(*head, rows, strict=True)]


def check_versions(
    timeline: Timeline, key: Key, versions: Sequence[Version], oldest: int, since: int | None, until: int
) -> None:
    """That they say what the key had at every moment from ``since`` (None: ``oldest``) to ``until``.

    ``oldest``: as far back as history reached.  An update that changed nothing may begin a version.
    """
    start = oldest if since is None else since
    for number, version in enumerate(versions):
        assert (version.begins is None) == (version.op is None), version
        assert version.begins is not None or number == 0, f"{version} is not the oldest"
        assert version.ends is not None or number == len(versions) - 1, f"{version} is not the newest"
        assert version.ends is None or start < version.ends <= until, f"{version}, {start} to {until}"
        begins = oldest if version.begins is None else version.begins
        assert begins <= until and (version.ends is None or begins < version.ends), version
        if version.begins is not None:
            assert version.begins > oldest and version.begins in timeline.times, version
            there = key in timeline.at(version.begins - 1)
            assert version.op == ("update" if there else "insert"), version
    for earlier, later in pairwise(versions):
        assert earlier.ends <= later.begins, f"{earlier} and {later} overlap"  # type: ignore[operator]
        assert later.op == ("update" if earlier.ends == later.begins else "insert"), (earlier, later)
    edges = {edge for version in versions for edge in version[:2] if edge is not None}
    for time in sorted({start, until, *timeline.times, *edges, *(edge - 1 for edge in edges)}):
        if start <= time <= until:
            found = [version.row for version in versions if _is_valid(version, time)]
            wanted = timeline.at(time).get(key)
            assert found == ([] if wanted is None else [wanted]), f"{key!r} at {time}: {found}, not {wanted}"


def _is_valid(version: Version, time: int) -> bool:
    begun: Any = version.begins is None or version.begins <= time
    return bool(begun) and (version.ends is None or time < version.ends)
