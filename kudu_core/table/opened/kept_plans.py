"""Plans of reads, and predicates, that are asked for again and again.

They are kept as long as the table has the columns that they name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar

import pyarrow.compute as pc

from kudu_core.common.where import expressions
from kudu_core.common.where.given import AsGiven
from kudu_core.common.where.identity import identity_of, size_of
from kudu_core.common.where.predicates import Filter, compile_given, compile_where
from kudu_core.sql.where_text import is_text, text_identity, without_text

if TYPE_CHECKING:
    from kudu_core.common.schema.schema import Schema

P = TypeVar("P")

_MOST = 64
"""When one more comes, those that are there go: whoever asks so many different things plans each anew."""
_MOST_PREDICATES = 128
_MOST_BYTES = 1 << 19
"""Of what predicates are known by.  What is made of a predicate may take ten times as much."""
_LARGEST = _MOST_BYTES // 4
"""A predicate that is known by more bytes is not kept."""
_MOST_OF_ONE = 8
"""Plans with one predicate."""


class KeptPredicate(Generic[P]):
    """A predicate as it is compiled, and plans that have it, by what else they are asked for."""

    __slots__ = ("filter", "plans", "size")

    def __init__(self, compiled: Filter | None, size: int) -> None:
        self.filter = compiled
        """None: every row passes."""
        self.size = size
        """About how many bytes it is known by."""
        self.plans: dict[tuple[Any, ...], P] = {}

    def get(self, asked: tuple[Any, ...]) -> P | None:
        return self.plans.get(asked)

    def put(self, asked: tuple[Any, ...], plan: P) -> None:
        plans = self.plans if len(self.plans) < _MOST_OF_ONE else {}
        plans[asked] = plan
        self.plans = plans


class KeptPlans(Generic[P]):
    """Plans of one schema by what was asked for, and the predicates of reads and writes.

    Threads may make a plan twice; either is right.
    """

    def __init__(self, schema: Schema) -> None:
        self.schema = schema
        self._plans: dict[tuple[Any, ...], P] = {}
        self._predicates: dict[tuple[Any, ...] | bytes, KeptPredicate[P]] = {}

    def get(self, asked: tuple[Any, ...]) -> P | None:
        return self._plans.get(asked)

    def put(self, asked: tuple[Any, ...], plan: P) -> None:
        plans = self._plans if len(self._plans) < _MOST else {}
        plans[asked] = plan
        self._plans = plans

    def predicate(self, where: Any) -> KeptPredicate[P]:
        """A predicate, an expression, filter lists or SQL text, checked and compiled (``compile_where``).

        An expression is known by its serialised bytes, and what is kept is made of these: what the caller
        gave may refer to memory that changes.
        """
        if isinstance(where, pc.Expression):
            raw = expressions.serialised(where)
            if raw.size > _LARGEST:
                return KeptPredicate(compile_where(where, self.schema), raw.size)
            known: tuple[Any, ...] | bytes = raw.to_pybytes()
            found = self._predicates.get(known)
            if found is None:
                found = KeptPredicate(compile_given(AsGiven.serialised(raw), self.schema), raw.size)
                self._keep(known, found)
            return found
        identity = text_identity(where) if is_text(where) else identity_of(where)
        found = None if identity is None else self._predicates.get(identity)
        if found is None:
            size = 0 if identity is None else size_of(identity)
            found = KeptPredicate(compile_where(without_text(where, self.schema), self.schema), size)
            if identity is not None:
                self._keep(identity, found)
        return found

    def sizes(self) -> list[int]:
        """Of the predicates that are kept, about how many bytes each is known by."""
        return [predicate.size for predicate in list(self._predicates.values())]

    def _keep(self, known: tuple[Any, ...] | bytes, predicate: KeptPredicate[P]) -> None:
        if predicate.size > _LARGEST:
            return
        kept, sizes = self._predicates, self.sizes()
        if len(sizes) >= _MOST_PREDICATES or sum(sizes) + predicate.size > _MOST_BYTES:
            kept = {}
        kept[known] = predicate
        self._predicates = kept

    def __len__(self) -> int:
        return len(self._plans)


__all__ = ["KeptPlans", "KeptPredicate"]
