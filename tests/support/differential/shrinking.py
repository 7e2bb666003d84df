"""The case without what its failure does not need."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from typing import Any

from tests.support.differential.cases import (
    Apply,
    Batch,
    Case,
    Disagree,
    If,
    Merge,
    ReadingBatch,
    Step,
    Write,
)
from tests.support.differential.grounds import Ground
from tests.support.differential.replaying import replay


def shrink(case: Case, fails: Callable[[Case], bool], seconds: float = 60.0) -> Case:
    """The case without the steps, rows, columns and options that its failure does not need."""
    until = time.monotonic() + seconds

    def smaller(items: list[Any], rebuilt: Callable[[list[Any]], Case]) -> list[Any]:
        """Leave out runs of items, long ones first, while the case still fails."""
        size = max(1, len(items) // 2)
        while items and time.monotonic() < until:
            start, dropped = 0, False
            while start < len(items) and time.monotonic() < until:
                fewer = items[:start] + items[start + size :]
                if fails(rebuilt(fewer)):
                    items, dropped = fewer, True
                else:
                    start += size
            if size == 1 and not dropped:
                break
            size = max(1, size // 2)
        return items

    case = dataclasses.replace(
        case, steps=smaller(case.steps, lambda steps: dataclasses.replace(case, steps=steps))
    )
    for plain in ({"check": False}, {"hashes": ()}, {"ranges": ()}):
        if fails(dataclasses.replace(case, **plain)):  # type: ignore[arg-type]
            case = dataclasses.replace(case, **plain)  # type: ignore[arg-type]
    for number in range(len(case.steps)):
        case = _with_smaller_step(case, number, smaller)
    return case


def _with_smaller_step(
    case: Case, number: int, smaller: Callable[[list[Any], Callable[[list[Any]], Case]], list[Any]]
) -> Case:
    """The case with fewer rows, or calls, in one step."""
    step = case.steps[number]

    def holding(items: list[Any]) -> Step:
        if isinstance(step, Apply):
            return dataclasses.replace(step, ops=[op for op, _ in items], rows=[row for _, row in items])
        name = "calls" if isinstance(step, Batch | ReadingBatch) else "rows"
        return dataclasses.replace(step, **{name: items})

    def rebuilt(items: list[Any]) -> Case:
        return dataclasses.replace(
            case, steps=[*case.steps[:number], holding(items), *case.steps[number + 1 :]]
        )

    if isinstance(step, Write | Merge | If):
        return rebuilt(smaller(step.rows, rebuilt))
    if isinstance(step, Apply):
        return rebuilt(smaller(list(zip(step.ops, step.rows, strict=True)), rebuilt))
    if isinstance(step, Batch | ReadingBatch):
        return rebuilt(smaller(step.calls, rebuilt))
    return case


def failure_of(case: Case, ground: Ground | None = None, looks: float = 1.0) -> str | None:
    """Why a case fails, or None.  ``ground``, ``looks``: as of ``replay``."""
    try:
        replay(case, ground=ground, looks=looks)
    except Disagree as error:
        return str(error)
    return None
