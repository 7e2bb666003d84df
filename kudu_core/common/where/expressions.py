"""A ``pyarrow.compute.Expression`` as a tree that Python can read.

Expressions are opaque, but pyarrow serialises them: a record batch of one row holds literals and
options, and its schema's metadata spells the tree in prefix order (``call``, ``field_ref``,
``literal``, ``options``, ``end``).  Metadata keys repeat, which Python's view of it (a dict) loses,
so it is read through the Arrow C interface, whose layout is frozen.

Whoever reads a tree must take ``None`` (not understood) for an answer.
"""

from __future__ import annotations

import ctypes
import operator
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from kudu_core.common.types.scalars import stored_scalar
from kudu_core.common.types.types import ColumnType
from kudu_core.errors import InvalidArgument


@dataclass(frozen=True, slots=True)
class Ref:
    """A column by name."""

    name: str


class Literal:
    """A constant.  Immutable."""

    __slots__ = ("_scalar", "exact", "type")

    def __init__(self, scalar: pa.Scalar) -> None:
        self.type: ColumnType | None = None
        """Of the column with which it is compared, where it is known to be a value of that type."""
        self.exact: Any = None
        """Then the exact Python value."""
        self._scalar = scalar

    @staticmethod
    def plain(type_: ColumnType, exact: Any) -> Literal:
        """An exact value of the type of the column that it is compared with, and no NaN."""
        made = Literal(None)
        made.type, made.exact = type_, exact
        return made

    @property
    def scalar(self) -> pa.Scalar:
        if self._scalar is None:
            assert self.type is not None
            self._scalar = stored_scalar(self.type, self.exact)
        return self._scalar


@dataclass(frozen=True, slots=True)
class FunctionCall:
    """A function of Arrow's registry.  ``options``: a struct's fields as Arrow values, or None."""

    function: str
    arguments: tuple[Node, ...]
    options: dict[str, pa.Scalar] | None


Node = Ref | Literal | FunctionCall

_JOINED: dict[str, Callable[..., pc.Expression]] = {
    "and_kleene": operator.and_,
    "or_kleene": operator.or_,
    "invert": operator.invert,
    "equal": operator.eq,
    "not_equal": operator.ne,
    "less": operator.lt,
    "less_equal": operator.le,
    "greater": operator.gt,
    "greater_equal": operator.ge,
}
# SetLookupOptions: NULL equals NULL.  A uint32 0, made of bytes: of a Python value pyarrow would make it with
# the help of pandas, and import that with this module.
_MATCH = pa.Array.from_buffers(pa.uint32(), 1, [None, pa.py_buffer(bytes(4))])[0]


def parse(expression: pc.Expression) -> Node | None:
    """The tree; None when this pyarrow spells it in an unknown way.

    ``InvalidArgument`` when the expression names a column by position or reaches into one: there
    is no such column; and when a literal or a list in it is broken.
    """
    return parse_serialised(serialised(expression))


def parse_serialised(raw: pa.Buffer) -> Node | None:
    """The same of what ``serialised`` has made of an expression."""
    return tree_of(*read_serialised(raw))


def tree_of(batch: pa.RecordBatch, spelled_as: list[tuple[str, str]]) -> Node | None:
    """The same of what ``read_serialised`` has read."""
    try:
        words = iter(spelled_as)
        key, value = next(words)
        node = _node(key, value, words, batch)
        return None if next(words, None) is not None else node
    except InvalidArgument:
        raise
    except (StopIteration, RuntimeError, KeyError, ValueError, TypeError, LookupError, pa.ArrowException):
        return None


def read_serialised(raw: pa.Buffer) -> tuple[pa.RecordBatch, list[tuple[str, str]]]:
    """What ``serialised`` has made: the literals, checked, and the words that spell the tree."""
    batch = _literals(raw)
    return batch, _metadata(batch.schema)


def written(batch: pa.RecordBatch, words: list[tuple[str, str]]) -> pa.Buffer:
    """Literals and words as pyarrow serialises an expression."""
    sink = pa.BufferOutputStream()
    spelled = batch.replace_schema_metadata(pa.KeyValueMetadata(words))
    with pa.ipc.new_file(sink, spelled.schema) as writer:
        writer.write_batch(spelled)
    return sink.getvalue()


def serialised(expression: pc.Expression) -> pa.Buffer:
    """As pyarrow writes it to send it elsewhere."""
    try:
        return expression.__reduce__()[1][0]
    except pa.ArrowNotImplementedError:
        raise InvalidArgument(f"{expression}: columns are named, not numbered") from None


def _literals(raw: pa.Buffer) -> pa.RecordBatch:
    """The values in an expression, checked, in a batch whose metadata spells its tree.

    Nobody can look at them before pyarrow has written them out."""
    try:
        batch = pa.ipc.open_file(raw).get_batch(0)
        batch.validate(full=True)
    except (pa.ArrowException, ValueError) as error:
        raise InvalidArgument(f"a value in a predicate is broken Arrow data: {error}") from None
    return batch


def conjuncts(expression: pc.Expression) -> list[pc.Expression]:
    """Expressions all of which are true where this one is; it alone, where it is no conjunction."""
    batch = pa.ipc.open_file(serialised(expression)).get_batch(0)
    words = _metadata(batch.schema)
    parts: list[tuple[int, int]] = []
    _conjuncts(words, 0, parts)
    if len(parts) < 2 or parts[-1][1] > len(words):
        return [expression]
    return [_rebuilt(batch, words[first:last]) for first, last in parts]


def _conjuncts(words: list[tuple[str, str]], at: int, parts: list[tuple[int, int]]) -> int:
    """Add what the node at ``at`` is a conjunction of to the parts; return where it ends."""
    if words[at] != ("call", "and_kleene"):
        first, depth = at, 0
        while True:
            depth += {"call": 1, "end": -1}.get(words[at][0], 0)
            at += 1
            if depth == 0:
                parts.append((first, at))
                return at
    at += 1
    while words[at][0] != "end":
        at = _conjuncts(words, at, parts)
    return at + 1


def _rebuilt(batch: pa.RecordBatch, words: list[tuple[str, str]]) -> pc.Expression:
    """The expression that these words of a serialised one spell."""
    return pc.Expression._deserialize(written(batch, words))


def spelled(node: Node) -> pc.Expression:
    """The expression of a tree of comparisons, lists of values and what joins them."""
    if isinstance(node, Ref):
        return pc.field(node.name)
    if isinstance(node, Literal):
        return pc.scalar(node.scalar)
    if node.function == "is_in":
        assert node.options is not None
        return spelled(node.arguments[0]).isin(node.options["value_set"].values)
    return _JOINED[node.function](*map(spelled, node.arguments))


def parts(node: Node) -> list[Node]:
    """The trees of the ``conjuncts`` of a tree's expression."""
    if isinstance(node, FunctionCall) and node.function == "and_kleene":
        return [part for argument in node.arguments for part in parts(argument)]
    return [node]


def is_in(argument: Node, values: pa.Array) -> FunctionCall:
    """``argument.isin(values)`` as ``parse`` reads it."""
    listed = pa.ListArray.from_arrays([0, len(values)], values)
    return FunctionCall("is_in", (argument,), {"value_set": listed[0], "null_matching_behavior": _MATCH})


def references(node: Node) -> set[str]:
    """Names of all columns in the tree."""
    if isinstance(node, Ref):
        return {node.name}
    if isinstance(node, FunctionCall):
        return set().union(*(references(argument) for argument in node.arguments))
    return set()


def _node(key: str, value: str, words: Iterator[tuple[str, str]], batch: pa.RecordBatch) -> Node:
    if key == "field_ref":
        return Ref(value)
    if key == "literal":
        return Literal(batch.column(int(value))[0])
    if key == "nested_field_ref":
        return Ref(".".join(next(words)[1] for _ in range(int(value))))
    if key != "call":
        raise ValueError(key)
    arguments: list[Node] = []
    options = None
    for word, inner in words:
        if word == "end":
            return FunctionCall(value, tuple(arguments), options)
        if word == "options":
            struct = batch.column(int(inner))
            options = {field.name: struct.field(i)[0] for i, field in enumerate(struct.type)}
        else:
            arguments.append(_node(word, inner, words, batch))
    raise ValueError("a call without an end")


class _ArrowSchema(ctypes.Structure):
    """The first fields of the C data interface's struct."""

    _fields_ = (("format", ctypes.c_char_p), ("name", ctypes.c_char_p), ("metadata", ctypes.c_void_p))


_pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
_pointer_of.restype = ctypes.c_void_p
_pointer_of.argtypes = (ctypes.py_object, ctypes.c_char_p)


def _metadata(schema: pa.Schema) -> list[tuple[str, str]]:
    """Key and value pairs in their order: int32 count, then int32 length and bytes of each."""
    capsule = schema.__arrow_c_schema__()
    address = _ArrowSchema.from_address(_pointer_of(capsule, b"arrow_schema")).metadata
    pairs: list[tuple[str, str]] = []
    if not address:
        return pairs

    def number() -> int:
        nonlocal address
        value = ctypes.c_int32.from_address(address).value
        address += 4
        return int(value)

    def text() -> str:
        nonlocal address
        size = number()
        raw = ctypes.string_at(address, size)
        address += size
        return raw.decode()

    for _ in range(number()):
        key = text()
        pairs.append((key, text()))
    return pairs


def as_scalar(value: Any) -> pa.Scalar:
    """A Python value as a scalar; ``InvalidArgument`` when Arrow has no type for it."""
    try:
        return value if isinstance(value, pa.Scalar) else pa.scalar(value)
    except (pa.ArrowException, TypeError, OverflowError, ValueError) as error:
        raise InvalidArgument(f"{value!r}: {error}") from None


def field_names(expression: pc.Expression) -> set[str]:
    """Names of all columns in an expression, also of one that nobody understands."""
    _, words = read_serialised(serialised(expression))
    return {value for word, value in words if word == "field_ref"}
