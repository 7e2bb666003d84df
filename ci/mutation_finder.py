"""The mutations of one file: ``ci/mutate.py`` says what they are for.

Kinds of mutation (each one statement or one expression on one line):

    drop       a call that stands as a statement, an assignment to an attribute, or a ``raise`` is left out
    compare    ``<`` becomes ``<=``, ``==`` becomes ``!=``, ``in`` becomes ``not in``, and back
    condition  the test of an ``if``, ``while`` or conditional expression is negated
    operand    one operand of ``and`` or ``or`` is left out
    bound      ``max`` becomes ``min`` and back
    one        ``x + 1`` or ``x - 1`` becomes ``x``
    order      two neighbouring calls that stand as statements change places

What only tells (events, metrics, messages) is left out: ``TELLING``.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from itertools import pairwise

TELLING = ("tell", "_tell", "note_reason", "warn", "debug", "info", "warning", "exception", "perf_counter")
COMPARED = {
    ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">", ast.Eq: "!=", ast.NotEq: "==",
    ast.In: "not in", ast.NotIn: "in", ast.Is: "is not", ast.IsNot: "is",
}  # fmt: skip


@dataclass(frozen=True)
class Mutation:
    """One change of one piece of text on one line (``order``: of two statements)."""

    room: str
    path: str
    kind: str
    where: str
    """The function that it is in."""
    line: int
    start: int
    end: int
    """Characters of the file that are replaced."""
    text: str
    """What they say."""
    instead: str

    @property
    def key(self) -> str:
        """What identifies it although lines move: path, function, kind, and what becomes of what."""
        return f"{self.path} | {self.where} | {self.kind} | {_line(self.text)} -> {_line(self.instead)}"

    def __str__(self) -> str:
        change = f"{_line(self.text)} -> {_line(self.instead)}"
        return f"{self.path}:{self.line} in {self.where}, {self.kind}: {change}"


def _line(text: str) -> str:
    return " ".join(text.split())


class Finder(ast.NodeVisitor):
    """All mutations of one file."""

    def __init__(self, room: str, path: str, source: str) -> None:
        self.room = room
        self.path = path
        self.source = source
        self.offsets = [0]
        for line in source.splitlines(keepends=True):
            self.offsets.append(self.offsets[-1] + len(line))
        self.names: list[str] = []
        self.found: list[Mutation] = []

    def at(self, line: int, column: int) -> int:
        # ast counts bytes; the sources are ASCII, which tests/lint checks.
        return self.offsets[line - 1] + column

    def text_of(self, node: ast.AST) -> str:
        return self.source[self.span(node)[0] : self.span(node)[1]]

    def span(self, node: ast.AST) -> tuple[int, int]:
        return (
            self.at(node.lineno, node.col_offset),  # type: ignore[attr-defined]
            self.at(node.end_lineno, node.end_col_offset),  # type: ignore[attr-defined]
        )

    def add(self, kind: str, node: ast.AST, start: int, end: int, instead: str) -> None:
        if self.names:  # not of module or class level: constants and types
            where = ".".join(self.names)
            line: int = node.lineno  # type: ignore[attr-defined]
            text = self.source[start:end]
            self.found.append(Mutation(self.room, self.path, kind, where, line, start, end, text, instead))

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        if node.name.startswith("__") and node.name in ("__repr__", "__str__", "__reduce__"):
            return
        self.names.append(node.name)
        for child in node.body:
            self.visit(child)
        self._orders(node.body)
        self.names.pop()

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        names, self.names = self.names, []
        for child in node.body:
            if isinstance(child, ast.FunctionDef):
                self.names = [node.name]
                self.visit(child)
        self.names = names

    def visit_If(self, node: ast.If) -> None:
        if _text_is(node.test, "TYPE_CHECKING"):
            return
        self._condition(node)
        self._orders(node.body)
        self.generic_visit(node)

    def visit_While(self, node: ast.While) -> None:
        if not isinstance(node.test, ast.Constant):
            self._condition(node)
        self.generic_visit(node)

    def visit_With(self, node: ast.With) -> None:
        self._orders(node.body)
        self.generic_visit(node)

    def visit_Try(self, node: ast.Try) -> None:
        self._orders(node.body)
        self.generic_visit(node)

    def visit_IfExp(self, node: ast.IfExp) -> None:
        self._condition(node)
        self.generic_visit(node)

    def visit_Assert(self, node: ast.Assert) -> None:
        """Assertions are the net, not the rope."""

    def visit_Raise(self, node: ast.Raise) -> None:
        if node.exc is not None:
            self.add("drop", node, *self.span(node), "pass")

    def visit_Expr(self, node: ast.Expr) -> None:
        if isinstance(node.value, ast.Call):
            if _called(node.value) in TELLING:
                return
            self.add("drop", node, *self.span(node), "pass")
        self.generic_visit(node)

    def visit_Assign(self, node: ast.Assign) -> None:
        if all(isinstance(target, ast.Attribute) for target in node.targets):
            self.add("drop", node, *self.span(node), "pass")
        self.generic_visit(node)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self.add("drop", node, *self.span(node), "pass")
        self.generic_visit(node)

    def visit_Compare(self, node: ast.Compare) -> None:
        left: ast.expr = node.left
        for operator, right in zip(node.ops, node.comparators, strict=True):
            start, end = self.span(left)[1], self.span(right)[0]
            between = self.source[start:end]
            if between.strip(" ") in {"<", "<=", ">", ">=", "==", "!=", "in", "not in", "is", "is not"}:
                self.add("compare", node, start, end, f" {COMPARED[type(operator)]} ")
            left = right
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        for i, value in enumerate(node.values):
            rest = [f"({self.text_of(v)})" for j, v in enumerate(node.values) if j != i]
            word = " and " if isinstance(node.op, ast.And) else " or "
            if self.text_of(value).count("\n") == 0:
                self.add("operand", node, *self.span(node), "(" + word.join(rest) + ")")
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        if isinstance(node.func, ast.Name) and node.func.id in ("max", "min"):
            start, end = self.span(node.func)
            self.add("bound", node, start, end, "min" if node.func.id == "max" else "max")
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        if (
            isinstance(node.op, ast.Add | ast.Sub)
            and isinstance(node.right, ast.Constant)
            and node.right.value == 1
        ):
            self.add("one", node, *self.span(node), f"({self.text_of(node.left)})")
        self.generic_visit(node)

    def _condition(self, node: ast.If | ast.While | ast.IfExp) -> None:
        self.add("condition", node, *self.span(node.test), f"(not ({self.text_of(node.test)}))")

    def _orders(self, body: list[ast.stmt]) -> None:
        for first, second in pairwise(body):
            calls = all(
                isinstance(s, ast.Expr) and isinstance(s.value, ast.Call) and _called(s.value) not in TELLING
                for s in (first, second)
            )
            if calls:
                (a, b), (c, d) = self.span(first), self.span(second)
                self.add("order", first, a, d, self.source[c:d] + self.source[b:c] + self.source[a:b])


def _called(call: ast.Call) -> str:
    function = call.func
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def _text_is(node: ast.expr, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name


def mutated(source: str, mutation: Mutation) -> str:
    return source[: mutation.start] + mutation.instead + source[mutation.end :]
