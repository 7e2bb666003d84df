"""The columns that names in SQL text stand for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from kudu_core.common.types.types import ColumnType
from kudu_core.common.where.seen import is_seen_as_declared
from kudu_core.errors import InvalidArgument
from kudu_core.sql.meaning.typed import Typed
from kudu_core.sql.sqlglot_trees import quoted

if TYPE_CHECKING:
    from sqlglot import exp

_t = pa.types
_MOST_LISTED = 20


@dataclass(frozen=True, slots=True)
class NamedRow:
    """A row whose columns text may name.

    ``prefix``: what stands before a column's name in Arrow's reference, as "old" in ``pc.field("old", "n")``;
    empty for none.  ``names``: what may stand before it in the text.
    """

    schema: pa.Schema
    prefix: str = ""
    names: tuple[str, ...] = ()
    called: Mapping[str, str] = field(default_factory=dict)
    """Columns that the text may name otherwise: that name -> the column."""

    def found(self, name: str) -> str | None:
        """The column of a name: the one of exactly that name, else the only one that differs in case."""
        found = _found(name, [*self.schema.names, *self.called])
        return None if found is None else self.called.get(found, found)


@dataclass(frozen=True, slots=True)
class NamedRows:
    """All that text may name."""

    rows: tuple[NamedRow, ...]

    def column(self, tree: exp.Expr) -> Typed:
        """What ``a``, ``s.a``, ``this.a`` or ``this.s.a`` is; ``InvalidArgument`` where there is no such
        column, or more than one."""
        return self.target(tree)[1]

    def target(self, tree: exp.Expr) -> tuple[str, Typed]:
        """The same with its name, that of a field with dots."""
        path = _path(tree)
        for row in self.rows:
            if len(path) > 1 and any(path[0].lower() == name.lower() for name in row.names):
                return self._in(tree, (row,), path[1:])
        return self._in(tree, self.rows, path)

    def named(self, tree: exp.Expr, name: str) -> Typed:
        """The column of exactly that name, or the field of a struct, ``a.b``."""
        whole = any(name in row.schema.names for row in self.rows)
        return self._in(tree, self.rows, [name] if whole else name.split("."))[1]

    def _in(self, tree: exp.Expr, rows: Sequence[NamedRow], path: Sequence[str]) -> tuple[str, Typed]:
        known = [(row, name) for row in rows for name in [row.found(path[0])] if name is not None]
        if not known:
            raise _unknown(tree, path[0], rows)
        if len(known) > 1:
            both = " and ".join(f"{row.names[0] if row.names else row.prefix}.{name}" for row, name in known)
            raise InvalidArgument(f"SQL: {quoted(tree)} may be {both}; write which of them")
        [(row, name)] = known
        full, type_ = [name], row.schema.field(name).type
        for part in path[1:]:
            inner = {} if not _t.is_struct(type_) else {one.name: one.type for one in type_}
            step = _found(part, list(inner))
            if step is None:
                fields = f"; it has {', '.join(inner)}" if inner else f", which is {type_}"
                raise InvalidArgument(f"SQL: {quoted(tree)}: no field {part!r} in {'.'.join(full)!r}{fields}")
            full.append(step)
            type_ = inner[step]
        steps = [row.prefix, *full] if row.prefix else full
        reference = pc.field(*steps) if len(steps) > 1 else pc.field(steps[0])
        return ".".join(full), _seen(tree, reference, type_)


def _path(tree: exp.Expr) -> list[str]:
    from sqlglot import exp

    if isinstance(tree, exp.Dot):
        return [*_path(tree.this), tree.expression.name]
    return [part.name for part in tree.parts] if isinstance(tree, exp.Column) else [tree.name]


def _found(name: str, names: Sequence[str]) -> str | None:
    if name in names:
        return name
    like = [one for one in names if one.lower() == name.lower()]
    if len(like) > 1:
        raise InvalidArgument(f"SQL: {name!r} may be {' or '.join(map(repr, like))}; write it as it is")
    return like[0] if like else None


def _unknown(tree: exp.Expr, name: str, rows: Sequence[NamedRow]) -> InvalidArgument:
    names = [one for row in rows for one in row.schema.names]
    more = f", and {len(names) - _MOST_LISTED} more" if len(names) > _MOST_LISTED else ""
    hint = "; text stands in single quotes" if getattr(tree.this, "quoted", False) else ""
    listed = ", ".join(names[:_MOST_LISTED])
    return InvalidArgument(f"SQL: no column {name!r}; there are {listed}{more}{hint}")


def _seen(tree: exp.Expr, reference: pc.Expression, type_: pa.DataType) -> Typed:
    """A column in the type in which Arrow sees it when it evaluates an expression over stored rows."""
    if _t.is_nested(type_):
        return Typed(tree, type_, reference)
    try:
        known = ColumnType.from_arrow(type_)
    except InvalidArgument:
        return Typed(tree, type_, reference)
    if known.value.name == "bool8":
        return Typed(tree, pa.bool_(), reference != pc.scalar(pa.scalar(0, pa.int8())))
    if known.value.name == "null":
        return Typed(tree, pa.null(), reference)
    stored = known.value.declared if is_seen_as_declared(known) else known.arrow
    return Typed(tree, stored, reference, is_uuid=known.value.name == "uuid")


__all__ = ["NamedRow", "NamedRows"]
