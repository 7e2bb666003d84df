"""What rules about source files share: each file is parsed once, and a rule over all of them is one test."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path


@cache
def parsed(text: str) -> ast.Module:
    """The tree of a source text, which nobody changes."""
    return ast.parse(text)


@cache
def walk(tree: ast.AST) -> tuple[ast.AST, ...]:
    """All nodes of a tree, as ``ast.walk`` finds them, which takes as long as to parse it."""
    return tuple(ast.walk(tree))


def over(paths: Sequence[Path]) -> Callable[[Callable[[Path], None]], Callable[[], None]]:
    """Makes of a rule for one file the test that each of some files keeps it; failures say which does not.

    A test for each file would take more time than all rules do.
    """

    def decorate(rule: Callable[[Path], None]) -> Callable[[], None]:
        def test() -> None:
            assert paths
            for path in paths:
                try:
                    rule(path)
                except AssertionError as wrong:
                    wrong.add_note(f"in {path}")
                    raise

        test.__name__, test.__doc__ = rule.__name__, rule.__doc__
        return test

    return decorate


__all__ = ["over", "parsed", "walk"]
