"""Nested columns and the flat ones that store them.

A table stores flat columns.  A column of lists, structs or maps is taken apart into several of them, its
*leaves*, where rows come in, and put together where they go out; in between nothing knows of it.
``nested_nodes.py`` says which leaves a type has.

>>> layout = layout_of("a", pa.struct([("x", pa.int64()), ("tags", pa.list_(pa.string()))]), False)
>>> [(leaf.name, leaf.type.name) for leaf in layout.leaves]  # doctest: +NORMALIZE_WHITESPACE
[('a.x', 'int64'), ('a.tags[]:length', 'binary'), ('a.tags[]', 'binary'), ('a.tags[]:null', 'binary')]
>>> rows = pa.array([{"x": 1, "tags": ["red", "blue"]}, {"x": 2, "tags": None}], layout.arrow)
>>> layout.assemble(layout.flatten(rows)).equals(rows)
True
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from kudu_core.common.types.nested.nested_assemble import assembled
from kudu_core.common.types.nested.nested_flatten import flattened
from kudu_core.common.types.nested.nested_nodes import (
    FlatNode,
    NestedLeaf,
    NestedNode,
    StructNode,
    is_nested,
    leaves_of,
    tree_of,
)
from kudu_core.errors import SchemaMismatch


@dataclass(frozen=True, slots=True, eq=False)
class NestedLayout:
    """How one column is stored: as what, and how to get there and back."""

    root: NestedNode
    leaves: tuple[NestedLeaf, ...]
    """In an order that only the type decides."""

    @staticmethod
    def of(root: NestedNode) -> NestedLayout:
        return NestedLayout(root, tuple(leaves_of(root)))

    @property
    def name(self) -> str:
        """With dots, of a part."""
        return self.root.name

    @property
    def arrow(self) -> pa.DataType:
        return self.root.declared if isinstance(self.root, FlatNode) else self.root.arrow

    @property
    def nullable(self) -> bool:
        return self.root.nullable

    def flatten(self, array: pa.Array, first_row: int = 0) -> list[pa.Array]:
        """An array of the type as one for each leaf.  ``first_row``: its number, for messages.

        ``SchemaMismatch`` for broken data, with its row, and for NULL where the type has none.
        ``ColumnTooLarge`` for cells of a leaf that exceed 2 GiB: give fewer rows at a time.
        """
        if array.type != self.arrow:
            raise SchemaMismatch(
                f"column {self.name!r} is {self.arrow}; data of type {array.type} does not fit"
            )
        return flattened(self.root, array, first_row)

    def assemble(self, leaves: Sequence[pa.Array]) -> pa.Array:
        """What ``flatten`` was given, of the leaves in their order.

        Each is a sound array of its leaf's type, and as long as the others.  ``PageError`` names the leaf and
        the row where cells do not go together: what was stored is damaged.
        """
        rows = len(leaves[0])
        assert len(leaves) == len(self.leaves)
        assert all(len(array) == rows for array in leaves)
        assert all(a.type == leaf.type.arrow for a, leaf in zip(leaves, self.leaves, strict=True))
        named = {leaf.name: array for leaf, array in zip(self.leaves, leaves, strict=True)}
        return assembled(self.root, named, rows)

    def part(self, path: Sequence[str]) -> NestedLayout | None:
        """The layout of a field, by the names of structs' fields on the way; None: there is no such field.

        Its leaves are some of this one's.  It is NULL where a struct around it is.
        """
        node, nullable = self.root, self.nullable
        for name in path:
            fields = node.fields if isinstance(node, StructNode) else ()
            found = [field for field in fields if field.name == f"{node.name}.{name}"]
            if not found:
                return None
            node = found[0]
            nullable = nullable or node.nullable
        if isinstance(node, StructNode):
            return NestedLayout.of(replace(node, nullable=nullable, own_flags=nullable))
        return NestedLayout.of(replace(node, nullable=nullable))

    def null_test(self) -> tuple[str, str] | None:
        """Which leaf says where the column is NULL, and how: it ``"is_null"``, or it ``"is_true"``.
        None: it never is."""
        if not self.nullable:
            return None
        if isinstance(self.root, StructNode):
            assert self.root.flags is not None
            return self.root.flags, "is_true"
        return self.leaves[0].name, "is_null"


def layout_of(name: str, type_: pa.DataType, nullable: bool) -> NestedLayout:
    """How a column of an Arrow type is stored; ``InvalidArgument`` names the place in it that cannot be."""
    return NestedLayout.of(tree_of(name, type_, nullable))


__all__ = ["NestedLayout", "NestedLeaf", "is_nested", "layout_of"]
