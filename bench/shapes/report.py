"""Lines of the table of goals: what was measured, beside whom, and whether the goal is reached.

    python -m bench.shapes.report build/bench/shapes-<time>.json ...

prints the table of bench/README.md and the ratios of each shape.  Of a line that is in several files the last
one counts.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import geometric_mean

OURS = "kudu_core"
ORDER = (
    "get", "get beyond the cache", "get beyond the cache, cold", "get beyond the memory", "get_many",
    "get_many beyond the cache", "rows in key order", "scan", "predicates", "update where",
    "rows a call, not synced", "bulk load", "bytes on disk", "open, and the first row", "flush and compact",
    "changes of one column", "peak memory, cells of 1 MB", "fixed cost of a scan", "Spark: scan",
    "Spark: write", "what others cost",
)  # fmt: skip
"""Lines as the table of goals has them."""


@dataclass(frozen=True)
class Line:
    """One measurement.  ``ours`` and ``peer`` are seconds, or what ``unit`` says; ``goal`` is of ``ratio``,
    or where there is no peer, of ``ours``."""

    line: str
    operation: str
    shape: str
    ours: float
    goal: float | None
    peer: float | None = None
    peer_name: str = ""
    unit: str = "s"

    @property
    def ratio(self) -> float | None:
        return None if self.peer is None else self.ours / self.peer

    @property
    def reached(self) -> bool | None:
        if self.goal is None:
            return None
        return (self.ours if self.ratio is None else self.ratio) <= self.goal

    @property
    def excess(self) -> float:
        """Of what is to be reached: above 1 it is missed."""
        figure = self.ours if self.ratio is None else self.ratio
        return figure / self.goal if self.goal else 0.0

    def to_json(self) -> dict[str, object]:
        return asdict(self) | {"ratio": self.ratio, "reached": self.reached}


class Report:
    """Lines as they come, kept in a file from the first one on."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self.lines: list[Line] = []

    def add(self, line: Line) -> None:
        self.lines.append(line)
        if self.path is not None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self.path.write_text(json.dumps([known.to_json() for known in self.lines], indent=1))


def read(paths: Iterable[str]) -> list[Line]:
    found: dict[tuple[str, str, str], Line] = {}
    for path in paths:
        for stored in json.loads(Path(path).read_text()):
            del stored["ratio"], stored["reached"]
            line = Line(**stored)
            found[line.line, line.operation, line.shape] = line
    return list(found.values())


def shown(line: Line) -> str:
    """What was measured, as people read it."""
    if line.ratio is not None:
        return f"{line.ratio:.2f}" if line.ratio < 10 else f"{line.ratio:,.0f}"
    return amount(line.ours, line.unit)


def amount(value: float, unit: str) -> str:
    if unit == "MiB":
        return f"{value:,.0f} MiB"
    if unit == "MB":
        return f"{value:,.1f} MB"
    for factor, name in ((1e6, "us"), (1e3, "ms"), (1, "s")):
        if value * factor < 1000 or name == "s":
            return f"{value * factor:,.{2 if value * factor < 10 else 0}f} {name}"
    raise AssertionError


def table(rows: Sequence[Sequence[str]]) -> str:
    head, *body = (f"| {' | '.join(row)} |" for row in rows)
    return "\n".join([head, "|" + " --- |" * len(rows[0]), *body])


def goals(lines: Sequence[Line]) -> str:
    """A row for each goal: how many shapes reach it, the mean ratio, and the worst."""
    groups: dict[tuple[str, float], list[Line]] = {}
    for line in lines:
        if line.goal is not None:
            groups.setdefault((line.line, line.goal), []).append(line)
    rows = [["work", "goal", "reached", "mean", "worst", ""]]
    for (name, goal), group in sorted(groups.items(), key=lambda item: (ORDER.index(item[0][0]), item[0][1])):
        worst = max(group, key=lambda line: line.excess)
        reached = sum(bool(line.reached) for line in group)
        ratios = [line.ratio for line in group if line.ratio]
        mean = f"{geometric_mean(ratios):.2f}" if ratios else ""
        aim = amount(goal, worst.unit) if worst.ratio is None else f"{goal:g}"
        where = f"{shown(worst)} ({worst.operation}, {worst.shape})"
        verdict = "reached" if reached == len(group) else "**missed**"
        rows.append([name, aim, f"{reached} of {len(group)}", mean, where, verdict])
    return table(rows)


def by_shape(lines: Sequence[Line], shapes: Sequence[str]) -> str:
    """Ratios of each operation: a column for each shape."""
    chosen = [line for line in lines if line.shape in shapes and line.ratio is not None]
    operations = list(dict.fromkeys(line.operation for line in chosen))
    known = {(line.operation, line.shape): line for line in chosen}
    rows = [["", *shapes]]
    for operation in operations:
        cells = [known.get((operation, shape)) for shape in shapes]
        rows.append([operation, *(_marked(line) if line else "" for line in cells)])
    return table(rows)


def _marked(line: Line) -> str:
    return f"**{shown(line)}**" if line.reached is False else shown(line)


def worst(lines: Sequence[Line], count: int = 40) -> str:
    """The lines that are furthest from their goals."""
    rows = [["line", "operation", "shape", "ours", "peer", "ratio", "goal"]]
    for line in sorted(lines, key=lambda line: -line.excess)[:count]:
        peer = "" if line.peer is None else f"{amount(line.peer, line.unit)} ({line.peer_name})"
        cells = [amount(line.ours, line.unit), peer, shown(line), f"{line.goal:g}" if line.goal else ""]
        rows.append([line.line, line.operation, line.shape, *cells])
    return table(rows)


def main() -> None:
    lines = read(sys.argv[1:])
    shapes = list(dict.fromkeys(line.shape for line in lines))
    parts = [goals(lines), by_shape(lines, shapes), worst(lines)]
    sys.stdout.write("\n\n".join(parts) + "\n")


if __name__ == "__main__":
    main()
