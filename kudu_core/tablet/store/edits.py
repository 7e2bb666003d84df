"""What a tablet is made of, and the edits that change it.

An edit is the commit point of every flush, ingest and compaction.  Here is what edits say, what they add up
to, and their lines of JSON; where they are kept is ``manifest`` and ``logged_manifest``.  Knows nothing of
rowsets in memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from kudu_core.common.format.members import integer
from kudu_core.common.format.names import data_file
from kudu_core.rowset.rows.meta import RowSetMeta, parse

_LISTED = 10_000
"""Names or ids on one line of an edit."""
_NUMBERS = ("I", "G", "H", "mark", "next_file", "next_rowset")


@dataclass(frozen=True, slots=True)
class TabletState:
    """What the edits up to now add up to.  Replaced, never changed."""

    rowsets: Mapping[int, RowSetMeta] = field(default_factory=dict)
    inserts_durable: int = 0
    """I: every WRITE insert at or below it is in a rowset, none above."""
    ingests_durable: int = 0
    """G: the same for INGEST records."""
    horizon: int = 0
    """H: history at or below it may be gone."""
    mark: int = 0
    """The largest I, G or D that was ever recorded here."""
    next_file: int = 1
    next_rowset: int = 1
    epoch: int = 0
    number: int = 0
    """Number of the last edit."""
    retired: frozenset[str] = frozenset()
    """Files that an edit has dropped and that may not be deleted yet.  What is neither here nor in a rowset
    was never the tablet's, or an edit that told of it is lost."""

    def lines(self) -> Iterator[dict[str, Any]]:
        numbers = _numbers(self)
        yield {"checkpoint": True, **dict(zip(_NUMBERS, numbers, strict=True))}
        for names in _pieces(sorted(self.retired)):
            yield {"retired": names}
        for meta in self.rowsets.values():
            yield meta.to_json()

    @property
    def files(self) -> frozenset[str]:
        return frozenset(file.name for r in self.rowsets.values() for file in r.files)


@dataclass(frozen=True, slots=True)
class Edit:
    """One change of a tablet: rowsets removed, added or replaced by a new version of themselves."""

    remove: tuple[int, ...] = ()
    add: tuple[RowSetMeta, ...] = ()
    """New rowsets, and new versions of known ones (same id)."""
    inserts_durable: int = 0
    ingests_durable: int = 0
    horizon: int = 0
    mark: int = 0
    next_file: int = 0
    next_rowset: int = 0

    def lines(self) -> Iterator[dict[str, Any]]:
        yield {name: number for name, number in zip(_NUMBERS, _numbers(self), strict=True) if number}
        for ids in _pieces(self.remove):
            yield {"remove": ids}
        for meta in self.add:
            yield meta.to_json()

    @property
    def newest_ts(self) -> int:
        """The largest timestamp that the edit names: the log must be durable through it (protocol E1)."""
        return max(
            self.inserts_durable,
            self.ingests_durable,
            self.mark,
            *(r.durable for r in self.add),
            0,
        )


def _numbers(of: TabletState | Edit) -> tuple[int, ...]:
    return (of.inserts_durable, of.ingests_durable, of.horizon, of.mark, of.next_file, of.next_rowset)


def _pieces(values: Iterable[Any]) -> Iterator[list[Any]]:
    values = list(values)
    return (values[i : i + _LISTED] for i in range(0, len(values), _LISTED))


def with_edit(state: TabletState, edit: Edit) -> TabletState:
    """The state after one edit; ``KeyError`` if it removes a rowset that is not there."""
    sum_ = EditSum(state)
    sum_.add(edit)
    return sum_.state(state.number, state.epoch)


class EditSum:
    """What edits add up to, while they are added: each costs what it changes."""

    def __init__(self, state: TabletState) -> None:
        self._rowsets = dict(state.rowsets)
        self._retired = set(state.retired)
        self._numbers = list(_numbers(state))

    def add(self, edit: Edit, retired: Iterable[str] = ()) -> None:
        for removed in edit.remove:
            self._retired.update(file.name for file in self._rowsets.pop(removed).files)
        for meta in edit.add:
            before = self._rowsets.get(meta.id)
            if before is not None:
                self._retired.update(file.name for file in before.files)
            self._rowsets[meta.id] = meta
        for meta in edit.add:
            self._retired.difference_update(file.name for file in meta.files)
        self._retired.update(retired)
        numbers = [max(pair) for pair in zip(self._numbers, _numbers(edit), strict=True)]
        numbers[_MARK] = max(*numbers[: _MARK - 1], numbers[_MARK], *(meta.durable for meta in edit.add))
        self._numbers = numbers

    def state(self, number: int, epoch: int) -> TabletState:
        i, g, h, mark, next_file, next_rowset = self._numbers
        retired = frozenset(self._retired)
        return TabletState(self._rowsets, i, g, h, mark, next_file, next_rowset, epoch, number, retired)


_MARK = _NUMBERS.index("mark")


def taken_apart(values: Iterable[Mapping[str, Any]], path: str, offset: int) -> tuple[bool, Edit, list[str]]:
    """(is a checkpoint, the edit, files retired before it) of the lines of one."""
    numbers: Mapping[str, Any] = {}
    remove: list[int] = []
    add: list[RowSetMeta] = []
    retired: list[str] = []
    for place, value in enumerate(values):
        if not place:
            numbers = value
        elif "remove" in value:
            remove += map(integer, value["remove"])
        elif "retired" in value:
            retired += (data_file(name) for name in value["retired"])
        else:
            add.append(parse(path, offset, value))
    edit = Edit(tuple(remove), tuple(add), *(integer(numbers.get(name, 0)) for name in _NUMBERS))
    return numbers.get("checkpoint") is True, edit, retired


def file_name(epoch: int, number: int, kind: str) -> str:
    """``<epoch>-<n>.rows``, ``.delta`` or ``.manifest``; a name is never used twice."""
    return f"{epoch:06d}-{number:08d}.{kind}"


__all__ = ["Edit", "EditSum", "TabletState", "file_name", "taken_apart", "with_edit"]
