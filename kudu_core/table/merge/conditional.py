"""``if_=``, and values of expressions: writes by key that look at the row that is there.

Each is a merge whose rows must all come to something: one whose condition does not hold is refused, and the
answer has the row that is there beside it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kudu_core._ext.rules import decide as rules
from kudu_core.common.idempotence.writers import check_txn
from kudu_core.errors import InvalidArgument
from kudu_core.table.calls.conform import keys_or_rows, with_policy
from kudu_core.table.calls.refused import check_on_error
from kudu_core.table.calls.result import WriteResult
from kudu_core.table.merge.clauses import Clause
from kudu_core.table.merge.decision import Rest
from kudu_core.table.merge.merge_rows import Asked, merged
from kudu_core.table.merge.merge_source import key_names

if TYPE_CHECKING:
    from kudu_core.table.opened.engine import Engine

@dataclass(frozen=True, slots=True)
class Manner:
    """What every write is told beside its rows."""

    on_error: str
    txn: Any
    on_repeat: str
    wait: bool


def insert(engine: Engine, data: Any, if_: Any, on_conflict: str, manner: Manner) -> WriteResult:
    """Insert rows that meet a condition, of which none is there."""
    op = with_policy("on_conflict", on_conflict, "insert")
    clauses = [Clause("not_matched", "insert", None, if_, "insert")]
    present = Rest(rules.CALL_INSERT if op == "insert" else rules.CALL_INSERT_IGNORE)
    return _written(engine, data, clauses, present, Rest(rules.CALL_INSERT, failed=True), manner)


def upsert(engine: Engine, data: Any, set_: Any, if_: Any, manner: Manner) -> WriteResult:
    """Insert rows, or change those that are there and meet a condition."""
    clauses = [Clause("matched", "update", _mapping(set_), if_, "upsert")]
    clauses.append(Clause("not_matched", "insert", None, None, "upsert"))
    return _written(engine, data, clauses, Rest(rules.CALL_UPSERT, failed=True), None, manner)


def update(
    engine: Engine, data: Any, set_: Any, if_: Any, on_missing: str, manner: Manner
) -> WriteResult:
    """Change rows by key that meet a condition."""
    op = with_policy("on_missing", on_missing, "update")
    absent = Rest(rules.CALL_UPDATE if op == "update" else rules.CALL_UPDATE_IGNORE)
    clauses = [Clause("matched", "update", _mapping(set_), if_, "update")]
    return _written(engine, data, clauses, Rest(rules.CALL_UPDATE, failed=True), absent, manner)


def delete(engine: Engine, keys: Any, if_: Any, on_missing: str, manner: Manner) -> WriteResult:
    """Delete rows by key that meet a condition."""
    op = with_policy("on_missing", on_missing, "delete")
    absent = Rest(rules.CALL_DELETE if op == "delete" else rules.CALL_DELETE_IGNORE)
    rows = keys_or_rows(engine.schema, keys)
    clauses = [Clause("matched", "delete", None, if_, "delete")]
    return _written(engine, rows, clauses, Rest(rules.CALL_DELETE, failed=True), absent, manner)


def _mapping(set_: Any) -> Mapping[str, Any] | None:
    if set_ is None or isinstance(set_, Mapping):
        return set_
    raise InvalidArgument(f"set is a mapping from columns to values or expressions, not {set_!r}")


def _written(
    engine: Engine,
    data: Any,
    clauses: Sequence[Clause],
    matched_rest: Rest,
    absent_rest: Rest | None,
    manner: Manner,
) -> WriteResult:
    engine.check_writable()
    check_on_error(manner.on_error)
    token = check_txn(manner.txn, manner.on_repeat)
    asked = Asked(data, key_names(engine.schema, None), clauses, matched_rest, absent_rest)
    done, _ = merged(engine, asked, manner.on_error, token, manner.wait)
    return done


__all__ = ["Manner", "delete", "insert", "update", "upsert"]
