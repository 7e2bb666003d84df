"""A predicate as it was given: as an expression, as the bytes of one, or as the tree of filter lists.

The expression itself is seldom needed, where conditions say all of it: it is made when somebody asks for it.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from kudu_core.common.where import expressions
from kudu_core.common.where.expressions import Node
from kudu_core.common.where.rewritten import NullTest, TypeOf, rewritten


class AsGiven:
    """Immutable; pickles as its expression."""

    __slots__ = ("_expression", "_node", "_raw")

    def __init__(
        self, expression: pc.Expression | None, node: Node | None = None, raw: pa.Buffer | None = None
    ) -> None:
        self._expression, self._node, self._raw = expression, node, raw

    @staticmethod
    def listed(node: Node) -> AsGiven:
        """Of filter lists."""
        return AsGiven(None, node)

    @staticmethod
    def serialised(raw: pa.Buffer) -> AsGiven:
        """What ``expressions.serialised`` has made of an expression: it shares no memory with that."""
        return AsGiven(None, None, raw)

    @property
    def expression(self) -> pc.Expression:
        if self._expression is None:
            if self._raw is not None:
                self._expression = pc.Expression._deserialize(self._raw)
            else:
                assert self._node is not None
                self._expression = expressions.spelled(self._node)
        return self._expression

    def tree(self) -> Node | None:
        """As ``expressions.parse`` has it; None: not understood."""
        if self._node is not None:
            return self._node
        if self._raw is None:
            return expressions.parse(self._expression)
        return expressions.parse_serialised(self._raw)

    def of_stored_types(self, null_test: NullTest, type_of: TypeOf) -> tuple[AsGiven, Node | None]:
        """The same of constants and columns as a table stores them (``rewritten.py``), and its tree."""
        if self._node is not None:
            return self, self._node  # filter lists are made so
        raw = expressions.serialised(self._expression) if self._raw is None else self._raw
        batch, words = expressions.read_serialised(raw)
        other = rewritten(batch, words, null_test, type_of)
        if other is None:
            return self, expressions.tree_of(batch, words)
        made = AsGiven.serialised(other)
        return made, made.tree()

    def __reduce__(self) -> tuple[Any, ...]:
        return AsGiven, (self.expression,)


__all__ = ["AsGiven"]
