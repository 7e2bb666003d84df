"""A merge while its clauses are added, wherever its rows come from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

from kudu_core.common.schema.schema import Schema
from kudu_core.errors import InvalidArgument
from kudu_core.table.merge.clauses import Action, Clause, Of

if TYPE_CHECKING:
    from kudu_core.table.calls.arguments import Where


class MergeClauses:
    """Clauses, checked when they are added."""

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self._clauses: list[Clause] = []

    def when_matched(self, set: Mapping[str, Any] | None = None, *, where: Where | None = None) -> Self:
        """Update the row that is there: ``set`` maps columns to values or expressions; None: to all columns
        that the row that is given has beside the key.

        >>> sold = stock.merge([{"id": 1, "price": 9.0}])
        >>> sold.when_matched(where=kc.new("price") > kc.old("price")).execute().updated
        1
        """
        return self._with("matched", "update", set, where)

    def when_matched_delete(self, *, where: Where | None = None) -> Self:
        """Delete the row that is there.

        >>> gone = stock.merge([{"id": 1}, {"id": 2}]).when_matched_delete(where=kc.old("price") > 2)
        >>> gone.execute().deleted
        1
        """
        return self._with("matched", "delete", None, where)

    def when_not_matched_insert(
        self, values: Mapping[str, Any] | None = None, *, where: Where | None = None
    ) -> Self:
        """Insert the row that is given; with ``values``, a mapping as ``set``, its key and these columns, and
        the others take their default.

        >>> new = stock.merge([{"id": 1}, {"id": 7}])
        >>> new.when_not_matched_insert({"name": "bag", "price": 5.0}).execute().inserted
        1
        """
        return self._with("not_matched", "insert", values, where)

    def when_not_matched_by_source_update(
        self, set: Mapping[str, Any], *, where: Where | None = None
    ) -> Self:
        """Update rows for which none is given.

        >>> kept = stock.merge([{"id": 1}])
        >>> kept.when_not_matched_by_source_update({"price": kc.old("price") / 2}).execute().updated
        2
        """
        return self._with("by_source", "update", set, where)

    def when_not_matched_by_source_delete(self, *, where: Where | None = None) -> Self:
        """Delete rows for which none is given.

        >>> stock.merge([{"id": 1}]).when_not_matched_by_source_delete().execute().deleted
        2
        """
        return self._with("by_source", "delete", None, where)

    def _with(self, of: Of, action: Action, set_: Mapping[str, Any] | None, where: Any) -> Self:
        clause = Clause(of, action, dict(set_) if isinstance(set_, Mapping) else set_, where)
        clause.checked(self._schema, len(self._clauses))
        self._clauses.append(clause)
        return self

    @property
    def clauses(self) -> Sequence[Clause]:
        """As they were added; ``InvalidArgument`` where there is none."""
        if not self._clauses:
            raise InvalidArgument("a merge has clauses, such as when_matched() or when_not_matched_insert()")
        return self._clauses


def check_duplicates(on_duplicate: object, sequence_by: object) -> None:
    """``InvalidArgument`` unless the two go together."""
    if on_duplicate not in ("error", "last") or (on_duplicate == "last") != (sequence_by is not None):
        raise InvalidArgument(
            'on_duplicate is "error", or "last" together with sequence_by=, the column that says which '
            f"row is the last; not {on_duplicate!r} with sequence_by={sequence_by!r}"
        )


__all__ = ["MergeClauses", "check_duplicates"]
