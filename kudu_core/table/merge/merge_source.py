"""The rows that a merge is given, by key, beside the table's columns with others of their own."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from kudu_core.common.idempotence.fingerprint import Fingerprint, of_hashes, row_hashes
from kudu_core.common.rows.arrow_in import GivenRows
from kudu_core.common.rows.conform import Conformed, conform
from kudu_core.common.rows.keys import EncodedKeys, encode_keys
from kudu_core.common.rows.rowblock import ColumnBuffers, RowBlock
from kudu_core.common.rows.shown import Shown, picked
from kudu_core.common.run.cached import cached_property
from kudu_core.common.schema.schema import Schema, declared_field
from kudu_core.common.types.foreign import check_layout, names_of
from kudu_core.common.types.types import ColumnType
from kudu_core.common.where.rewritten import plain
from kudu_core.common.where.seen import seen
from kudu_core.errors import InvalidArgument, NotSupported, SchemaMismatch
from kudu_core.table.calls.refused import OK
from kudu_core.table.calls.repeats import last_rows
from kudu_core.tablet.view.view import KeyBatch

PART_BYTES = 16 << 20
"""About how large a part is of rows that memory does not hold all at once."""
EXTRA_ID = 1 << 31
"""Columns of the rows that the table does not have are hashed as if they had ids from here on."""


class SourcePart:
    """Rows with the same columns, in the table's types."""

    def __init__(self, schema: Schema, conformed: Conformed, numbers: np.ndarray) -> None:
        """``numbers``: (n,) int64, those of the rows among all that are given."""
        self.schema = schema
        self.block = conformed.block
        self.extra = conformed.extra
        self.numbers = numbers
        self.status = conformed.status
        """(n,) uint8, as of ``Call``; None: no row is refused."""

    @property
    def rows(self) -> int:
        return self.block.rows

    @cached_property
    def arrow(self) -> pa.Schema:
        """Names and types of the columns, as a table shows them."""
        mine, schema = self.block.columns, self.schema
        flat = [c for c in schema.columns if c.id in mine and c.id not in schema.leaf_of]
        nested = [c for c in schema.nested if all(id_ in mine for id_ in c.ids)]
        fields = [*map(declared_field, flat), *map(declared_field, nested)]
        return pa.schema([*fields, *(pa.field(name, array.type) for name, array in self.extra.items())])

    @cached_property
    def keys(self) -> KeyBatch:
        return KeyBatch(encode_keys(self.schema, self.block))

    @cached_property
    def key_block(self) -> RowBlock:
        return self.block.select(self.schema.key_ids)

    @cached_property
    def keyed(self) -> np.ndarray:
        """(n,) bool: rows without a NULL in the key."""
        keyed = np.ones(self.rows, bool)
        for id_ in self.schema.key_ids:
            if self.block.columns[id_].validity is not None:
                keyed &= self.block.columns[id_].valid_mask()
        return keyed

    def refused(self, rows: np.ndarray, *, keys_alone: bool) -> np.ndarray | None:
        """(n,) uint8, as of ``Call``, for some rows, (n,) int64.  ``keys_alone``: not for other columns."""
        if self.status is None:
            return None
        status = self.status[rows]
        return np.where(self.keyed[rows], np.uint8(OK), status) if keys_alone else status

    def column(self, name: str) -> pa.Array:
        """A column as expressions see it; ``InvalidArgument`` where the rows have none of that name."""
        if name in self.extra:
            return self.extra[name]
        schema = self.schema
        known = schema.by_name.get(name)
        if known is not None and known.id in self.block.columns:
            return seen(self.block.columns[known.id].to_arrow(known.type), known.type)
        try:
            stored, shown = picked(schema, [name])
        except InvalidArgument:
            stored, shown = (), ()
        if not stored or any(column.id not in self.block.columns for column in stored):
            raise InvalidArgument(f"new.{name}: the rows that are given have no column {name!r}")
        arrays = [self.block.columns[c.id].to_arrow(c.type) for c in stored]
        return Shown(stored, shown).arrays(arrays)[0]

    def fingerprint(self) -> Fingerprint:
        columns = dict(self.block.columns)
        for place, (name, array) in enumerate(sorted(self.extra.items())):
            try:
                type_ = ColumnType.from_arrow(array.type)
                columns[EXTRA_ID + place] = ColumnBuffers.from_arrow(array.cast(type_.arrow), type_, name)
            except (InvalidArgument, pa.ArrowException):
                raise NotSupported(
                    f"txn: column {name!r} of the rows, which the table does not have, is {array.type}, of "
                    "which no fingerprint is made; leave the column out, or txn"
                ) from None
        return of_hashes(row_hashes(0, columns, self.rows))

    def take(self, rows: np.ndarray) -> SourcePart:
        """Some of the rows, (n,) int64."""
        extra = {name: array.take(pa.array(rows)) for name, array in self.extra.items()}
        block = self.block.take(rows)
        status = None if self.status is None else self.status[rows]
        made = Conformed(block, frozenset(block.columns), extra, status)
        return SourcePart(self.schema, made, self.numbers[rows])


@dataclass(frozen=True)
class MergeSource:
    """What a merge is given."""

    given: Iterable[GivenRows]
    """Read more than once."""
    on: Mapping[str, str]
    """Key column -> the column of the rows that has it."""
    last_by: str | None = None
    """Of several rows of one key that counts in which this column is largest; None: all count."""
    is_large: bool = False
    """They are not held in memory all at once, nor is what becomes of them."""

    def parts(self, schema: Schema) -> Iterable[SourcePart]:
        """The rows in the table's types, by runs of the same columns; ``SchemaMismatch`` names the column.

        Read more than once, if need be.
        """
        kept = None if self.last_by is None else self._last(schema, self.last_by)
        made = _Parts(self, schema, kept)
        return made if self.is_large else list(made)

    def all_parts(self, schema: Schema) -> Iterator[SourcePart]:
        """The same with all rows of every key."""
        run: list[GivenRows] = []
        form: tuple[str, ...] = ()
        nbytes = 0
        for part in self.given:
            mine = tuple(map(str, part.batch.schema))
            if run and (mine != form or (self.is_large and nbytes > PART_BYTES)):
                yield self._part(schema, run)
                run, nbytes = [], 0
            if part.batch.num_rows:
                form = mine
                nbytes += part.batch.nbytes
                run.append(part)
        if run:
            yield self._part(schema, run)

    def _last(self, schema: Schema, name: str) -> np.ndarray | None:
        """(rows,) bool over all rows: those of each key that no other comes after; None: all are."""
        keys, cells, places = [], [], []
        types: dict[str, ColumnType] = {}
        count = 0
        for part in self.all_parts(schema):
            made, type_ = _sequence(part, name)
            types[str(type_)] = type_
            rows = np.flatnonzero(part.keyed)  # a NULL is encoded as if it were a value
            keys.append(part.keys.keys.take(rows))
            cells.append(made.take(rows))
            places.append(rows + count)
            count += part.rows
        if len(types) > 1:
            told = " and ".join(sorted(types))
            raise InvalidArgument(f"sequence_by: {name!r} is {told}: rows of both have no order")
        if not types:
            return None
        [type_] = types.values()
        last = last_rows(EncodedKeys.concat(keys), ColumnBuffers.concat(cells), type_)
        if last is None:
            return None
        kept, keyed = np.ones(count, bool), np.concatenate(places)
        kept[keyed] = False
        kept[keyed[last]] = True
        return kept

    def _part(self, schema: Schema, run: Sequence[GivenRows]) -> SourcePart:
        made = [self._conformed(schema, part) for part in run]
        numbers = [
            np.arange(part.first, part.first + part.batch.num_rows) if part.numbers is None else part.numbers
            for part in run
        ]
        if len(made) == 1:
            return SourcePart(schema, made[0], numbers[0])
        block = RowBlock.concat([one.block for one in made])
        extra = {name: pa.concat_arrays([one.extra[name] for one in made]) for name in made[0].extra}
        status = None
        if any(one.status is not None for one in made):
            status = np.concatenate(
                [np.zeros(one.block.rows, np.uint8) if one.status is None else one.status for one in made]
            )
        return SourcePart(schema, Conformed(block, made[0].given, extra, status), np.concatenate(numbers))

    def _conformed(self, schema: Schema, part: GivenRows) -> Conformed:
        batch = _with_keys(part.batch, self.on)
        known = {name for name in names_of(batch.schema) if _is_of_table(schema, name)}
        extra = [name for name in names_of(batch.schema) if name not in known]
        made = conform(schema, batch, allow_extra=extra, first_row=part.first)
        for name, array in made.extra.items():
            check_layout(array, name, part.first)  # nobody has cast it
        return replace(made, extra={name: plain(array) for name, array in made.extra.items()})


def _sequence(part: SourcePart, name: str) -> tuple[ColumnBuffers, ColumnType]:
    """What says which of several rows is the last."""
    column = plain(part.column(name))
    try:
        type_ = ColumnType.from_arrow(column.type)
        return ColumnBuffers.from_arrow(column.cast(type_.arrow), type_, name), type_
    except (pa.ArrowException, InvalidArgument) as error:
        raise InvalidArgument(f"sequence_by: {name!r} is {column.type}: {error}") from None


@dataclass(frozen=True)
class _Parts:
    """Parts of a source, made anew each time they are read."""

    source: MergeSource
    schema: Schema
    kept: np.ndarray | None
    """(rows,) bool: those that count."""

    def __iter__(self) -> Iterator[SourcePart]:
        first = 0
        for part in self.source.all_parts(self.schema):
            if self.kept is not None:
                mine = self.kept[first : first + part.rows]
                first += part.rows
                if not mine.all():
                    part = part.take(np.flatnonzero(mine))
            if part.rows:
                yield part


def key_names(schema: Schema, on: Any) -> dict[str, str]:
    """``on=``: key column -> column of the rows.

    None for columns of the same names, else a name, a list of names, or a mapping from key columns.
    """
    if on is None:
        return {name: name for name in schema.key_names}
    if isinstance(on, str):
        on = [on]
    named = dict(on) if isinstance(on, Mapping) else {name: name for name in _names(on)}
    if set(named) != set(schema.key_names):
        raise NotSupported(
            f"on: rows are matched by the primary key, {', '.join(schema.key_names)}, not by "
            f"{', '.join(map(str, named)) or 'nothing'}; "
            "where the rows have it under other names: on={key column: column of the rows}"
        )
    return named


def _names(on: Any) -> list[str]:
    if isinstance(on, Iterable):
        names = list(on)
        if all(isinstance(name, str) for name in names):
            return names
    raise InvalidArgument(f"on is a key column, a list of them or a mapping from them, not {on!r}")


def _with_keys(batch: pa.RecordBatch, on: Mapping[str, str]) -> pa.RecordBatch:
    """The batch with the key under its own names."""
    renamed = {theirs: mine for mine, theirs in on.items() if mine != theirs}
    if not renamed:
        return batch
    names = names_of(batch.schema)
    missing = [name for name in renamed if name not in names]
    if missing:
        raise SchemaMismatch(f"on: the rows have no column {missing[0]!r}; they have {', '.join(names)}")
    twice = [mine for theirs, mine in renamed.items() if mine in names and mine not in renamed]
    if twice:
        raise SchemaMismatch(f"on: the rows have a column {twice[0]!r} of their own; leave it out")
    return batch.rename_columns([renamed.get(name, name) for name in names])


def _is_of_table(schema: Schema, name: str) -> bool:
    try:
        schema.seen(name)
    except InvalidArgument:
        return False
    return True


__all__ = ["MergeSource", "SourcePart", "key_names"]
