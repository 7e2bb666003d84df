"""Names say what they mean (docs/glossary.md, "Which word to take")."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lint.package.sources import parsed, walk

ROOT = Path(__file__).resolve().parents[3]
PACKAGE = ROOT / "kudu_core"
PROPORTIONS = ("_FRACTION", "_DIVISOR", "_FACTOR")


def modules() -> dict[str, ast.Module]:
    found = {str(path.relative_to(ROOT)): parsed(path.read_text()) for path in PACKAGE.rglob("*.py")}
    assert len(found) > 100
    return found


MODULES = modules()


def constants() -> Iterator[tuple[str, str, object]]:
    """(file, name, value or None) of what modules assign in capitals."""
    for path, tree in MODULES.items():
        for node in tree.body:
            if isinstance(node, ast.Assign | ast.AnnAssign):
                for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                    if isinstance(target, ast.Name) and target.id.isupper():
                        yield path, target.id, getattr(node.value, "value", None)


def proportions_wrong(found: Iterator[tuple[str, str, object]]) -> list[str]:
    """A fraction is between 0 and 1, a divisor and a factor are whole and larger than one."""
    wrong = []
    for path, name, value in found:
        if name.endswith("_SHARE"):
            wrong.append(f"{path}: {name} is a fraction, a divisor or a factor, and has to say which")
        elif name.endswith("_FRACTION") and not (isinstance(value, float) and 0 < value < 1):
            wrong.append(f"{path}: {name} is {value}, no fraction")
        elif name.endswith(PROPORTIONS[1:]) and not (isinstance(value, int) and value > 1):
            wrong.append(f"{path}: {name} is {value}, nothing to divide by or to multiply with")
    return wrong


def divisors_wrong(path: str, tree: ast.AST) -> list[str]:
    """Divisors that do not divide, and factors and fractions that are divided by alone."""
    divides = {
        id(name)
        for node in walk(tree)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div | ast.FloorDiv)
        for name in walk(node.right)
    }
    used = [
        (getattr(node, "attr", getattr(node, "id", "")), node)
        for node in walk(tree)
        if isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Load)
    ]
    alone = {
        id(node.right)
        for node in walk(tree)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div | ast.FloorDiv)
    }
    return [
        f"{path}:{node.lineno}: {name} does not divide"
        if name.endswith("_DIVISOR")
        else f"{path}:{node.lineno}: {name} divides"
        for name, node in used
        if (name.endswith("_DIVISOR") and id(node) not in divides)
        or (name.endswith(("_FRACTION", "_FACTOR")) and id(node) in alone)
    ]


def test_proportions_say_whether_they_divide() -> None:
    found = [(path, name) for path, name, _ in constants() if name.endswith(PROPORTIONS)]
    assert len(found) > 15
    assert proportions_wrong(constants()) == []
    assert [wrong for path, tree in MODULES.items() for wrong in divisors_wrong(path, tree)] == []


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("limit * SMALL_DIVISOR", "SMALL_DIVISOR does not divide"),
        ("SMALL_DIVISOR // limit", "SMALL_DIVISOR does not divide"),
        ("limit / module.SMALL_FRACTION", "SMALL_FRACTION divides"),
        ("limit // SMALL_FACTOR", "SMALL_FACTOR divides"),
        (
            "limit // (SMALL_DIVISOR * threads) + limit * SMALL_FRACTION + rows // (target * SMALL_FACTOR)",
            None,
        ),
    ],
)
def test_uses_that_are_wrong_are_seen(text: str, said: str | None) -> None:
    found = divisors_wrong("x", parsed(text))
    assert found == ([] if said is None else [f"x:1: {said}"])


@pytest.mark.parametrize(
    ("name", "value"),
    [("SMALL_SHARE", 2), ("SMALL_FRACTION", 2), ("SMALL_FRACTION", 1.5), ("A_DIVISOR", 0.5), ("A_FACTOR", 1)],
)
def test_values_that_are_wrong_are_seen(name: str, value: object) -> None:
    assert len(proportions_wrong(iter([("x", name, value)]))) == 1
